package enginetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// answered is an exchange in which a server in the form of vLLM samples tokens from a prompt, one a
// millisecond from at on; spans may be nil.
func answered(t *testing.T, prompt, tokens []int32, at time.Duration, spans []span) Exchange {
	t.Helper()
	body, err := json.Marshal(map[string]any{"token_ids": prompt})
	if err != nil {
		t.Fatal(err)
	}
	e := Exchange{Method: "POST", Path: "/inference/v1/generate", Body: body, At: at, Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, End: EndRegular}
	for i, token := range tokens {
		choice := map[string]any{"token_ids": []int32{token}, "logprobs": map[string]any{"content": []any{map[string]any{"logprob": -0.5 - float32(i)}}}}
		if i == len(tokens)-1 {
			choice["weight_versions"] = spans
		}
		event, err := json.Marshal(map[string]any{"choices": []any{choice}})
		if err != nil {
			t.Fatal(err)
		}
		e.Pieces = append(e.Pieces, Piece{After: time.Duration(i) * time.Millisecond, Data: fmt.Appendf(nil, "data: %s\n\n", event)})
	}
	return e
}

// The comparison finds every way in which a record can differ from what the server sent.
func TestCompareFinds(t *testing.T) {
	prompt := []int32{8, 8, 8, 8, 20}
	// Two calls: the first is cut after three tokens, the second goes on; a switch lies between them.
	calls := func(spans bool) []Exchange {
		var first, second []span
		if spans {
			first, second = []span{{"v0-n", 0, 3}}, []span{{"v1-n", 0, 2}}
		}
		return []Exchange{
			answered(t, prompt, []int32{30, 31, 32}, 10*time.Millisecond, first),
			answered(t, append(slices.Clone(prompt), 30, 31, 32), []int32{33, 4}, 50*time.Millisecond, second),
		}
	}
	record := func() *outcome {
		return &outcome{req: port.GenerateRequest{Prompt: prompt, MaxTokens: 9}, got: port.Generation{
			Tokens: []int32{30, 31, 32, 33, 4}, Logprobs: []float32{-0.5, -1.5, -2.5, -0.5, -1.5}, Versions: []loop.Version{0, 0, 0, 1, 1}}}
	}
	check := func(o *outcome, spans bool) error {
		c := &conformance{version: 1, report: &Report{}}
		from := &subject{barriers: []time.Duration{0, 30 * time.Millisecond}}
		var answers []heard
		for _, e := range calls(spans) {
			raw, err := readRaw(e)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, heard{raw, from, e.At})
		}
		return c.compareOne(o, answers)
	}
	if err := check(record(), true); err != nil {
		t.Fatalf("with spans: %v", err)
	}
	derived := record()
	derived.got.Derived = true
	if err := check(derived, false); err != nil {
		t.Fatalf("without spans: %v", err)
	}
	for want, spoil := range map[string]func(g *port.Generation){
		"recorded as 7":     func(g *port.Generation) { g.Tokens[1] = 7 },
		"recorded as 31 at": func(g *port.Generation) { g.Logprobs[1] = -1.5000002 },
		"of version 1":      func(g *port.Generation) { g.Versions[1] = 1 },
		"of version 0":      func(g *port.Generation) { g.Versions[4] = 0 },
		"recorded as 32":    func(g *port.Generation) { g.Tokens = slices.Insert(g.Tokens, 3, 32) },
		"the server sent 5": func(g *port.Generation) {
			g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, 9), append(g.Logprobs, -1), append(g.Versions, 1)
		},
		"not marked": nil,
	} {
		o := record()
		if spoil != nil {
			spoil(&o.got)
		}
		if err := check(o, spoil != nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, want something with %q", err, want)
		}
	}
}

// Every form of a server's answers is read to the same response.
func TestReadRaw(t *testing.T) {
	forms := map[string][]string{
		"completions": {`{"choices":[{"token_ids":[5],"logprobs":{"token_logprobs":[-0.25]}}]}`, `{"choices":[{"token_ids":[6,7],"logprobs":{"token_logprobs":[-0.5,-1]}}]}`, `{"choices":[],"usage":{}}`},
		"generate":    {`{"choices":[{"token_ids":[5],"logprobs":{"content":[{"logprob":-0.25}]}}]}`, `{"choices":[{"token_ids":[6,7],"logprobs":{"content":[{"logprob":-0.5},{"logprob":-1}]},"weight_versions":[{"version":"v3","start":0,"end":3}]}]}`},
		"sglang, cumulative": {`{"output_ids":[5],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.25,5,null]]}}`,
			`{"output_ids":[5,6,7],"meta_info":{"completion_tokens":3,"output_token_logprobs":[[-0.25,5,null],[-0.5,6,null],[-1,7,null]]}}`},
		"sglang, incremental": {`{"output_ids":[5],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.25,5,null]]}}`,
			`{"output_ids":[6,7],"meta_info":{"completion_tokens":3,"output_token_logprobs":[[-0.5,6,null],[-1,7,null]],"weight_versions":[{"version":"v3","start":2,"end":5}]}}`},
		"llama-server": {`{"tokens":[5],"completion_probabilities":[{"id":5,"logprob":-0.25}]}`, `{"tokens":[6,7],"completion_probabilities":[{"id":6,"logprob":-0.5},{"id":7,"logprob":-1}]}`, `{"tokens":[],"stop":true}`},
	}
	for name, events := range forms {
		e := Exchange{Body: []byte(`{"prompt":[1,2]}`), At: time.Second}
		for i, event := range events {
			e.Pieces = append(e.Pieces, Piece{After: time.Duration(i) * time.Second, Data: []byte("data: " + event + "\n\n")})
		}
		e.Pieces = append(e.Pieces, Piece{Data: []byte(`data: {"choices":[{"token_ids":[9`)})
		raw, err := readRaw(e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(raw.tokens, []int32{5, 6, 7}) || !slices.Equal(raw.logprobs, []float32{-0.25, -0.5, -1}) || raw.arrived[0] != time.Second || raw.arrived[2] != 2*time.Second ||
			len(raw.spans) > 0 && raw.spans[0] != (rawSpan{"v3", 0, 3}) {
			t.Errorf("%s: read %+v", name, raw)
		}
	}
}

// A switch takes place when the server is asked to go on, where it was paused, and else when the update has ended.
func TestBarrier(t *testing.T) {
	ms := time.Millisecond
	call := func(path string, at, took time.Duration) Exchange {
		return Exchange{Method: "POST", Path: path, At: at, Status: 200, Pieces: []Piece{{After: took}}}
	}
	of := interval{10 * ms, 100 * ms}
	for name, c := range map[string]struct {
		calls []Exchange
		want  time.Duration
	}{
		"paused":            {[]Exchange{call("/pause", 12*ms, ms), call("/update_weights_from_disk", 20*ms, 15*ms), call("/continue_generation", 70*ms, ms)}, 70 * ms},
		"resumed twice":     {[]Exchange{call("/continue_generation", 11*ms, ms), call("/update_weights", 20*ms, 15*ms), call("/resume", 80*ms, ms), call("/resume", 60*ms, ms)}, 60 * ms},
		"not paused":        {[]Exchange{call("/update_weights_from_disk", 20*ms, 15*ms), call("/continue_generation", 170*ms, ms)}, 35 * ms},
		"in several pieces": {[]Exchange{call("/update_weights_from_distributed", 20*ms, 15*ms), call("/update_weights_from_distributed", 40*ms, 5*ms), call("/resume", 50*ms, ms)}, 50 * ms},
		"started again":     {[]Exchange{call("/health", 20*ms, ms)}, 100 * ms},
	} {
		if got := barrier(of, c.calls); got != c.want {
			t.Errorf("%s: at %v, want %v", name, got, c.want)
		}
	}
}
