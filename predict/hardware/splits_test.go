package hardware

import "testing"

// The sizes are those that vLLM's and SGLang's attention layers take: whole heads on each GPU, and whole key-value heads
// or one copy.
func TestHeadsAreSharedEvenly(t *testing.T) {
	for _, c := range []struct {
		model, gpu string
		gpus       int
		want       bool
	}{
		{"qwen3-8b", "h100-sxm", 8, true},
		{"qwen2.5-7b", "h100-sxm", 4, true},
		{"qwen2.5-7b", "h100-sxm", 8, false}, // 28 heads
		{"phi-4", "h100-sxm", 2, true},
		{"phi-4", "h100-sxm", 4, false},     // 10 key-value heads
		{"gemma-3-1b", "h100-sxm", 4, true}, // one key-value head, copied
		{"gemma-3-1b", "h100-sxm", 8, false},
		{"qwen3-8b", "gb200", 64, false},         // 32 heads
		{"llama-3.1-405b", "h100-sxm", 24, true}, // three nodes in a pipeline, each of which splits layers by 8
		{"qwen3-30b-a3b", "h100-sxm", 64, true},  // experts
	} {
		m, err := ModelNamed(c.model)
		if err != nil {
			t.Fatal(err)
		}
		g, err := GPUNamed(c.gpu)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Replica{Model: m, GPU: g, GPUs: c.gpus}).Splits(); got != c.want {
			t.Errorf("%s on %d × %s splits: %v, want %v", c.model, c.gpus, c.gpu, got, c.want)
		}
	}
	if own := (Replica{Model: Model{Name: "own", KVHeads: 8}, GPUs: 3}); !own.Splits() {
		t.Error("a model of unknown heads is taken not to split")
	}
}
