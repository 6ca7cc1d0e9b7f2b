package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// Trap 14: every sampler is in a request, since those left out are 0.8, 40, 0.95 and 0.05, or
// whatever the server was started with.
func TestEverySamplerIsNamed(t *testing.T) {
	call, err := New(Options{}).Generate(upstream.Request{ID: "a|", Prompt: []int32{1, 2}, MaxTokens: 7, Sampling: port.Sampling{Temperature: 1}}, &upstream.Capabilities{})
	if err != nil || call.Path != "/completion" {
		t.Fatal(call.Path, err)
	}
	var body map[string]any
	if err := json.Unmarshal(call.Body, &body); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"temperature": 1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0,
		"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "mirostat": 0.0, "dynatemp_range": 0.0,
		"adaptive_target": -1.0, "n_predict": 7.0, "n_probs": 1.0, "post_sampling_probs": true, "return_tokens": true, "stream": true, "cache_prompt": true,
		"ignore_eos": false, "backend_sampling": false, "grammar": "", "n_keep": 0.0, "min_keep": 0.0,
	} {
		if got, ok := body[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := fmt.Sprint(body["samplers"]); got != "[temperature top_k top_p min_p]" {
		t.Errorf("samplers are %s", got)
	}
}

// Two calls draw differently, and a call that is made again does not.
func TestSeeds(t *testing.T) {
	seen := map[uint32]string{}
	for g := range 200 {
		for s := range 8 {
			id := fmt.Sprintf("g%d-s%d-a1-1|", g, s)
			seed := seedOf(upstream.Request{ID: id, Prompt: []int32{1}})
			if other := seen[seed]; other != "" || seed == math.MaxUint32 {
				t.Fatalf("%s and %s have the seed %d", id, other, seed)
			}
			seen[seed] = id
		}
	}
	again, longer := upstream.Request{ID: "g0-s0-a1-1|", Prompt: []int32{5}}, upstream.Request{ID: "g0-s0-a1-1|", Prompt: []int32{1, 2}}
	if seen[seedOf(again)] != again.ID || seedOf(longer) == seedOf(again) {
		t.Error("the seed is not by name and place")
	}
}

// Log-probs of the model's own distribution are right at temperature 1 without cuts alone.
func TestUnprocessedLogprobsAreRefused(t *testing.T) {
	caps := &upstream.Capabilities{Logprobs: true}
	for _, c := range []struct {
		how     port.Sampling
		refused bool
	}{
		{port.Sampling{Temperature: 1}, false}, {port.Sampling{Temperature: 1, TopP: 1}, false}, {port.Sampling{}, false},
		{port.Sampling{Temperature: 0.7}, true}, {port.Sampling{Temperature: 1, TopK: 5}, true}, {port.Sampling{Temperature: 1, TopP: 0.9}, true},
	} {
		_, err := New(Options{}).Generate(upstream.Request{ID: "a|", Prompt: []int32{1}, MaxTokens: 1, Sampling: c.how}, caps)
		if (err != nil) != c.refused {
			t.Errorf("%+v: %v, refused should be %v", c.how, err, c.refused)
		}
		processed := &upstream.Capabilities{Logprobs: true, ProcessedLogprobs: true}
		if _, err := New(Options{}).Generate(upstream.Request{ID: "a|", Prompt: []int32{1}, MaxTokens: 1, Sampling: c.how}, processed); err != nil {
			t.Errorf("%+v: %v", c.how, err)
		}
	}
}

// read gives a decoder events.
func read(sampling port.Sampling, caps *upstream.Capabilities, events ...string) (upstream.Delta, error) {
	d := New(Options{}).Decoder(upstream.Request{Sampling: sampling}, caps)
	var delta upstream.Delta
	for _, e := range events {
		if err := d.Event([]byte(e), &delta); err != nil {
			return delta, err
		}
	}
	return delta, nil
}

const (
	first  = `{"content":"a","tokens":[7],"stop":false,"tokens_predicted":1,"completion_probabilities":[{"id":7,"prob":0.5}]}`
	second = `{"content":"b","tokens":[8],"stop":false,"tokens_predicted":2,"probs":[{"id":8,"logprob":-2}]}`
	last   = `{"content":"","tokens":[],"stop":true,"stop_type":"%s","tokens_predicted":2}`
)

// Both names of the array, both forms of a probability, and every reason to stop.
func TestEvents(t *testing.T) {
	for stop, want := range map[string]upstream.Finish{"eos": upstream.FinishStop, "word": upstream.FinishStop, "limit": upstream.FinishLength, "none": upstream.FinishAbort} {
		got, err := read(port.Sampling{}, nil, first, second, fmt.Sprintf(last, stop))
		if err != nil || got.Finish != want || got.Text != "ab" || !slices.Equal(got.Tokens, []int32{7, 8}) ||
			got.Logprobs[0] != float32(math.Log(0.5)) || got.Logprobs[1] != -2 {
			t.Errorf("%s: %+v, %v", stop, got, err)
		}
	}
}

// What cannot be is an error that says so, and nothing of the event counts.
func TestEventsThatCannotBe(t *testing.T) {
	processed := &upstream.Capabilities{Logprobs: true, ProcessedLogprobs: true}
	for _, c := range []struct{ name, event, want string }{
		{"no JSON", `{"content":`, "no event"},
		{"an error", `{"error":{"code":500,"message":"out of slots","type":"server_error"}}`, "500 server_error: out of slots"},
		{"no probability", `{"tokens":[8],"tokens_predicted":2,"completion_probabilities":[{"id":8}]}`, "token 8 no probability"},
		{"probability 0", `{"tokens":[8],"tokens_predicted":2,"completion_probabilities":[{"id":8,"prob":0}]}`, "the probability 0"},
		{"probability 2", `{"tokens":[8],"tokens_predicted":2,"completion_probabilities":[{"id":8,"prob":2}]}`, "the probability 2"},
		{"no probabilities", `{"tokens":[8],"tokens_predicted":2}`, "1 tokens with 0"},
		{"of another token", `{"tokens":[8],"tokens_predicted":2,"completion_probabilities":[{"id":9,"prob":0.5}]}`, "token 8 with the probability of token 9"},
		{"of another distribution", second, "own distribution"},
	} {
		got, err := read(port.Sampling{}, processed, first, c.event)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(got.Tokens) != 1 {
			t.Errorf("%s: %+v, %v, want %q", c.name, got, err, c.want)
		}
	}
	if got, err := read(port.Sampling{}, nil, first, `{"tokens":[9],"tokens_predicted":3,"completion_probabilities":[{"id":9,"prob":0.5}]}`); !errors.Is(err, ErrHiddenToken) || len(got.Tokens) != 1 {
		t.Errorf("a token that is not shown: %+v, %v", got, err)
	}
	if got, err := read(port.Sampling{}, nil, first, fmt.Sprintf(last, "limit")); !errors.Is(err, ErrHiddenToken) || got.Finish != "" {
		t.Errorf("a last token that is not shown: %+v, %v", got, err)
	}
}

// A token that ends a response ends it, whatever follows.
func TestStopToken(t *testing.T) {
	got, err := read(port.Sampling{StopTokens: []int32{7}}, nil, first, second, `nonsense`)
	if err != nil || !slices.Equal(got.Tokens, []int32{7}) || got.Finish != upstream.FinishStop {
		t.Errorf("%+v, %v", got, err)
	}
}

// Servers of other kinds, and one that is loading, are told apart.
func TestProbeOfOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"another server", 404, `{"detail":"Not Found"}`, "is no llama-server"},
		{"loading", 503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, "has not loaded its model yet"},
		{"one with a path of the same name", 200, `{}`, "names no slots"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		_, err := New(Options{}).Probe(t.Context(), reach(t, server.URL))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		server.Close()
	}
}

// An old server is told by what it does: log-probs of the model's own distribution, or no ids at all.
func TestProbeOfAnOldServer(t *testing.T) {
	for _, c := range []struct {
		reply            string
		ids, probs       bool
		fatal, processed bool
	}{
		{`{"tokens":[5],"completion_probabilities":[{"id":5,"logprob":-1}]}`, true, true, false, false},
		{`{"tokens":[5],"completion_probabilities":[{"id":5,"prob":0.1}]}`, true, true, false, true},
		{`{"completion_probabilities":[{"content":"a"}]}`, false, false, true, false},
		{`{"tokens":[5]}`, true, true, false, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/props":
				_, _ = w.Write([]byte(`{"total_slots":2,"default_generation_settings":{"n_ctx":64}}`))
			case "/v1/models":
				_, _ = w.Write([]byte(`{"data":[{"id":"m","meta":{"n_vocab":9}}]}`))
			case "/completion":
				_, _ = w.Write([]byte(c.reply))
			default:
				w.WriteHeader(http.StatusNotImplemented)
			}
		}))
		caps, err := New(Options{}).Probe(t.Context(), reach(t, server.URL))
		server.Close()
		if err != nil {
			t.Errorf("%s: %v", c.reply, err)
			continue
		}
		fatal := slices.ContainsFunc(caps.Missing, func(m upstream.Missing) bool { return m.Fatal })
		if caps.TokenIDs != c.ids || caps.Logprobs != c.probs || caps.ProcessedLogprobs != c.processed || fatal != c.fatal || caps.Template || caps.Vocabulary != 9 {
			t.Errorf("%s: %+v", c.reply, caps)
		}
	}
}

// A token that ends inside a character is never shown, and does not keep the others from telling weights apart.
func TestScoresOfHiddenTokens(t *testing.T) {
	hidden := map[int32]bool{7: true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Bias [][2]float64 `json:"logit_bias"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Bias) != 1 {
			http.Error(w, "no bias", http.StatusBadRequest)
			return
		}
		token := int32(body.Bias[0][0])
		if hidden[token] {
			fmt.Fprintf(w, `{"tokens":[%d],"content":"","stop":true,"stop_type":"limit","tokens_predicted":1}`, token)
			return
		}
		fmt.Fprintf(w, `{"tokens":[%d],"stop":true,"tokens_predicted":1,"completion_probabilities":[{"id":%d,"logprob":-0.5}]}`, token, token)
	}))
	defer server.Close()
	d, s := New(Options{}), reach(t, server.URL)
	got, err := d.Score(t.Context(), s, []int32{5, 6, 7, 8}, nil)
	if want := []float32{-0.5, upstream.LogprobMissing, -0.5}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := d.Score(t.Context(), s, []int32{5, 7, 7}, nil); err == nil {
		t.Errorf("a server that shows nothing: %v", got)
	}
}

func BenchmarkEvent(b *testing.B) {
	d := New(Options{}).Decoder(upstream.Request{}, nil)
	data := []byte(`{"index":0,"content":" volunteers","tokens":[10656],"stop":false,"id_slot":-1,"tokens_predicted":1,"tokens_evaluated":4,"completion_probabilities":[{"id":10656,"token":" volunteers","bytes":[32,118,111,108,117,110,116,101,101,114,115],"prob":0.00027,"top_probs":[{"id":28,"token":",","bytes":[44],"prob":0.15}]}]}`)
	var delta upstream.Delta
	for b.Loop() {
		delta = upstream.Delta{Tokens: delta.Tokens[:0], Logprobs: delta.Logprobs[:0]}
		if err := d.Event(data, &delta); err != nil {
			b.Fatal(err)
		}
	}
}

// A connection that the server closes when it is used again costs nothing: the request goes out once more.
func TestClosedConnections(t *testing.T) {
	var answers atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(1)%2 == 0 {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(`{"tokens":[1,2]}`))
	}))
	defer server.Close()
	s := reach(t, server.URL)
	for range 5 {
		if tokens, err := New(Options{}).Encode(t.Context(), s, "a", nil); err != nil || len(tokens) != 2 {
			t.Fatalf("%v, %v", tokens, err)
		}
	}
}

// A server's words end in logs: an error has their beginning alone.
func TestWordsAreCut(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	err := (&decoder{}).Event([]byte(`{"error":{"code":500,"message":"`+long+`","type":"`+long+`"}}`), &upstream.Delta{})
	if err == nil || len(err.Error()) > 4<<10 {
		t.Error("the words of an error are not cut")
	}
}

// What stands between may answer in the server's place: an answer without tokens is none, or a rollout would begin with nothing.
func TestAnswersWithoutTokens(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"tokens":null}`)) }))
	defer server.Close()
	d, s, caps := New(Options{}), reach(t, server.URL), &upstream.Capabilities{}
	if got, err := d.Render(t.Context(), s, []byte(`[]`), nil, true, caps); !errors.Is(err, upstream.ErrLied) {
		t.Errorf("a chat: %v, %v", got, err)
	}
	if got, err := d.Encode(t.Context(), s, "a", caps); !errors.Is(err, upstream.ErrLied) {
		t.Errorf("a text: %v, %v", got, err)
	}
	if got, err := d.Decode(t.Context(), s, []int32{5}, caps); !errors.Is(err, upstream.ErrLied) {
		t.Errorf("tokens: %q, %v", got, err)
	}
}
