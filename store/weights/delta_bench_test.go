package weights

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
)

// bf16Pair is a model of 32 MB in BF16, in 8 tensors, and the next version of it, in which
// a share of the elements is off by one in the last place.
func bf16Pair(b *testing.B, share float64) (from, to memory) {
	rng := rand.New(rand.NewPCG(5, 5))
	const tensors, elements = 8, 2 << 20
	var entries []Entry
	var old, made []byte
	for i := range tensors {
		entries = append(entries, Entry{Name: fmt.Sprintf("layer%d.weight", i), DType: BF16, Shape: []int{1024, elements / 1024}})
		for range elements {
			v := bf16Bits(float32(rng.NormFloat64() * 0.02))
			old = append(old, byte(v), byte(v>>8))
			if rng.Float64() < share {
				v ^= 1
			}
			made = append(made, byte(v), byte(v>>8))
		}
	}
	return memory{ModelName: tensorFile(b, old, entries...)}, memory{ModelName: tensorFile(b, made, entries...)}
}

// BenchmarkDelta makes and applies deltas of a model in which 1 % of the elements changed.
// ratio is the delta's size by the model's.
func BenchmarkDelta(b *testing.B) {
	for _, share := range []float64{0.001, 0.01, 0.1} {
		from, to := bf16Pair(b, share)
		for _, encoding := range []Encoding{Overwrite, XOR} {
			content, change := makeTestDelta(b, from, to, encoding)
			b.Run(fmt.Sprintf("make/%s/%v", encoding, share), func(b *testing.B) {
				b.SetBytes(change.Bytes)
				for b.Loop() {
					makeTestDelta(b, from, to, encoding)
				}
				b.ReportMetric(float64(change.DeltaBytes)/float64(change.Bytes), "ratio")
			})
			b.Run(fmt.Sprintf("apply/%s/%v", encoding, share), func(b *testing.B) {
				b.SetBytes(change.Bytes)
				for b.Loop() {
					d, err := ParseDelta(bytes.NewReader(content), int64(len(content)))
					if err == nil {
						err = d.Apply(b.Context(), from, func(string) (io.WriteCloser, error) { return nopWriteCloser{io.Discard}, nil })
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// BenchmarkAdamStep takes BF16 copies of float32 weights through Adam steps and says how
// much of them a step changes, by learning rate.
func BenchmarkAdamStep(b *testing.B) {
	for _, rate := range []float64{1e-6, 1e-5, 1e-3} {
		b.Run(fmt.Sprintf("rate=%v", rate), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(9, 9))
			const elements = 1 << 20
			master, first, second := make([]float64, elements), make([]float64, elements), make([]float64, elements)
			for i := range master {
				master[i] = rng.NormFloat64() * 0.02
			}
			var old, made []byte
			step := func(n int) []byte {
				out := make([]byte, 0, 2*elements)
				for i := range master {
					g := rng.NormFloat64()
					first[i], second[i] = 0.9*first[i]+0.1*g, 0.999*second[i]+0.001*g*g
					m, v := first[i]/(1-math.Pow(0.9, float64(n))), second[i]/(1-math.Pow(0.999, float64(n)))
					master[i] -= rate * m / (math.Sqrt(v) + 1e-8)
					bits := bf16Bits(float32(master[i]))
					out = append(out, byte(bits), byte(bits>>8))
				}
				return out
			}
			for n := range 20 {
				old, made = made, step(n+1)
			}
			e := Entry{Name: "a", DType: BF16, Shape: []int{elements}}
			from, to := memory{ModelName: tensorFile(b, old, e)}, memory{ModelName: tensorFile(b, made, e)}
			var change Change
			for b.Loop() {
				_, change = makeTestDelta(b, from, to, Overwrite)
			}
			b.ReportMetric(100*float64(change.ElementsChanged)/float64(change.Elements), "%changed")
			b.ReportMetric(float64(change.DeltaBytes)/float64(change.Bytes), "ratio")
		})
	}
}

// BenchmarkDraft publishes a file of 64 MB, hashed and scanned, beside what hashing alone
// takes.
func BenchmarkDraft(b *testing.B) {
	content := smallModel(b, make([]float32, 16<<20)...)
	s := openTest(b, b.TempDir(), Options{})
	b.Run("publish", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		v := s.Newest()
		for b.Loop() {
			v++
			err := publishWith(s, Description{Version: v, Kind: KindFull}, func(d *Draft) error { return d.Add(b.Context(), ModelName, bytes.NewReader(content)) })
			if err == nil {
				err = s.Prune(v)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			sumText(content)
		}
	})
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if floatFormats[F32].firstBroken(content[len(content)-64<<20:]) >= 0 {
				b.Fatal("broken")
			}
		}
	})
}
