package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// discarding is a client that costs nothing, and says when an event was written.
type discarding struct {
	header  http.Header
	written chan struct{}
	events  int
}

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) WriteHeader(int)             {}
func (d *discarding) Writable() bool              { return true }
func (d *discarding) Write(p []byte) (int, error) { return len(p), nil }

func (d *discarding) Flush() {
	if d.events++; d.events > 1 { // the first is the role's, and comes with the first token
		select {
		case d.written <- struct{}{}:
		default: // the last two are nobody's
		}
	}
}

// counting samples as many tokens as a benchmark asks for, each once the one before was written, so
// that no two come together.
type counting struct {
	n       int
	written chan struct{}
}

func (c *counting) Ended(string) (<-chan struct{}, error) { return nil, nil }

func (c *counting) Hold(context.Context, string) func() { return func() {} }

func (c *counting) Lasting(_ context.Context, _ string, err error) error { return err }

func (c *counting) Turn(_ context.Context, _ string, _ protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	token, logprob := []int32{4711}, []float32{-0.4711}
	for range c.n {
		onTokens(protocol.TurnDelta{Tokens: token, Logprobs: logprob, Text: " word"})
		<-c.written
	}
	return protocol.TurnReply{Tokens: make([]int32, c.n), Logprobs: make([]float32, c.n), Versions: make([]loop.Version, c.n), Finish: "stop"}, nil
}

// BenchmarkEvent is what one event costs in the gateway: from the turn to the connection's Write.
func BenchmarkEvent(b *testing.B) {
	for name, more := range map[string]string{
		"text": ``, "tools": `,"tools":[{"type":"function","function":{"name":"look"}}]`, "tokens": `,"return_token_ids":true,"logprobs":true`,
	} {
		b.Run(name, func(b *testing.B) {
			written := make(chan struct{}, 1) // buffered: it may be written before the turn waits for it
			g, err := New(Options{Rollouts: &counting{b.N, written}, Templates: &reference{}, Model: "tiny", Calls: calls.ByName("hermes").In(frameWords[true])})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			w := &discarding{header: make(http.Header), written: written}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]`+more+`}`))
			r.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
			b.ReportAllocs()
			b.ResetTimer()
			g.ServeHTTP(w, r)
			if w.events < b.N {
				b.Fatalf("%d events for %d tokens", w.events, b.N)
			}
		})
	}
}

// BenchmarkTurn is what a turn of a chat costs beside its tokens, by how many messages stand before.
func BenchmarkTurn(b *testing.B) {
	for _, turns := range []int{1, 32} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			g, err := New(Options{Rollouts: newPort(always(says("abc"))), Templates: &reference{}, Model: "tiny"})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			chat := strings.Repeat(`{"role":"user","content":"`+strings.Repeat("some words ", 20)+`"},{"role":"assistant","content":"abc"},`, turns)
			body := `{"messages":[` + chat + `{"role":"user","content":"x"}]}`
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
				r.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
				w := httptest.NewRecorder()
				if g.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
