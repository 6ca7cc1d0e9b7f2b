package vllm

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
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
		Prompt: []int32{3, 20, 21, 4, 9, 9, 9, 10}, Sampling: port.Sampling{Temperature: 1}}
}

func open(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r upstream.Request) *stream {
	t.Helper()
	return send(t, s, caps, r, func(body []byte) []byte { return body })
}

// openLong is open for a response that reaches its greatest length: tests that need it to be under
// way have it go on after an end of sequence.
func openLong(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r upstream.Request) *stream {
	t.Helper()
	return send(t, s, caps, r, func(body []byte) []byte {
		return bytes.Replace(body, []byte(`"n":1`), []byte(`"n":1,"ignore_eos":true`), 1)
	})
}

func send(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, r upstream.Request, change func([]byte) []byte) *stream {
	t.Helper()
	call, err := New().Generate(r, caps)
	if err != nil {
		t.Fatal(err)
	}
	call.Body = change(call.Body)
	ctx, cancel := context.WithCancel(limited(t))
	body, err := s.Open(ctx, http.MethodPost, call)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	st := &stream{id: r.ID, body: body, events: upstream.NewEventReader(body, &r), dec: New().Decoder(r, caps), cancel: cancel}
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

// bothWays runs a test on each way that the server has.
func bothWays(t *testing.T, run func(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, weights [2]string)) {
	s, caps, weights := real(t)
	if of(caps).generate {
		t.Run("generate", func(t *testing.T) { run(t, s, caps, weights) })
		tokens := *caps
		tokens.Private = &learnt{generate: true}
		t.Run("generate tokens alone", func(t *testing.T) { run(t, s, &tokens, weights) })
	}
	completions := *caps
	completions.Private = &learnt{}
	t.Run("completions", func(t *testing.T) { run(t, s, &completions, weights) })
}

func TestLogprobsAreTheModels(t *testing.T) {
	bothWays(t, func(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, weights [2]string) {
		r := request(100)
		r.Salt = r.ID
		st := open(t, s, caps, r)
		st.until(t, all)
		d := st.delta
		if len(d.Tokens) == 0 || len(d.Tokens) != len(d.Logprobs) || !plausible(d.Logprobs) || d.Finish != upstream.FinishLength && d.Finish != upstream.FinishStop {
			t.Fatalf("%+v", d)
		}
		if texts := !of(caps).generate || of(caps).text; texts != (d.Text != "") && (len(d.Tokens) > 3 || !texts) { // a few may all be special
			t.Errorf("the text of %d tokens is %q", len(d.Tokens), d.Text)
		}
		sequence := append(append([]int32(nil), r.Prompt...), d.Tokens...)
		scores, err := New().Score(limited(t), s, sequence, caps)
		if err != nil {
			t.Fatal(err)
		}
		scored := make([]float64, len(d.Tokens))
		for i := range scored {
			scored[i] = float64(scores[len(r.Prompt)-1+i])
		}
		far := farthest(d.Logprobs, scored)
		t.Logf("%d tokens, at most %.2g from the server's scores", len(d.Tokens), far)
		if far > precision {
			t.Errorf("log-probs are %g from the server's own scores of the same tokens", far)
		}
		if weights[0] != "" {
			if far := farthest(d.Logprobs, newLlama(t, weights[0]).score(sequence)[len(r.Prompt)-1:]); far > precision {
				t.Errorf("log-probs are %g from those that are computed here", far)
			}
		}
	})
}

func TestAbortEndsAResponse(t *testing.T) {
	bothWays(t, func(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, _ [2]string) {
		if err := New().Abort(limited(t), s, "nobody's", caps); err != nil {
			t.Fatalf("of an id that nobody has: %v", err)
		}
		r, other := request(240), request(240)
		other.ID += "x" // begins with the first one's
		st, st2 := openLong(t, s, caps, r), openLong(t, s, caps, other)
		st.until(t, 5)
		st2.until(t, 5)
		if err := New().Abort(limited(t), s, r.ID, caps); err != nil {
			t.Fatal(err)
		}
		st.until(t, all)
		if paths := caps.Paths; st.delta.Finish == upstream.FinishLength && paths != nil && !paths["/abort_requests"] && !paths["/inference/v1/abort_requests"] {
			t.Skip("the server has no abort by id: neither VLLM_SERVER_DEV_MODE=1 nor --enable-scale-out")
		}
		if st.delta.Finish != upstream.FinishAbort {
			t.Errorf("it ends by %q", st.delta.Finish)
		}
		if spans := st.delta.Spans; of(caps).generate && (len(spans) == 0 || spans[len(spans)-1].End != len(st.delta.Tokens)) {
			t.Errorf("%d tokens have the spans %+v", len(st.delta.Tokens), spans)
		}
		st2.until(t, all)
		if st2.delta.Finish == upstream.FinishAbort {
			t.Error("the abort has ended another response, whose id begins with the same letters")
		}
	})
}

func TestEndOfAConnectionEndsItsResponse(t *testing.T) {
	s, caps, _ := real(t)
	ctx := limited(t)
	if load, err := loadOf(ctx, s); err != nil || load.Running < 0 {
		t.Skip("the server does not say how busy it is:", err)
	}
	needs(t, caps.Pause, caps)
	st := openLong(t, s, caps, request(240))
	st.until(t, 3)
	if err := New().Pause(ctx, s, upstream.Update{}, caps); err != nil { // else it may end by itself
		t.Fatal(err)
	}
	defer func() { _ = New().Resume(context.WithoutCancel(ctx), s, caps) }()
	st.cancel()
	for {
		load, err := loadOf(ctx, s)
		if err != nil {
			t.Fatal("it goes on without its connection:", err)
		}
		if load.Running == 0 && load.Waiting == 0 {
			return
		}
	}
}

func TestRefusalsOfARealServer(t *testing.T) {
	bothWays(t, func(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, _ [2]string) {
		for name, change := range map[string]func(*upstream.Request){
			"a prompt over the context":    func(r *upstream.Request) { r.Prompt = make([]int32, caps.Context+1) },
			"an id outside the vocabulary": func(r *upstream.Request) { r.Prompt = []int32{3, int32(caps.Vocabulary)} },
			"an id below 0":                func(r *upstream.Request) { r.Prompt = []int32{-1} },
			"a temperature below 0":        func(r *upstream.Request) { r.Sampling.Temperature = -1 },
		} {
			r := request(4)
			change(&r)
			call, err := New().Generate(r, caps)
			if err != nil {
				t.Fatal(err)
			}
			body, err := s.Open(limited(t), http.MethodPost, call)
			if err == nil {
				events, decoder := upstream.NewEventReader(body, &r), New().Decoder(r, caps)
				var data []byte
				if data, err = events.Next(); err == nil {
					err = decoder.Event(data, new(upstream.Delta))
				}
				if err == nil || !errors.Is(err, upstream.ErrRefused) {
					t.Errorf("%s: %v, want a refusal in the stream", name, err)
				}
				_ = body.Close()
			}
			if status := upstream.StatusOf(err); status/100 != 4 {
				t.Errorf("%s: %v, want a status of 4xx", name, err)
			}
		}
	})
}

func TestChatsOfARealServer(t *testing.T) {
	s, caps, _ := real(t)
	needs(t, caps.Template, caps)
	ctx := limited(t)
	messages := []byte(`[{"role":"user","content":"1+2"}]`)
	short, err := New().Render(ctx, s, messages, nil, false, caps)
	if err != nil {
		t.Fatal(err)
	}
	long, err := New().Render(ctx, s, messages, []byte(`[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`), true, caps)
	if err != nil {
		t.Fatal(err)
	}
	if len(short) == 0 || len(long) <= len(short) || !slices.Equal(long[:len(short)], short) {
		t.Errorf("with the beginning of an answer %v does not go on from %v", long, short)
	}
	encoded, err := New().Encode(ctx, s, "1+2", caps)
	if err != nil || len(encoded) != 3 {
		t.Fatalf("1+2 is %v, %v", encoded, err)
	}
	for _, derender := range []bool{of(caps).derender, false} {
		c := *caps
		c.Private = &learnt{generate: of(caps).generate, derender: derender}
		for range 2 { // what is special is remembered
			text, err := New().Decode(ctx, s, append([]int32{short[0]}, encoded...), &c)
			if err != nil || text != "1+2" {
				t.Errorf("derender %v: %q, %v: want 1+2 without the special token before it", derender, text, err)
			}
		}
	}
	if text, err := New().Decode(ctx, s, nil, caps); text != "" || err != nil {
		t.Errorf("nothing is %q, %v", text, err)
	}
}
