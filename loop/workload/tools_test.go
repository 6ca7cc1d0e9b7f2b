package workload

import (
	"errors"
	"math"
	"testing"
)

func buildTools(t *testing.T, spec ToolsSpec) *Tools {
	t.Helper()
	tools, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// The mean number of calls is what is drawn, under every kind and limit.
func TestCallsHaveTheirMean(t *testing.T) {
	src := NewSource(1, StreamCalls)
	for _, spec := range []ToolsSpec{
		{Calls: 3}, {Calls: 2.6}, {Calls: 0.4}, {Calls: 2.6, CallsMax: 2}, {Calls: 7, CallsMax: 4},
		{Calls: 0.4, CallsKind: KindPoisson}, {Calls: 12, CallsKind: KindPoisson}, {Calls: 900, CallsKind: KindPoisson}, {Calls: 12, CallsKind: KindPoisson, CallsMax: 10},
		{Calls: 0.3, CallsKind: KindGeometric}, {Calls: 12, CallsKind: KindGeometric}, {Calls: 12, CallsKind: KindGeometric, CallsMax: 15},
	} {
		tools := buildTools(t, spec)
		n := 100_000.0
		if spec.Calls > poissonDirect {
			n = 4000
		}
		sum := 0.0
		for g := range uint64(n) {
			sum += float64(tools.Calls(src, g, 0, 1, 1))
		}
		want := tools.MeanCalls()
		if math.Abs(sum/n-want) > 0.01*want+0.003 {
			t.Errorf("%+v: %v calls drawn, the mean is %v", spec, sum/n, want)
		}
		if spec.CallsMax == 0 && math.Abs(want-spec.Calls) > 1e-6*spec.Calls {
			t.Errorf("%+v: a mean of %v calls", spec, want)
		}
	}
}

// A larger factor gives no rollout fewer calls, and the draws depend on nothing else.
func TestCallsRiseWithTheFactor(t *testing.T) {
	src := NewSource(5, StreamCalls)
	for _, kind := range []string{KindFixed, KindPoisson, KindGeometric} {
		tools := buildTools(t, ToolsSpec{Calls: 4, CallsKind: kind})
		for g := range uint64(2000) {
			before := 0
			for _, factor := range []float64{0.2, 1, 1.5, 4} {
				calls := tools.Calls(src, g, 3, 1, factor)
				if calls < before || calls != tools.Calls(src, g, 3, 1, factor) {
					t.Fatalf("%s: group %d makes %d calls, then %d under %v", kind, g, before, calls, factor)
				}
				before = calls
			}
		}
	}
}

// The parts of a rollout add up to it, each at least a token; at random the first is
// as long as any other on the average.
func TestPartsAddUp(t *testing.T) {
	src := NewSource(2, StreamTurn)
	for _, split := range []string{SplitEven, SplitRandom} {
		tools := buildTools(t, ToolsSpec{Calls: 3, Split: split})
		var means [4]float64
		const n, tokens = 40_000, 1003
		for g := range uint64(n) {
			left := tokens
			for turn := range 4 {
				part := tools.Part(src, Turn{Group: g, Sample: 1, Attempt: 1, Turn: uint32(turn)}, left, 4-turn)
				if part < 1 || part > left {
					t.Fatalf("%s: a part of %d of %d tokens", split, part, left)
				}
				left -= part
				means[turn] += float64(part) / n
			}
			if left != 0 {
				t.Fatalf("%s: %d tokens are left", split, left)
			}
		}
		for turn, mean := range means {
			if math.Abs(mean-tokens/4.0) > 4 {
				t.Errorf("%s: turn %d has %v tokens, want a quarter of %d", split, turn, mean, tokens)
			}
		}
		if part := tools.Part(src, Turn{}, 3, 3); part != 1 {
			t.Errorf("%s: %d of 3 tokens in the first of 3 turns", split, part)
		}
	}
}

// Turns and tries are draws of their own; calls fail as often as they should.
func TestTurnsAreIndependent(t *testing.T) {
	src := NewSource(3, StreamToolFault)
	tools := buildTools(t, ToolsSpec{Calls: 3, FailureRate: 0.3, Time: TimesSpec{Kind: KindExponential, MeanS: 2}})
	const n = 60_000
	failed, both, sum := 0.0, 0.0, 0.0
	for g := range uint64(n) {
		a, b := tools.Failed(src, Turn{Group: g, Attempt: 1, Turn: 1}), tools.Failed(src, Turn{Group: g, Attempt: 1, Turn: 1, Try: 1})
		if a {
			failed++
		}
		if a && b {
			both++
		}
		sum += float64(tools.CallNS(src, Turn{Group: g, Attempt: 1, Turn: 2}))
	}
	if math.Abs(failed/n-0.3) > 0.01 || math.Abs(both/n-0.09) > 0.006 || math.Abs(sum/n-2e9) > 3e7 {
		t.Errorf("%v fail, %v twice, a call takes %v ns; want 0.3, 0.09, 2e9", failed/n, both/n, sum/n)
	}
}

func TestToolsAreRefused(t *testing.T) {
	for field, spec := range map[string]ToolsSpec{
		"calls": {Calls: -1}, "calls_kind": {CallsKind: "uniform"}, "calls_max": {CallsMax: -2}, "split": {Split: "odd"},
		"failure_rate": {FailureRate: 1}, "retries": {Retries: -1}, "time.mean_s": {Time: TimesSpec{Kind: KindFixed, MeanS: -1}},
	} {
		_, err := spec.Build()
		var refused *FieldError
		if !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%+v: %v, want it to name %s", spec, err, field)
		}
	}
	for field, spec := range map[string]ChangeSpec{"length_factor": {LengthFactor: -1}, "tool_calls_factor": {ToolCallsFactor: math.NaN()}, "steps": {LengthFactor: 2},
		"environment_factor": {Steps: 1, EnvironmentFactor: 2000}, "step_factor": {Steps: 1, StepFactor: -2}, "begin": {Begin: -1, Steps: 1, StepFactor: 2}} {
		_, err := spec.Build(0)
		var refused *FieldError
		if !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%+v: %v, want it to name %s", spec, err, field)
		}
	}
}

// Nothing changes a length before the first version or without a factor.
func TestChange(t *testing.T) {
	c, err := ChangeSpec{Steps: 10, LengthFactor: 3}.Build(250)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int64]int{-1: 100, 0: 100, 5: 200, 10: 250, 1000: 250} {
		if got := c.Length(100, version); got != want {
			t.Errorf("v%d: %d tokens, want %d", version, got, want)
		}
	}
	if c.Length(1, 0) != 1 || !(Change{}).Off() || (Change{}).Length(7, 99) != 7 || c.CallsFactor(9) != 1 {
		t.Error("a change where there is none")
	}
}

// The factors stand still until Begin, and after Steps more.
func TestChangeBeginsLater(t *testing.T) {
	c, err := ChangeSpec{Begin: 20, Steps: 10, EnvironmentFactor: 4, StepFactor: 0.5}.Build(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		version, environment int64
		step                 float64
	}{{0, 1000, 1}, {20, 1000, 1}, {25, 2500, 0.75}, {30, 4000, 0.5}, {99, 4000, 0.5}} {
		if ns, step := c.EnvironmentNS(1000, at.version), c.StepFactor(at.version); ns != at.environment || step != at.step {
			t.Errorf("v%d: %d ns and a step of %v, want %d and %v", at.version, ns, step, at.environment, at.step)
		}
	}
	if c.Off() || c.Length(100, 99) != 100 || c.EnvironmentNS(MaxServiceS*1e9, 99) != MaxServiceS*1e9 {
		t.Error("a length changes without a factor, or a time grows past its limit")
	}
}
