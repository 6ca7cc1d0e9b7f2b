package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

var testPolicy = Policy{Vocabulary: 64, EOS: 4, Length: 24}

// weightsOf names the weights of a version as a store of weights does.
func weightsOf(v loop.Version) string { return fmt.Sprintf("v%d", v) }

// response is what a stream of either form says.
func response(t *testing.T, url, path, body string) (g port.Generation, spans []span, finish string) {
	t.Helper()
	res, err := http.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := events(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || data[len(data)-1] != "[DONE]" {
		t.Fatalf("answered %d, %q, %v", res.StatusCode, data, err)
	}
	for _, text := range data[:len(data)-1] {
		var event struct {
			Choices []struct {
				Tokens   []int32 `json:"token_ids"`
				Finish   string  `json:"finish_reason"`
				Spans    []span  `json:"weight_versions"`
				Logprobs struct {
					Token   []float32 `json:"token_logprobs"`
					Content []struct {
						Logprob float32 `json:"logprob"`
					} `json:"content"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(text), &event); err != nil {
			t.Fatal(err)
		}
		for _, c := range event.Choices {
			g.Tokens, g.Logprobs = append(g.Tokens, c.Tokens...), append(g.Logprobs, c.Logprobs.Token...)
			for _, entry := range c.Logprobs.Content {
				g.Logprobs = append(g.Logprobs, entry.Logprob)
			}
			spans, finish = append(spans, c.Spans...), finish+c.Finish
		}
	}
	g.Versions = make([]loop.Version, len(g.Tokens))
	g.Truncated = finish == "length"
	return g, spans, finish
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// What the server samples is what the policy makes of it, under the weights it was told to load.
func TestPolicyServer(t *testing.T) {
	s := NewPolicyServer(PolicyOptions{Policy: testPolicy, Context: 128, Weights: "v0", Spans: true})
	defer s.Close()
	stopped, cut := 0, 0
	for round := range 40 {
		version := loop.Version(round / 20)
		if round == 20 {
			post(t, s.URL()+"/pause?mode=keep", "")
			post(t, s.URL()+"/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"/somewhere/v1"}}`)
			post(t, s.URL()+"/update_weight_version", `{"new_version":"one"}`)
			if !s.isPaused() || s.Label() != "one" {
				t.Fatal("not paused, or not updated")
			}
			post(t, s.URL()+"/resume", "")
		}
		prompt := []int32{7, int32(round), 9}
		path, body := "/v1/completions", fmt.Sprintf(`{"prompt":[7,%d,9],"max_tokens":20,"logprobs":0,"return_token_ids":true,"stream":true,"request_id":"a"}`, round)
		if round%2 == 1 {
			path, body = "/inference/v1/generate", fmt.Sprintf(`{"token_ids":[7,%d,9],"sampling_params":{"max_tokens":20,"logprobs":1},"stream":true,"request_id":"a"}`, round)
		}
		g, spans, finish := response(t, s.URL(), path, body)
		for i := range g.Versions {
			g.Versions[i] = version
		}
		if err := testPolicy.Check(prompt, 20, g, weightsOf); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if finish == "stop" {
			stopped++
		} else {
			cut++
		}
		label := map[loop.Version]string{0: "default", 1: "one"}[version]
		if round%2 == 1 && fmt.Sprint(spans) != fmt.Sprintf("[{%s 0 %d}]", label, len(g.Tokens)) {
			t.Errorf("round %d: spans %v of %d tokens", round, spans, len(g.Tokens))
		}
	}
	if stopped == 0 || cut == 0 {
		t.Errorf("%d responses stopped, %d were cut: both are to be tried", stopped, cut)
	}
	if s.Sampled() == 0 || len(s.Updates()) != 1 || s.load() != 0 {
		t.Errorf("sampled %d, updates %v, running %d", s.Sampled(), s.Updates(), s.load())
	}
}

func TestPolicyServerRefuses(t *testing.T) {
	s := NewPolicyServer(PolicyOptions{Policy: testPolicy, Context: 16, Weights: "v0"})
	defer s.Close()
	for body, want := range map[string]string{
		`{"prompt":[1,99],"max_tokens":1}`:  "out of vocabulary",
		`{"prompt":[1,2],"max_tokens":15}`:  "maximum context length",
		`{"prompt":[],"max_tokens":1}`:      "empty",
		`{"prompt":"text","max_tokens":1}`:  "not understood",
		`{"prompt":[1,2],"max_tokens":"x"}`: "not understood",
	} {
		if status, text := post(t, s.URL()+"/v1/completions", body); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s is answered %d %s, want 400 and %q", body, status, text, want)
		}
	}
	if status, _ := post(t, s.URL()+"/inference/v1/generate", `{}`); status != http.StatusNotFound {
		t.Errorf("a server without spans answers %d to /inference/v1/generate", status)
	}
}

// long is a stream, under the id "long", that lasts until it is ended.
func long(t *testing.T, s *PolicyServer) *http.Response {
	t.Helper()
	res, err := http.Post(s.URL()+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt":[1],"max_tokens":1000000,"logprobs":0,"return_token_ids":true,"stream":true,"request_id":"long"}`))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A pause holds what is under way, an abort ends it with what there was.
func TestPolicyServerHoldsAndAborts(t *testing.T) {
	s := NewPolicyServer(PolicyOptions{Policy: Policy{Vocabulary: 64, EOS: 4, Length: 1 << 40}, Context: 1 << 20, Weights: "v0"})
	defer s.Close()
	res := long(t, s)
	defer res.Body.Close()
	drained := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(res.Body)
		drained <- text
	}()
	s.pause()
	before := s.Sampled()
	s.pause() // again: it may be repeated, and nothing was sampled between the two
	if after := s.Sampled(); after != before {
		t.Errorf("%d tokens were sampled during a pause", after-before)
	}
	if _, text := post(t, s.URL()+"/abort_requests", `{"request_ids":["cmpl-long-0"]}`); !strings.Contains(text, `"aborted":1`) {
		t.Fatalf("abort: %s", text)
	}
	if text := <-drained; !bytes.Contains(text, []byte(`"abort"`)) || bytes.Contains(text, []byte("[DONE]")) {
		t.Errorf("aborted: %.300s", text)
	}
}

// The checker sees what it is there to see.
func TestCheck(t *testing.T) {
	prompt := []int32{1, 2, 3}
	make := func(n int) (g port.Generation) {
		h := history(0).add(prompt...)
		for i := range n {
			v := loop.Version(i / 3)
			token, logprob := Policy{Vocabulary: 64, EOS: 4, Length: 1 << 40}.next(weightsOf(v), h)
			g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, token), append(g.Logprobs, logprob), append(g.Versions, v)
			h = h.add(token)
		}
		g.Truncated = true
		return g
	}
	policy := Policy{Vocabulary: 64, EOS: 4, Length: 1 << 40}
	if err := policy.Check(prompt, 8, make(8), weightsOf); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*port.Generation){
		"token twice":    func(g *port.Generation) { g.Tokens[5] = g.Tokens[4] },
		"other log-prob": func(g *port.Generation) { g.Logprobs[5] -= 0.001 },
		"other version":  func(g *port.Generation) { g.Versions[5] = 0 },
		"left out": func(g *port.Generation) {
			g.Tokens = append(g.Tokens[:4], g.Tokens[5:]...)
			g.Logprobs = g.Logprobs[:7]
			g.Versions = g.Versions[:7]
		},
		"cut unsaid":      func(g *port.Generation) { g.Truncated = false },
		"log-prob absent": func(g *port.Generation) { g.Logprobs = g.Logprobs[:7] },
	} {
		g := make(8)
		spoil(&g)
		if policy.Check(prompt, 8, g, weightsOf) == nil {
			t.Errorf("%s: not seen", name)
		}
	}
	if policy.Check(prompt, 7, make(8), weightsOf) == nil {
		t.Error("more tokens than asked for: not seen")
	}
}
