package hardware

import (
	"math"
	"strings"
	"testing"
)

func trainer(t *testing.T, model, gpu string, gpus int) Trainer {
	t.Helper()
	m, err := ModelNamed(model)
	if err != nil {
		t.Fatal(err)
	}
	g, err := GPUNamed(gpu)
	if err != nil {
		t.Fatal(err)
	}
	return Trainer{Model: m, GPU: g, GPUs: gpus}
}

func TestTrainStepByHand(t *testing.T) {
	tr := trainer(t, "qwen2.5-7b", "h100-sxm", 16)
	n := 7.616e9 - 152064*3584
	if got, want := 1e6/tr.TokensPerS(), 6*n*1e6/(0.35*989e12*16); !near(got, want) {
		t.Errorf("a step takes %g s, by hand %g", got, want)
	}
	plain := 1e6 / tr.TokensPerS()
	tr.Recompute = true
	if got := 1e6 / tr.TokensPerS(); !near(got, plain*8/6) {
		t.Errorf("recomputation: %g s, want 8/6 of %g", got, plain)
	}
	tr.ContextTokens = 30000
	if with, without := 1e6/tr.TokensPerS(), plain*8/6; with < without*1.2 {
		t.Errorf("30000 tokens of context cost nothing: %g s and %g s", with, without)
	}
}

// Eighteen bytes a parameter and the activations of 16384 tokens, in whole units:
// 137 GB of a 7B do not fit one GPU of 80 GiB, and just fit two.
func TestMemoryFloor(t *testing.T) {
	for _, c := range []struct {
		model, gpu string
		unit       int
		want       int
	}{
		{"qwen2.5-7b", "h100-sxm", 1, 2},
		{"qwen2.5-7b", "h100-sxm", 8, 8},
		{"qwen2.5-32b", "h100-sxm", 8, 16},
		{"llama-3.1-70b", "h100-sxm", 8, 32},
		{"qwen2.5-0.5b", "h100-sxm", 1, 1},
		{"qwen3-235b-a22b", "h200", 8, 40},
	} {
		tr := trainer(t, c.model, c.gpu, 0)
		tr.Recompute, tr.Unit = true, c.unit
		got, err := tr.MinimumGPUs()
		if err != nil || got != c.want {
			t.Errorf("%s on %s in units of %d: %d GPUs (%v), want %d", c.model, c.gpu, c.unit, got, err, c.want)
			continue
		}
		held := func(gpus int) float64 {
			return (tr.StateBytes()/float64(gpus) + tr.ActivationBytes()) / tr.GPU.MemoryBytes
		}
		if use := held(got); use > 0.9 {
			t.Errorf("%s on %d × %s takes %.2f of the memory", c.model, got, c.gpu, use)
		}
		if less := got - c.unit; less > 0 && held(less) <= 0.9 {
			t.Errorf("%s on a unit less than its floor takes %.2f of the memory", c.model, held(less))
		}
	}
}

// The activations of a 405B do not fit a GPU of 80 GiB: its node divides them, and
// without recomputation the micro-batch is smaller, too. What was given is kept, and
// what does not fit then is refused without advising what is done already.
func TestActivationsAreDivided(t *testing.T) {
	for _, c := range []struct {
		model     string
		recompute bool
		tokens    float64
		gpus      int
	}{
		{"llama-3.1-8b", true, 16384, 1},
		{"llama-3.1-405b", true, 16384, 4},
		{"llama-3.1-405b", false, 4096, 8},
	} {
		tr := trainer(t, c.model, "h100-sxm", 0)
		tr.Recompute, tr.ContextTokens = c.recompute, 4000
		if tokens, gpus := tr.InFlight(); tokens != c.tokens || gpus != c.gpus {
			t.Errorf("%s, recompute %v: %g tokens on %d GPUs, want %g on %d", c.model, c.recompute, tokens, gpus, c.tokens, c.gpus)
		}
		least, err := tr.MinimumGPUs()
		if err != nil || float64(least)*tr.GPU.MemoryBytes < tr.StateBytes() {
			t.Errorf("%s, recompute %v: %d GPUs, %v", c.model, c.recompute, least, err)
		}
	}
	tr := trainer(t, "llama-3.1-405b", "h100-sxm", 0)
	tr.Recompute, tr.MicroBatchTokens = true, 1e6
	if _, err := tr.MinimumGPUs(); err == nil || strings.Contains(err.Error(), "recompute") {
		t.Errorf("a million tokens at once: %v", err)
	}
	tr.Recompute = false
	if _, err := tr.MinimumGPUs(); err == nil || !strings.Contains(err.Error(), "recompute") {
		t.Errorf("a million tokens at once without recomputation: %v", err)
	}
}

func TestMFUOfIsTheInverse(t *testing.T) {
	tr := trainer(t, "qwen3-235b-a22b", "h200", 64)
	tr.MFU = 0.105
	got, err := tr.MFUOf(tr.TokensPerS())
	if err != nil || math.Abs(got-0.105) > 1e-12 {
		t.Errorf("MFU %g (%v), want 0.105", got, err)
	}
}

// Published with an MFU of 10.5 %: 64 H200 train Qwen3-235B at 2.75 samples/s.
// That amounts to tokens below the 32K cap of a sample, as it must.
func TestPublishedMFUAndRateAgree(t *testing.T) {
	tr := trainer(t, "qwen3-235b-a22b", "h200", 64)
	tr.MFU = 0.105
	perSample := tr.TokensPerS() / 2.75
	if perSample < 8000 || perSample > 32768 {
		t.Errorf("%.0f tokens a sample, expected 8000 to 32768", perSample)
	}
	t.Logf("%.0f tokens a sample", perSample)
}

func TestBadTrainers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Trainer)
		want   string
	}{
		{"NaN MFU", func(tr *Trainer) { tr.MFU = math.NaN() }, "MFU is NaN"},
		{"MFU above one", func(tr *Trainer) { tr.MFU = 45 }, "MFU is 45"},
		{"negative GPUs", func(tr *Trainer) { tr.GPUs = -8 }, "-8 GPUs"},
		{"one byte a parameter", func(tr *Trainer) { tr.BytesPerParameter = 1 }, "1 bytes a parameter"},
		{"negative unit", func(tr *Trainer) { tr.Unit = -1 }, "units of -1"},
		{"NaN context", func(tr *Trainer) { tr.ContextTokens = math.NaN() }, "context NaN"},
		{"activations too large", func(tr *Trainer) { tr.MicroBatchTokens = 1e8 }, "train fewer tokens at once"},
		{"no model", func(tr *Trainer) { tr.Model = Model{} }, "none given"},
	} {
		tr := trainer(t, "qwen2.5-7b", "h100-sxm", 8)
		c.change(&tr)
		if _, err := tr.MinimumGPUs(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for speed, want := range map[float64]string{0: "tokens/s is 0", -1: "tokens/s is -1", 1e9: "MFU of", 0.1: "MFU of"} {
		if _, err := trainer(t, "qwen2.5-7b", "h100-sxm", 8).MFUOf(speed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%g tokens/s: %v, want %q", speed, err, want)
		}
	}
}

// Layouts of published trainers: NeMo-RL's of these models on H100 have pipelines of 8, 16 and 1 stages, the dense one
// 4 stages or four GPUs a layer.
func TestUsualLayout(t *testing.T) {
	for _, run := range []struct {
		model                  string
		gpus, pipeline, expert int
	}{
		{"qwen3-235b-a22b", 128, 8, 8}, {"deepseek-v3", 512, 16, 8}, {"qwen3-30b-a3b", 32, 1, 8}, {"qwen3-32b", 32, 8, 1},
		{"qwen3-32b", 2, 2, 1}, {"qwen3-0.6b", 8, 1, 1},
	} {
		m, err := ModelNamed(run.model)
		if err != nil {
			t.Fatal(err)
		}
		g, err := GPUNamed("h100-sxm")
		if err != nil {
			t.Fatal(err)
		}
		l := Trainer{Model: m, GPU: g, GPUs: run.gpus, Recompute: true}.UsualLayout(4096)
		if l.Pipeline != run.pipeline || l.Expert != run.expert || l.Tensor != 1 {
			t.Errorf("%s on %d GPUs: %+v", run.model, run.gpus, l)
		}
	}
}

// A pass by hand: Llama 3.1 8B on 8 H100, two of them a layer and two stages, 64 sequences of 1,024 tokens.
func TestPassesByHand(t *testing.T) {
	tr := trainer(t, "llama-3.1-8b", "h100-sxm", 8)
	tr.MFU, tr.AttentionUse, tr.TrafficUse, tr.LogitS, tr.ContextTokens = 0.5, 0.25, 0.5, 1e-11, 1024
	layout := Layout{Tensor: 2, Pipeline: 2, LayerS: 0.001}
	batch := Batch{Tokens: 64 * 1024, Sequences: 64}
	const each, bubble = 64 * 1024 / 8.0, 1 + 1.0/32 // two copies train 32 micro-batches each
	matrices := 2 * (8.030e9 - 128256*4096) / (0.5 * 989e12)
	attention := 2 * 32 * 4096 * 1024 / (0.25 * 989e12)
	numbers := 32 * (8*4096 + 3*4096 + 4*8*128 + 3*14336.0)
	traffic := numbers*4/(0.5*3.35e12) + 32*2*8*4096*0.5/(0.6*450e9)
	logits := 128256 * 1e-11 * 2
	for passes, attended := range map[float64]float64{1: 1, 4: 4.5} {
		want := each*((passes*(matrices+traffic)+attended*attention)*bubble+passes*logits) + 33*16*passes*0.001
		if got := tr.PassesS(layout, batch, passes, 2); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%g passes take %g s, by hand %g", passes, got, want)
		}
	}
	if got := tr.PassesS(layout, Batch{Tokens: 64 * 1024, Sequences: 64, Frozen: true}, 4, 2); math.Abs(tr.PassesS(layout, batch, 4, 2)-got-each*matrices*bubble) > 1e-9 {
		t.Errorf("without gradients of weights it takes %g s", got)
	}
}

// Experts half as wide as usual reach two thirds of their share, and routed parameters alone pay for it.
func TestNarrowExpertsByHand(t *testing.T) {
	tr := trainer(t, "qwen3-30b-a3b", "h100-sxm", 8)
	tr.MFU, tr.ExpertUse = 0.6, 0.3
	routed := 48 * 8 * 3 * 2048 * 768.0
	tr.Model.Architecture.ExpertIntermediate = 512
	want := 2 * ((tr.Model.multiplied()-routed)/0.6 + routed/0.2) / 989e12
	if got, _ := tr.tokenS(2); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("a token's matrices take %g s, by hand %g", got, want)
	}
}
