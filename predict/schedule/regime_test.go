package schedule

import (
	"math"
	"strings"
	"testing"
)

// speedup is how much faster the advised asynchronous schedule is.
func speedup(t *testing.T, in Input) (Comparison, Conclusion) {
	t.Helper()
	c := compare(t, in)
	return c, c.Conclusion
}

// TestRolloutDominated: long tails on many GPUs, nothing done about them: the barrier
// is most of the step, and to remove it is worth twice the speed and more.
func TestRolloutDominated(t *testing.T) {
	c, v := speedup(t, Input{
		Lengths: lognormal(t, 2500, 80, 32768), GroupSize: 16, BatchGroups: 128, GPUs: 64, GPUsPerEngine: 2, SlotsPerEngine: 64,
		Decode: Decode{FixedS: 0.004, WeightsS: 0.004, SlotReadS: 4e-5, SlotComputeS: 6e-5},
		Train:  Phase{S: 30, GPUs: 64}, LogProbs: Phase{S: 8, GPUs: 64}, SyncS: 3, SwitchS: 8, Warmup: 3, Batches: 8,
	})
	if !v.Pays || v.Speedup < 2 {
		t.Errorf("speed-up %.2f, want 2 and more: %s", v.Speedup, v.Text)
	}
	if v.Effect != EffectBarrier {
		t.Errorf("the gain is put down to %q, want the barrier", v.Effect)
	}
	if base := c.Rows[0].Parts; base.TailS < base.StepS/2 {
		t.Errorf("the tail is %.1f s of %.1f: this is no rollout-dominated step", base.TailS, base.StepS)
	}
}

// TestBalanced: once rollouts are as fast as training and their tail is cut, a third
// is left to gain.
func TestBalanced(t *testing.T) {
	c, v := speedup(t, Input{
		Lengths: lognormal(t, 2500, 30, 5000), GroupSize: 8, BatchGroups: 256, GPUs: 64, GPUsPerEngine: 2, SlotsPerEngine: 64,
		Decode: Decode{FixedS: 0.004, WeightsS: 0.004, SlotReadS: 6e-5, SlotComputeS: 1.1e-4},
		Train:  Phase{S: 60, GPUs: 64}, LogProbs: Phase{S: 8, GPUs: 64}, SyncS: 3, SwitchS: 5, Warmup: 3, Batches: 8,
	})
	if !v.Pays || v.Speedup < 1.2 || v.Speedup > 1.5 {
		t.Errorf("speed-up %.2f, want 1.2 to 1.5: %s", v.Speedup, v.Text)
	}
	if base := c.Rows[0].Parts; math.Abs(math.Log((base.WorkS+base.TailS)/(base.TrainS+base.LogProbS))) > math.Log(1.5) {
		t.Errorf("rollouts take %.1f s and training %.1f: this is not balanced", base.WorkS+base.TailS, base.TrainS+base.LogProbS)
	}
}

// TestOneSmallNode: eight GPUs with many rollouts to a slot have hardly a barrier, and
// splitting them costs what overlapping gains.
func TestOneSmallNode(t *testing.T) {
	_, v := speedup(t, Input{
		Lengths: lognormal(t, 600, 40, 2048), GroupSize: 8, BatchGroups: 256, GPUs: 8, SlotsPerEngine: 32, TrainGPUsMin: 4, TrainGPUsUnit: 4,
		Decode: Decode{FixedS: 0.004, WeightsS: 0.006, SlotReadS: 1e-4, SlotComputeS: 2e-4},
		Train:  Phase{S: 90, GPUs: 8}, LogProbs: Phase{S: 10, GPUs: 8}, SyncS: 2, SwitchS: 5, Warmup: 3, Batches: 8,
	})
	if v.Pays || v.Speedup < 0.6 || v.Speedup > 1.1 {
		t.Errorf("speed-up %.2f, want no more than 1.1: %s", v.Speedup, v.Text)
	}
	if !strings.Contains(v.Text, "will not pay") || v.Effect != EffectSplit {
		t.Errorf("the verdict names %q: %s", v.Effect, v.Text)
	}
}

// TestOneStepOffCanLose: 16 GPUs, a model that fills them, one step off against
// shared GPUs, as published for Qwen3-30B on 16 GB200 (NeMo-RL, performance summary:
// 221 s on policy, 301 s one step off): each side on half of the GPUs takes longer
// than both on all of them one after the other, where the barrier is short.
func TestOneStepOffCanLose(t *testing.T) {
	in := Input{
		Lengths: lognormal(t, 2000, 30, 8192), GroupSize: 32, BatchGroups: 64, GPUs: 16, RolloutGPUs: 8, GPUsPerEngine: 2, SlotsPerEngine: 128,
		Decode: Decode{FixedS: 0.004, WeightsS: 0.004, SlotReadS: 5e-5, SlotComputeS: 5e-5},
		Train:  Phase{S: 110, GPUs: 16}, LogProbs: Phase{S: 28, GPUs: 16}, SyncS: 5, SwitchS: 10, Warmup: 3, Batches: 8,
	}
	c, _ := speedup(t, in)
	off := c.of(t, OneStepOff)
	if off.Speedup >= 1 {
		t.Errorf("one step off is %.2f times as fast", off.Speedup)
	}
	if off.ClosedS <= c.Rows[0].ClosedS {
		t.Errorf("the closed forms are %.1f s for one step off and %.1f for shared GPUs", off.ClosedS, c.Rows[0].ClosedS)
	}
}

// TestBudget: what is staler than the budget is compared, and not advised.
func TestBudget(t *testing.T) {
	in := typical(t)
	in.Batches, in.Train = 10, Phase{S: 2, GPUs: 16}
	free := compare(t, in).Conclusion
	in.StalenessMax = 0.6
	c := compare(t, in)
	for _, r := range c.Rows {
		if want := r.StalenessMean > 0.6; r.OverBudget != want {
			t.Errorf("%s at %.2f batches: over budget is %v", r.Name, r.StalenessMean, r.OverBudget)
		}
	}
	if v := c.Conclusion; c.of(t, v.Best).OverBudget || v.Speedup > free.Speedup {
		t.Errorf("%s is advised, %.2f times as fast; without a budget %s, %.2f", v.Best, v.Speedup, free.Best, free.Speedup)
	}
	in.StalenessMax, in.StalenessP95Max = 0, 0.001
	if v := compare(t, in).Conclusion; v.Pays || !strings.Contains(v.Text, "staler than the budget") {
		t.Errorf("with no room for staleness: %+v", v)
	}
}

// TestClipFraction checks the formula where it is known.
func TestClipFraction(t *testing.T) {
	if got := ClipFraction(0, 0.2, 0.2); got != 0 {
		t.Errorf("no divergence clips %g", got)
	}
	// The two-sided form for a small divergence and band: 2(1−Φ(ln(1+ε)/√(2kl))).
	for _, kl := range []float64{1e-4, 3e-4} {
		const epsilon = 0.02
		want := 2 * normal(-math.Log(1+epsilon)/math.Sqrt(2*kl))
		if got := ClipFraction(kl, epsilon, epsilon); math.Abs(got/want-1) > 0.12 {
			t.Errorf("kl %g clips %g, want about %g", kl, got, want)
		}
	}
	// One standard deviation to each side: ln(1+high) = σ − kl, ln(1−low) = −σ − kl.
	kl := 0.005
	sigma := math.Sqrt(2 * kl)
	if got, want := ClipFraction(kl, 1-math.Exp(-sigma-kl), math.Exp(sigma-kl)-1), 2*normal(-1); math.Abs(got-want) > 1e-12 {
		t.Errorf("clips %g at one standard deviation, want %g", got, want)
	}
	last := 0.0
	for _, kl := range []float64{1e-4, 1e-3, 1e-2, 1e-1} {
		got := ClipFraction(kl, 0.2, 0.28)
		if got < last {
			t.Errorf("kl %g clips %g, less than a smaller one", kl, got)
		}
		last = got
	}
}

// TestRefusals: what cannot be compared is an error that names the field.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		says   string
	}{
		"no lengths":          {func(in *Input) { in.Lengths = nil }, "Lengths"},
		"no batch":            {func(in *Input) { in.BatchGroups = 0 }, "a batch is 0 groups"},
		"no slots":            {func(in *Input) { in.SlotsPerEngine = 0 }, "SlotsPerEngine"},
		"one GPU":             {func(in *Input) { in.GPUs = 1 }, "GPUs is 1"},
		"no room for both":    {func(in *Input) { in.TrainGPUsMin = 16 }, "no separate schedule"},
		"a split of all":      {func(in *Input) { in.RolloutGPUs, in.TrainGPUsMin = 16, 1 }, "leave 0"},
		"a train time of 0":   {func(in *Input) { in.Train = Phase{} }, "Train.S"},
		"a train time of NaN": {func(in *Input) { in.Train.S = math.NaN() }, "Train.S"},
		"a negative sync":     {func(in *Input) { in.SyncS = -1 }, "SyncS"},
		"a fixed part beyond": {func(in *Input) { in.Train.FixedS = 30 }, "Train.FixedS"},
		"a speed of 0":        {func(in *Input) { in.Decode = Constant(0) }, "Decode.FixedS"},
		"no speed":            {func(in *Input) { in.Decode = Decode{} }, "a decode step takes 0 s"},
		"a curve that turns":  {func(in *Input) { in.Decode = Decode{Curve: []Point{{4, 0.01}, {2, 0.02}}} }, "Decode.Curve[1]"},
		"a negative curve":    {func(in *Input) { in.Decode = Decode{Curve: []Point{{1, -1}}} }, "Decode.Curve[0]"},
		"an exponent of 3":    {func(in *Input) { in.KLExponent = 3 }, "KLExponent"},
		"infinite divergence": {func(in *Input) { in.KLPerBatch = math.Inf(1) }, "KLPerBatch"},
		"groups too large":    {func(in *Input) { in.WholeGroups, in.SlotsPerEngine = true, 4 }, "WholeGroups"},
	} {
		in := typical(t)
		c.change(&in)
		if _, err := Compare(in); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}
