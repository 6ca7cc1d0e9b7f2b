package embedded

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/port"
)

// TestStopTokens: a response ends at the first of the ids that are to end it, as the same response
// does that is resumed, and is cut nowhere else.
func TestStopTokens(t *testing.T) {
	store, _ := policies(t)
	e := start(t, options(store, 1))
	req := long(t, store)
	whole := generate(t, e, req)
	for i, token := range whole.Tokens {
		at := slices.Index(whole.Tokens, token)
		req.Sampling = &port.Sampling{Temperature: 1, StopTokens: []int32{endToken, token}}
		want := port.Generation{Tokens: whole.Tokens[:at+1], Logprobs: whole.Logprobs[:at+1], Versions: whole.Versions[:at+1], TextPartial: true}
		if got := generate(t, e, req); !reflect.DeepEqual(got, want) {
			t.Errorf("with token %d of %v to stop at it is %+v, want %+v", i, whole.Tokens, got, want)
		}
		if _, err := e.Generate(t.Context(), cut(req, whole, at+1)); err == nil {
			t.Errorf("it goes on behind the stop at token %d", at)
		}
		if got := generate(t, e, cut(req, whole, at)); !reflect.DeepEqual(got, want) {
			t.Errorf("resumed at its stop it is %+v, want %+v", got, want)
		}
	}
}

// TestOtherSamplingIsRefused: what an embedded engine cannot do is never done otherwise in silence.
func TestOtherSamplingIsRefused(t *testing.T) {
	store, _ := policies(t)
	e := start(t, options(store, 1))
	for name, s := range map[string]port.Sampling{
		"temperature": {Temperature: 0.5}, "greedy": {}, "top_p": {Temperature: 1, TopP: 0.9}, "top_k": {Temperature: 1, TopK: 2},
		"min_p": {Temperature: 1, MinP: 0.1}, "stop texts": {Temperature: 1, Stop: []string{"a"}},
	} {
		req := request(0)
		req.Sampling = &s
		if _, err := e.Generate(t.Context(), req); err == nil || !strings.Contains(err.Error(), "draws by the policy") {
			t.Errorf("%s: %v", name, err)
		}
	}
	req := request(0)
	req.Sampling = &port.Sampling{Temperature: 1, TopP: 1}
	if _, err := e.Generate(t.Context(), req); err != nil {
		t.Errorf("the policy as it is, written out: %v", err)
	}
}
