package sglang

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// TestContext: a response has the model's context or the room for keys and values, whichever is less,
// and of either some places stay free.
func TestContext(t *testing.T) {
	for info, want := range map[string]int{`{}`: 4096, `{"max_total_num_tokens":70000}`: 4096, `{"max_total_num_tokens":1000}`: 1000} {
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := map[string]string{"/model_info": `{"model_path":"m"}`, "/v1/models": `{"data":[{"id":"m","max_model_len":4096}]}`, "/server_info": info}[r.URL.Path]
			_, _ = w.Write([]byte(answer))
		}))
		s, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
		if err != nil {
			t.Fatal(err)
		}
		p := &prober{ctx: t.Context(), s: s, caps: &upstream.Capabilities{}}
		for _, step := range []func() error{p.model, p.server} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if p.caps.Context != want || p.caps.Spare != spareTokens {
			t.Errorf("%s: a context of %d of which %d stay free, want %d", info, p.caps.Context, p.caps.Spare, want)
		}
		s.Close()
		front.Close()
	}
}

// TestAGuestResumesNothing: somebody else may have paused the server, for a switch of weights.
func TestAGuestResumesNothing(t *testing.T) {
	for _, guest := range []bool{false, true} {
		var resumed atomic.Bool
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/continue_generation" {
				resumed.Store(true)
			}
			_, _ = w.Write([]byte("{}"))
		}))
		s, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
		if err != nil {
			t.Fatal(err)
		}
		s.Guest = guest
		p := &prober{ctx: t.Context(), s: s, caps: &upstream.Capabilities{Paths: map[string]bool{"/pause_generation": true, "/continue_generation": true}}}
		if err := p.controls(); err != nil || !p.caps.Pause || resumed.Load() == guest {
			t.Errorf("a guest %v: resumed %v, can pause %v, %v", guest, resumed.Load(), p.caps.Pause, err)
		}
		s.Close()
		front.Close()
	}
}
