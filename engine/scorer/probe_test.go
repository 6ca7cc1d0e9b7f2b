package scorer

import (
	"net/http"
	"strings"
	"testing"
)

// A server says before a run what it could not do in it, in words that name the flag.
func TestProbe(t *testing.T) {
	refuse := func(status int, text string, when func(call int) bool) func(int, http.ResponseWriter, *http.Request, map[string]any) map[string]any {
		return func(call int, w http.ResponseWriter, _ *http.Request, a map[string]any) map[string]any {
			if !when(call) {
				return a
			}
			http.Error(w, text, status)
			return nil
		}
	}
	always, second := func(int) bool { return true }, func(call int) bool { return call == 2 }
	for _, c := range []struct {
		name, kind  string
		spoil       func(int, http.ResponseWriter, *http.Request, map[string]any) map[string]any
		err, narrow string
		silent      bool
	}{
		{"sound", "vllm", nil, "", "", false},
		{"sound", "sglang", nil, "", "", false},
		{"few likely tokens", "vllm", refuse(400, "Requested prompt logprobs of 3, which is greater than max allowed: 2", always), "--max-logprobs 3", "", false},
		{"a key", "vllm", refuse(401, "Unauthorized", always), "answers 401", "", false},
		{"loading", "sglang", refuse(503, "loading", always), "answers 503", "", true},
		{"a narrow vocabulary", "vllm", refuse(400, "Token id 19 is out of vocabulary", second), "", "out of vocabulary", false},
		{"logits", "vllm", func(_ int, _ http.ResponseWriter, _ *http.Request, a map[string]any) map[string]any {
			for _, e := range at(a, "choices", 0, "prompt_logprobs", 2).(map[string]any) {
				e.(map[string]any)["logprob"] = 7.
			}
			return a
		}, "--logprobs-mode", "", false},
	} {
		s := &server{kind: c.kind, model: model{"x", 20}, spoil: c.spoil}
		f := pool(t, Options{Servers: []Server{{Name: "a", Kind: c.kind, Channel: Teacher, Slots: 1, Home: s.start(t)}}}).Probe(t.Context())[0]
		says := func(err error, want string) bool {
			return (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want))
		}
		if !says(f.Err, c.err) || !says(f.Narrow, c.narrow) || f.Silent != c.silent || c.err == "" && f.Context != 64 {
			t.Errorf("%s of %s: %+v", c.name, c.kind, f)
		}
	}
}
