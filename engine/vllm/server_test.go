package vllm

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/live"
)

// real returns the server that the environment names, what it can, and the two directories of
// weights of which it serves the first. Every test leaves it serving that.
func real(t *testing.T) (s *upstream.Server, caps *upstream.Capabilities, weights [2]string) {
	t.Helper()
	address := os.Getenv("HEADWAY_TEST_VLLM")
	if address == "" {
		t.Skip("HEADWAY_TEST_VLLM is not set: the address of a vLLM started as `make test-engines` does")
	}
	s, err := upstream.NewServer(upstream.ServerOptions{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	found, err := New().Probe(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(os.Getenv("HEADWAY_TEST_WEIGHTS"), ":")
	return s, &found, [2]string{first, second}
}

// limited is the context of a real test: a hang fails it.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// stream is a response on its way.
type stream struct {
	id     string
	body   interface{ Close() error }
	events *upstream.EventReader
	dec    upstream.Decoder
	delta  upstream.Delta
	cancel context.CancelFunc
}

// request is one that the tests use: deterministic but for its id.
func request(tokens int) upstream.Request {
	return upstream.Request{ID: "headway-test-" + time.Now().Format("150405.000000000") + "|", Session: "s", MaxTokens: tokens,
		Prompt: []int32{3, 20, 21, 4, 9, 9, 9, 10}, Sampling: live.Sampling{Temperature: 1}}
}

func open(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r upstream.Request) *stream {
	t.Helper()
	call, err := New().Generate(r, caps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	body, err := s.Open(ctx, http.MethodPost, call)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	st := &stream{id: r.ID, body: body, events: upstream.NewEventReader(body), dec: New().Decoder(r, caps), cancel: cancel}
	t.Cleanup(func() { cancel(); _ = body.Close() })
	return st
}

// until reads events until there are so many tokens, or the end, and reports whether it has ended.
func (st *stream) until(t *testing.T, tokens int) (ended bool) {
	t.Helper()
	for len(st.delta.Tokens) < tokens {
		data, err := st.events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if string(data) == "[DONE]" {
			return true
		}
		if err := st.dec.Event(data, &st.delta); err != nil {
			t.Fatal(err)
		}
	}
	return false
}

// all is more tokens than any response has.
const all = 1 << 30

func TestProbeOfARealServer(t *testing.T) {
	_, caps, _ := real(t)
	t.Logf("%+v", *caps)
	t.Logf("%+v", of(caps))
	if !caps.TokenIDs || !caps.Logprobs || caps.Context != 256 || caps.Vocabulary == 0 || !caps.Score || !caps.Template {
		t.Errorf("%+v", caps)
	}
}
