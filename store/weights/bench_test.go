package weights

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// largePublication has about 0.4 MB of model and twice that of optimizer, in 30
// and 61 tensors: the size of the embedded run's versions.
func largePublication(version loop.Version) port.Publication {
	rng := rand.New(rand.NewPCG(uint64(version), 1))
	p := port.Publication{Version: version, Lease: 1}
	tensor := func(name string, shape ...int) port.Tensor {
		data := make([]float32, shape[0]*shape[1])
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		return port.Tensor{Name: name, Shape: shape, Data: data}
	}
	for i := range 15 {
		for _, part := range []string{"weight", "norm"} {
			name, width := fmt.Sprintf("layer%d.%s", i, part), 105
			if part == "norm" {
				width = 1
			}
			p.Model = append(p.Model, tensor(name, 64, width))
			p.Optimizer = append(p.Optimizer, tensor(name+".first", 64, width), tensor(name+".second", 64, width))
		}
	}
	p.Optimizer = append(p.Optimizer, tensor("steps", 1, 1))
	return p
}

func publicationBytes(p port.Publication) (model, all int64) {
	for i, part := range parts(p) {
		for _, t := range part.tensors {
			all += 4 * int64(len(t.Data))
		}
		if i == 0 {
			model = all
		}
	}
	return model, all
}

func BenchmarkPublish(b *testing.B) {
	for _, always := range []bool{false, true} {
		b.Run(fmt.Sprintf("always=%v", always), func(b *testing.B) {
			s, p := openTest(b, b.TempDir(), Options{Always: always}), largePublication(0)
			_, all := publicationBytes(p)
			b.SetBytes(all)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Publish(b.Context(), p); err != nil {
					b.Fatal(err)
				}
				p.Version++
				if p.Version%8 == 0 {
					b.StopTimer()
					if err := s.Prune(p.Version - 4); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkModel(b *testing.B) {
	s, p := openTest(b, b.TempDir(), Options{}), largePublication(0)
	expectPublish(b, s, p)
	model, _ := publicationBytes(p)
	b.SetBytes(model)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Model(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommitted(b *testing.B) {
	s := openTest(b, b.TempDir(), Options{})
	expectPublish(b, s, largePublication(0))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := s.Committed(0); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrune(b *testing.B) {
	s, p := openTest(b, b.TempDir(), Options{}), largePublication(0)
	for b.Loop() {
		b.StopTimer()
		p.Version++
		if err := s.Publish(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := s.Prune(p.Version); err != nil {
			b.Fatal(err)
		}
	}
}

// What a publish does beside the disk, with floats where they lie and converted.
func BenchmarkEncode(b *testing.B) {
	defer func(native bool) { nativeLittle = native }(nativeLittle)
	for _, native := range []bool{nativeLittle, false} {
		b.Run(fmt.Sprintf("native=%v", native), func(b *testing.B) {
			nativeLittle = native
			p, e := largePublication(0), encoder{}
			_, all := publicationBytes(p)
			b.SetBytes(all)
			b.ReportAllocs()
			for b.Loop() {
				for _, part := range parts(p) {
					if _, err := e.encode(io.Discard, part); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	p, e := largePublication(0), encoder{}
	_, all := publicationBytes(p)
	b.SetBytes(all)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.check(p); err != nil {
			b.Fatal(err)
		}
	}
}
