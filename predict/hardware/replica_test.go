package hardware

import (
	"math"
	"strings"
	"testing"
)

// replica is Llama-3.1-8B in bf16 on one H100, with lengths of mean 1000 and a
// mean square of 4e6, after prompts of 500 tokens.
func replica(t *testing.T) Replica {
	t.Helper()
	m, err := ModelNamed("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	g, err := GPUNamed("h100-sxm")
	if err != nil {
		t.Fatal(err)
	}
	return Replica{Model: m, GPU: g, GPUs: 1, PromptTokens: 500, MeanTokens: 1000, MeanSquareTokens: 4e6}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

// A rollout seen running is a long one: 500 + 4e6/2000 tokens, not 500 + 500.
func TestResidentTokens(t *testing.T) {
	r := replica(t)
	if got := r.ResidentTokens(); got != 2500 {
		t.Errorf("%g resident tokens, want 2500", got)
	}
	r.MeanSquareTokens = 0
	if got := r.ResidentTokens(); got != 1000 {
		t.Errorf("lengths all alike: %g resident tokens, want 1000", got)
	}
}

func TestDecodeStepByHand(t *testing.T) {
	r := replica(t)
	d := r.Decode(64)
	weights := (8.030e9 - 128256*4096) * 2 / (3.35e12 * 0.7)
	cache := 64 * 2500 * 131072 / (3.35e12 * 0.7)
	compute := 2 * (8.030e9 - 128256*4096) * 64 / (989e12 * 0.6)
	if !near(d.Weights, weights) || !near(d.Cache, cache) || !near(d.Compute, compute) || d.Link != 0 || d.Overhead != 0.003 {
		t.Errorf("parts %+v, by hand weights %g, cache %g, compute %g", d, weights, cache, compute)
	}
	if want := weights + cache + 0.003; !near(d.Seconds, want) || d.Limit != LimitBandwidth {
		t.Errorf("a step of %g s bound by %s, by hand %g s by bandwidth", d.Seconds, d.Limit, want)
	}
	if !near(d.TokensPerS, 64/d.Seconds) || !near(r.SlotSpeed(64), 1/d.Seconds) {
		t.Errorf("%g tokens/s, %g of a slot, do not follow from a step of %g s", d.TokensPerS, r.SlotSpeed(64), d.Seconds)
	}
}

func TestEveryLimitCanBind(t *testing.T) {
	long := replica(t)
	short := replica(t)
	short.PromptTokens, short.MeanTokens, short.MeanSquareTokens = 10, 20, 400
	small := short
	small.Model, _ = ModelNamed("smollm2-135m")
	pcie := short
	pcie.GPU, _ = GPUNamed("l40s")
	pcie.Model, _ = ModelNamed("llama-3.1-70b")
	pcie.GPUs = 8
	for _, c := range []struct {
		r      Replica
		active float64
		want   Limit
	}{{long, 64, LimitBandwidth}, {long, 4000, LimitMemory}, {short, 4000, LimitCompute}, {small, 1, LimitOverhead}, {pcie, 512, LimitLink}} {
		if got := c.r.Decode(c.active); got.Limit != c.want {
			t.Errorf("%s with %g rollouts is bound by %s, want %s: %+v", c.r.Model.Name, c.active, got.Limit, c.want, got)
		}
	}
}

func TestSlotsFillTheMemoryLeft(t *testing.T) {
	r := replica(t)
	n, err := r.Slots()
	if err != nil {
		t.Fatal(err)
	}
	room := 80*gib*0.9 - 2*gib - 8.030e9*2
	if want := int(room / (2500 * 131072)); n != want {
		t.Errorf("%d slots, by hand %d", n, want)
	}
	r.GPUs = 2
	if two, _ := r.Slots(); two <= 2*n {
		t.Errorf("two GPUs hold %d rollouts, one %d: weights are held once, so more than twice", two, n)
	}
}

func TestSmallestReplica(t *testing.T) {
	r := replica(t)
	for _, c := range []struct {
		model, gpu string
		bytes      float64
		slots      int
		want       int
	}{
		{"llama-3.1-8b", "h100-sxm", 2, 1, 1},
		{"llama-3.1-70b", "h100-sxm", 2, 16, 4},
		{"llama-3.1-70b", "h200", 2, 1, 2},
		{"deepseek-v3", "h200", 1, 1, 8},
		{"deepseek-v3", "h100-sxm", 1, 1, 16},
		{"qwen3-235b-a22b", "h200", 2, 1, 4},
	} {
		r.Model, _ = ModelNamed(c.model)
		r.GPU, _ = GPUNamed(c.gpu)
		r.WeightBytes = c.bytes
		got, err := SmallestReplica(r, c.slots)
		if err != nil || got.GPUs != c.want {
			t.Errorf("%s on %s for %d rollouts: %d GPUs (%v), want %d", c.model, c.gpu, c.slots, got.GPUs, err, c.want)
			continue
		}
		if n, err := got.Slots(); err != nil || n < c.slots {
			t.Errorf("%s on %d × %s holds %d rollouts (%v), fewer than the %d asked for", c.model, got.GPUs, c.gpu, n, err, c.slots)
		}
	}
	r.GPU, _ = GPUNamed("l4")
	r.ActivationBytes = 30 * gib
	if _, err := SmallestReplica(r, 1); err == nil {
		t.Error("activations larger than a GPU fit")
	}
}

func TestPrefill(t *testing.T) {
	r := replica(t)
	flops := 2*(8.030e9-128256*4096)*2000 + 2*32*4096*2000*2000.0
	if got, want := r.PrefillSeconds(2000), flops/(989e12*0.5); !near(got, want) {
		t.Errorf("prefill takes %g s, by hand %g", got, want)
	}
	if r.PrefillSeconds(0) != 0 {
		t.Error("no tokens take time")
	}
}

func TestMeasuredSpeedReplacesTheRoofline(t *testing.T) {
	r, err := replica(t).Measured(64, 3000)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Decode(64).TokensPerS; !near(got, 3000) {
		t.Errorf("%g tokens/s where 3000 were measured", got)
	}
	if fast, slow := r.Decode(8).TokensPerSAndSlot, r.Decode(64).TokensPerSAndSlot; fast <= slow {
		t.Errorf("fewer rollouts are no faster each: %g and %g", fast, slow)
	}
}

func TestBadReplicas(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		change func(*Replica)
		want   string
	}{
		{"no model", func(r *Replica) { r.Model = Model{} }, "none given"},
		{"no GPU", func(r *Replica) { r.GPU = GPU{} }, "none given"},
		{"negative GPUs", func(r *Replica) { r.GPUs = -1 }, "-1 GPUs"},
		{"NaN bandwidth use", func(r *Replica) { r.BandwidthUse = nan }, "bandwidth use is NaN"},
		{"use above one", func(r *Replica) { r.MemoryUse = 1.5 }, "memory use is 1.5"},
		{"NaN length", func(r *Replica) { r.MeanTokens = nan }, "mean response in tokens is not a number"},
		{"no length", func(r *Replica) { r.MeanTokens = 0 }, "mean response in tokens is 0"},
		{"impossible moments", func(r *Replica) { r.MeanSquareTokens = 10 }, "a mean square is never below"},
		{"negative prompt", func(r *Replica) { r.PromptTokens = -1 }, "mean prompt is -1"},
		{"weights of no bytes", func(r *Replica) { r.WeightBytes = -2 }, "bytes of a weight is -2"},
		{"NaN overhead", func(r *Replica) { r.StepOverheadS = nan }, "overhead is NaN"},
		{"experts without parameters", func(r *Replica) { r.Model.Experts = 8; r.Model.ExpertsPerToken = 2 }, "no expert parameters"},
		{"more active than there are", func(r *Replica) { r.Model.ActiveParameters = 1e12 }, "active parameters are 1e+12"},
		{"weights too large", func(r *Replica) { r.Model.Parameters = 70e9 }, "use more GPUs (at least 2)"},
	} {
		r := replica(t)
		c.change(&r)
		if _, err := r.Slots(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAbsurdSpeedsAreRefused(t *testing.T) {
	for _, c := range []struct {
		active, speed float64
		want          string
	}{
		{64, 0, "tokens/s is 0"}, {64, math.NaN(), "not a number"}, {64, -5, "tokens/s is -5"}, {64, math.Inf(1), "tokens/s is +Inf"},
		{0, 3000, "rollouts at once is 0"}, {64, 1e6, "is more than the"}, {64, 1, "less than a thousandth"},
	} {
		if _, err := replica(t).Measured(c.active, c.speed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%g tokens/s with %g rollouts: %v, want %q", c.speed, c.active, err, c.want)
		}
	}
}

// Inside a node a ring's bytes count, beyond it those that experts are sent, and
// a dense model is pipelined.
// The stages of a dense model over two nodes take turns: a step has one node's
// bandwidth and FLOPs, and the cache of both. Experts are spread over all GPUs. No
// measured speed up to that of a filled pipeline is refused.
func TestStagesOfAPipelineTakeTurns(t *testing.T) {
	one := replica(t)
	one.GPUs = 8
	two := one
	two.GPUs = 16
	a, b := one.Decode(64), two.Decode(64)
	if !near(a.Weights, b.Weights) || !near(a.Cache, b.Cache) || !near(a.Compute, b.Compute) {
		t.Errorf("one node %+v, two %+v", a, b)
	}
	if one.CacheRoomBytes()*2 > two.CacheRoomBytes() {
		t.Errorf("two nodes have room for %g bytes of cache, one for %g", two.CacheRoomBytes(), one.CacheRoomBytes())
	}
	if _, err := two.Measured(64, 1.8*a.TokensPerS); err != nil {
		t.Error(err)
	}
	one.Model, _ = ModelNamed("deepseek-v3")
	two.Model = one.Model
	if a, b := one.Decode(64), two.Decode(64); !near(a.Weights, 2*b.Weights) {
		t.Errorf("experts are read in %g s on one node, %g s on two", a.Weights, b.Weights)
	}
}

func TestLinkByHand(t *testing.T) {
	r := replica(t)
	r.GPUs = 8
	ring := 2 * 32 * 2 * (7.0 / 8) * 64 * 4096 * 2 / 450e9
	if got := r.Decode(64).Link; !near(got, ring) {
		t.Errorf("8 GPUs exchange for %g s, by hand %g", got, ring)
	}
	r.GPUs = 16
	if got := r.Decode(64).Link; !near(got, ring) {
		t.Errorf("a dense model over two nodes exchanges for %g s, as inside one %g", got, ring)
	}
	r.Model, _ = ModelNamed("deepseek-v3")
	r.GPUs = 32
	if got, want := r.Decode(640).Link, 61*20*8*0.75*7168*3/50e9; !near(got, want) {
		t.Errorf("experts over four nodes are sent to for %g s, by hand %g", got, want)
	}
}
