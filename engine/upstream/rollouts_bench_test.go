package upstream

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// The rollouts of the benchmark: 32k tokens in the shape of Qwen3-235B.
const (
	rolloutTokens  = 32 << 10
	rolloutLayers  = 94
	rolloutTopK    = 8
	rolloutExperts = 128
	// rolloutsAtOnce would need 400 MB for their rows alone.
	rolloutsAtOnce = 16
)

// rolloutDialect reads the token, and leaves the rows to the engine.
type rolloutDialect struct{ benchDialect }

func (rolloutDialect) Probe(context.Context, *Server) (Capabilities, error) {
	form := rows.Form{Header: channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Row: []int{rolloutLayers, rolloutTopK}, Align: channel.Passes}, Wire: rows.Numpy, Experts: rolloutExperts}
	return Capabilities{TokenIDs: true, Logprobs: true, Vocabulary: 1000, Channels: []rows.Form{form}}, nil
}

func (rolloutDialect) Decoder(Request, *Capabilities) Decoder { return fakeDecoder{} }

// rolloutStream is the answer to a prompt of all tokens but the last.
func rolloutStream() []byte {
	words := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }\n", rolloutTokens-1, rolloutLayers, rolloutTopK)
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(words)), byte(len(words)>>8))
	file = append(file, words...)
	for i := range (rolloutTokens - 1) * rolloutLayers {
		for k := range rolloutTopK {
			file = append(file, byte((i*7+k*5)%rolloutExperts))
		}
	}
	stream := append([]byte(`data: {"T":[7],"P":[-0.5],"X":"a","F":"length","routed_experts":"`), base64.StdEncoding.EncodeToString(file)...)
	return append(stream, "\"}\n\ndata: [DONE]\n\n"...)
}

// BenchmarkRollouts has many rollouts with rows come at once: by a relay that sums up the bytes of their streams, and
// through the engine, which takes the rows out, checks them and sums these up. It says how much the heap grows.
func BenchmarkRollouts(b *testing.B) {
	stream := rolloutStream()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/sample" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(stream)
		}
	}))
	defer server.Close()
	table := crc32.MakeTable(crc32.Castagnoli)
	b.Run("relay", func(b *testing.B) {
		atOnce(b, len(stream), func(*sampler) error {
			res, err := http.Post(server.URL+"/sample", "", nil)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			sum := crc32.New(table)
			_, err = io.Copy(sum, res.Body)
			return err
		})
	})
	b.Run("engine", func(b *testing.B) {
		s, err := NewServer(ServerOptions{URL: server.URL})
		if err != nil {
			b.Fatal(err)
		}
		s.Channels = []string{channel.RoutedExperts}
		e, err := New(Options{Name: "e", Slots: rolloutsAtOnce, Server: s, Dialect: rolloutDialect{}})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		serveVersion(b, e, 0)
		prompt := make([]int32, rolloutTokens-1)
		atOnce(b, len(stream), func(m *sampler) error {
			kept := 0
			_, err := e.Generate(b.Context(), port.GenerateRequest{Prompt: prompt, MaxTokens: 1, Keep: func(r port.Rows) {
				m.sample()
				crc32.Checksum(r.Data, table)
				kept = r.Count
			}})
			if err == nil && kept != rolloutTokens-1 {
				err = fmt.Errorf("%d rows were kept", kept)
			}
			return err
		})
	})
}

// sampler knows the most that the heap has had.
type sampler struct {
	mu   sync.Mutex
	most uint64
}

func (m *sampler) sample() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = max(m.most, stats.HeapAlloc)
}

// atOnce does something many times beside each other.
func atOnce(b *testing.B, bytes int, do func(*sampler) error) {
	runtime.GC()
	var before, m sampler
	before.sample()
	m.most = before.most
	b.SetBytes(int64(rolloutsAtOnce * bytes))
	for b.Loop() {
		var all sync.WaitGroup
		for range rolloutsAtOnce {
			all.Go(func() {
				if err := do(&m); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(m.most-before.most)/1e6, "grows-MB")
}
