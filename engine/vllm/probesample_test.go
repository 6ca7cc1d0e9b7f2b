package vllm

import (
	"math"
	"testing"
)

// A model in bfloat16 has often two likeliest tokens, which top_k 1 keeps both (seen at vLLM 0.32.0): log-probs of
// the cut distribution are ln 1/2 then, and those of the model's own what they were.
func TestKept(t *testing.T) {
	tied := map[string]float64{"token_id:2301": -8.897878, "token_id:16791": -8.897878, "token_id:22172": -8.952566, "token_id:16295": -10.397878}
	alone := map[string]float64{"token_id:7": -0.5, "token_id:9": -1.25}
	all := map[string]float64{"a": -8, "b": -8, "c": -8, "d": -8, "e": -8, "f": -9}
	for _, c := range []struct {
		name  string
		whole map[string]float64
		only  float64
		want  bool
	}{
		{"cut to one", alone, 0, true},
		{"the model's own", alone, -0.5, false},
		{"half, and nothing ties", alone, math.Log(0.5), false},
		{"both that tie are kept", tied, math.Log(0.5), true},
		{"one of those that tie is kept", tied, 0, true},
		{"a third where two tie", tied, math.Log(1. / 3), false},
		{"the model's own where two tie", tied, -8.897878, false},
		{"more tie than are shown", all, math.Log(1. / 9), true},
		{"the model's own where more tie than are shown", all, -8, false},
		{"nothing shown", nil, 0, false},
	} {
		if got := kept(c.whole, c.only); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
