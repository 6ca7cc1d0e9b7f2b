package rows

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/loop/channel"
)

// The shape of Qwen3-235B, and a rollout of 32k tokens.
const (
	benchLayers  = 94
	benchTopK    = 8
	benchExperts = 128
	benchTokens  = 32 << 10
)

func distinctRows(rows, layers, topK, experts int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 0, rows*layers*topK)
	for range rows * layers {
		first, step := r.IntN(experts), 1+2*r.IntN(experts/2)
		for i := range topK { // an odd step meets every one of a power of two
			data = append(data, byte((first+i*step)%experts))
		}
	}
	return data
}

// npy is a file of bytes of three dimensions.
func npy(data []byte, dtype string, shape ...int) []byte {
	words := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d, %d), }", dtype, shape[0], shape[1], shape[2])
	for (10+len(words)+1)%64 != 0 {
		words += " "
	}
	words += "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(words)), byte(len(words)>>8))
	return append(append(file, words...), data...)
}

// BenchmarkRollout reads the last event of a long rollout over a connection: by a relay that reads the bytes and sums
// them up, and by a Reader that takes the rows out, checks them and sums them up.
func BenchmarkRollout(b *testing.B) {
	data := distinctRows(benchTokens-1, benchLayers, benchTopK, benchExperts)
	wide := make([]byte, 0, 4*len(data))
	for _, id := range data {
		wide = append(wide, id, 0, 0, 0)
	}
	form := Form{Header: channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Row: []int{benchLayers, benchTopK}, Align: channel.Passes}, Experts: benchExperts}
	for _, c := range []struct {
		name string
		wire Wire
		file []byte
	}{{"numpy", Numpy, npy(data, "|u1", benchTokens-1, benchLayers, benchTopK)}, {"int32", Int32, wide}} {
		event := []byte(`data: {"choices":[{"routed_experts":"` + base64.StdEncoding.EncodeToString(c.file) + `"}]}` + "\n\n")
		b.Run(c.name+"/relay", func(b *testing.B) {
			benchConnection(b, event, func(r io.Reader) error {
				sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
				_, err := io.Copy(sum, r)
				return err
			})
		})
		b.Run(c.name+"/rows", func(b *testing.B) {
			form := form
			form.Wire = c.wire
			benchConnection(b, event, func(r io.Reader) error {
				tokens := func() int { return benchTokens }
				f := NewField(FieldOptions{Form: &form, Key: "routed_experts", Likely: tokens, Most: tokens})
				defer f.Release()
				reader := NewReader(b.Context(), r, []*Field{f})
				defer reader.Close()
				if _, err := io.Copy(io.Discard, reader); err != nil {
					return err
				}
				got, rows, why := f.Rows()
				if why == "" {
					why = form.Judge(got)
				}
				if rows != benchTokens-1 || why != "" {
					return fmt.Errorf("%d rows, %q", rows, why)
				}
				crc32.Checksum(got, crc32.MakeTable(crc32.Castagnoli))
				return nil
			})
		})
	}
}

// benchConnection sends an event over a connection of its own, and has it read, again and again.
func benchConnection(b *testing.B, event []byte, read func(io.Reader) error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(event)
			_ = c.Close()
		}
	}()
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		if err := read(c); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
}

// processorTime is what this process has had, in nanoseconds, the sender's part included.
func processorTime(b *testing.B) int64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return use.Utime.Nano() + use.Stime.Nano()
}
