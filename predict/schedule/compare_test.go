package schedule

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/workload"
)

// lognormal lengths of a mean, tailness and cap.
func lognormal(t *testing.T, mean, tailness float64, limit int) *workload.Lengths {
	t.Helper()
	l, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: mean, Tailness: tailness, CapTokens: limit}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fixed lengths.
func fixed(t *testing.T, tokens float64) *workload.Lengths {
	t.Helper()
	l, err := workload.LengthSpec{Kind: workload.KindFixed, MeanTokens: tokens}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// typical is an input in which every part of a step is there.
func typical(t *testing.T) Input {
	return Input{
		Lengths: lognormal(t, 1200, 60, 8000), GroupSize: 8, BatchGroups: 32, GPUs: 16, RolloutGPUs: 8, GPUsPerEngine: 2, SlotsPerEngine: 32,
		Decode: Decode{FixedS: 0.005, WeightsS: 0.004, SlotReadS: 1e-4, SlotComputeS: 3e-4}, PrefillTokensPerS: 20000,
		Train: Phase{S: 20, GPUs: 16, FixedS: 2}, LogProbs: Phase{S: 5, GPUs: 16}, SyncS: 2, SwitchS: 6,
		KLPerBatch: 0.01, Seed: 1, Warmup: 4, Batches: 20,
	}
}

func compare(t *testing.T, in Input) Comparison {
	t.Helper()
	c, err := Compare(in)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// of returns a schedule's row.
func (c Comparison) of(t *testing.T, name Name) Row {
	t.Helper()
	for _, r := range c.Rows {
		if r.Name == name {
			if r.Refused != "" {
				t.Fatalf("%s is refused: %s", name, r.Refused)
			}
			return r
		}
	}
	t.Fatalf("no row %s", name)
	return Row{}
}

// TestPartsAddUp: a step is its parts less its overlaps, none of which is negative but
// by rounding and the window's edges, and the effects are the gain.
func TestPartsAddUp(t *testing.T) {
	c := compare(t, typical(t))
	base := c.Rows[0].Parts
	for _, r := range c.Rows {
		p := r.Parts
		sum := p.WorkS + p.WasteS + p.TailS + p.TrainS + p.LogProbS + p.SyncS + p.IdleS - p.OverlapS - p.SyncOverlapS
		if math.Abs(sum-p.StepS) > 1e-9*p.StepS {
			t.Errorf("%s: the parts are %.9f s, the step %.9f", r.Name, sum, p.StepS)
		}
		for name, v := range map[string]float64{"work": p.WorkS, "waste": p.WasteS, "train": p.TrainS, "log-probs": p.LogProbS, "sync": p.SyncS, "idle": p.IdleS, "overlap": p.OverlapS, "sync overlap": p.SyncOverlapS} {
			if v < -1e-9 {
				t.Errorf("%s: %s is %g s", r.Name, name, v)
			}
		}
		if p.TailS < -0.01*p.StepS {
			t.Errorf("%s: the tail is %g s", r.Name, p.TailS)
		}
		gain := 0.0
		for _, e := range r.Gain {
			gain += e.S
		}
		if want := base.StepS - p.StepS; math.Abs(gain-want) > 1e-9*base.StepS {
			t.Errorf("%s: the effects are %.9f s, the gain %.9f", r.Name, gain, want)
		}
	}
}

// TestFixedLengths checks the schedules against arithmetic: without spread every
// rollout of a batch ends at one instant.
func TestFixedLengths(t *testing.T) {
	in := Input{
		Lengths: fixed(t, 1000), GroupSize: 4, BatchGroups: 16, GPUs: 8, RolloutGPUs: 4, SlotsPerEngine: 16, Decode: Constant(100),
		Train: Phase{S: 6, GPUs: 8}, LogProbs: Phase{S: 2, GPUs: 8}, SyncS: 1, SwitchS: 3, Pieces: 4, Threshold: 0.5, Batches: 12,
	}
	c := compare(t, in)
	// 64 rollouts on 64 slots of the half, on half of 128 slots of all: 10 s either way.
	for name, want := range map[Name]float64{
		Colocated:   10 + 2 + 6 + 3,
		Synchronous: 10 + 4 + 12 + 1,
		OneStepOff:  max(10, 4+12) + 1,
		// All pieces are there at once, and nothing else is started before the sync.
		Streamed: 10 + 12 + 1,
		// Half of the batch is there at the sync; the other half is started then, and trained last.
		Async:   max(10, 6) + 6 + 1,
		Partial: max(10, 6) + 6 + 1,
		Drop:    12,
	} {
		if got := c.of(t, name).Parts.StepS; math.Abs(got-want) > 0.02*want {
			t.Errorf("%s takes %.3f s a batch, want %.3f", name, got, want)
		}
	}
	if got := c.of(t, OneStepOff); got.VersionsMean != 1 || got.VersionsP95 != 1 {
		t.Errorf("one step off is %g versions stale, want 1", got.VersionsMean)
	}
	for _, name := range []Name{Colocated, Synchronous} {
		if got := c.of(t, name); got.VersionsMean != 0 {
			t.Errorf("%s is %g versions stale", name, got.VersionsMean)
		}
	}
	// Trained from versions 0 to 3 of the four that a batch makes.
	if got := c.of(t, Streamed); got.VersionsMean != 1.5 || got.StalenessMean != 1.5/4 {
		t.Errorf("streamed is %g versions and %g batches stale, want 1.5 and 0.375", got.VersionsMean, got.StalenessMean)
	}
}

// TestClosedForms: every schedule's closed form against simulation, with rollouts or
// training the longer, slots for the batch four times, about once, and for a quarter
// of it, and tails from short to long; and with syncs that take as long as rollouts
// and longer, engines standing still or not. Of the synchronous schedules' tolerance all but
// a hundredth is that the mean of 40 barriers is no better known.
func TestClosedForms(t *testing.T) {
	within := map[Name]float64{Colocated: 0.045, Synchronous: 0.045, OneStepOff: 0.11, Streamed: 0.12, Async: 0.08, Partial: 0.17, Drop: 0.06}
	loading := map[Name]float64{Colocated: 0.045, Synchronous: 0.045, OneStepOff: 0.11, Streamed: 0.12, Async: 0.16, Partial: 0.2, Drop: 0.06}
	check := func(in Input, within map[Name]float64) {
		t.Helper()
		in = in.WithDefaults()
		for _, name := range Names() {
			a := in.Arm(name)
			o, err := Simulate(in, a)
			if err != nil {
				t.Fatal(err)
			}
			if closed := in.ClosedS(a); math.Abs(closed/o.Parts.StepS-1) > within[name] {
				t.Errorf("lengths of mean %.0f, q99.9 %d, %d slots an engine, update of %g s, sync of %g + %g s: %s takes %.2f s, the closed form %.2f",
					in.Lengths.Mean(), in.Lengths.Quantile(0.999), in.SlotsPerEngine, in.Train.S, in.LoadS, in.SyncS, name, o.Parts.StepS, closed)
			}
		}
	}
	for _, slots := range []int{8, 24, 128} {
		for _, train := range []float64{3, 40} {
			in := typical(t)
			in.SlotsPerEngine, in.Train, in.Batches = slots, Phase{S: train, GPUs: 16}, 40
			for _, tailness := range []float64{30, 60, 90} {
				in.Lengths = lognormal(t, 1200, tailness, 16000)
				check(in, within)
			}
			in.Lengths = lognormal(t, 1200, 60, 16000)
			for _, sync := range []struct{ still, load float64 }{{20, 0}, {60, 0}, {0, 20}, {0, 60}, {20, 20}} {
				in.SyncS, in.LoadS = sync.still, sync.load
				if sync.load == 0 {
					check(in, within)
				} else {
					check(in, loading)
				}
			}
		}
	}
}

// TestSharedGPUsKeepTheTrainersUnit: GPUs that the trainer cannot use in whole units
// are idle while it trains, on shared GPUs as on its own.
func TestSharedGPUsKeepTheTrainersUnit(t *testing.T) {
	in := typical(t)
	in.GPUs, in.RolloutGPUs, in.TrainGPUsUnit, in.TrainGPUsMin = 15, 8, 4, 4
	in = in.WithDefaults()
	for name, want := range map[Name]int{Colocated: 12, Synchronous: 4} {
		if got := in.Arm(name).TrainGPUs; got != want {
			t.Errorf("%s trains on %d of 15 GPUs in units of 4, want %d", name, got, want)
		}
	}
}

// TestTrainerNeedsAUnit: a split that leaves the trainer less than a unit is refused,
// also where it leaves as many GPUs as it needs.
func TestTrainerNeedsAUnit(t *testing.T) {
	for _, rollout := range []int{0, 4} {
		in := typical(t)
		in.GPUs, in.RolloutGPUs, in.GPUsPerEngine, in.TrainGPUsUnit = 7, rollout, 4, 4
		if err := in.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), "in units of 4") {
			t.Errorf("%d of 7 GPUs generating and a trainer in units of 4: %v", rollout, err)
		}
	}
}

// TestFindingsOfOneSchedule: what a schedule drops does not hide how its lengths are
// biased, nor either that it is staler than the budget.
func TestFindingsOfOneSchedule(t *testing.T) {
	c := Comparison{Rows: []Row{{Name: Colocated, Speedup: 1}, {Name: Drop, Speedup: 2, OverBudget: true, StalenessMean: 3, WasteShare: 0.3, LengthBias: -0.2}}}
	text := strings.Join(typical(t).WithDefaults().findings(c), "\n")
	for _, want := range []string{"staler than the budget", "drops 30", "20"} {
		if !strings.Contains(text, want) {
			t.Errorf("no finding says %q:\n%s", want, text)
		}
	}
	c.Rows[1].Speedup = 0.9
	if text := strings.Join(typical(t).WithDefaults().findings(c), "\n"); strings.Contains(text, "times as fast") || !strings.Contains(text, "is what is left") {
		t.Errorf("a slower schedule beyond the budget is praised, or nothing is said to be left:\n%s", text)
	}
	if !strings.Contains(text, "trains on lengths") {
		t.Errorf("the bias of lengths is not told:\n%s", text)
	}
}

// TestBarrierWithEnvironment checks the closed barrier with tool time.
func TestBarrierWithEnvironment(t *testing.T) {
	service, err := workload.TimesSpec{Kind: workload.KindLognormal, MeanS: 5, Tailness: 50}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, slots := range []int{16, 64} {
		in := typical(t)
		in.Environment, in.SlotsPerEngine, in.Batches = service, slots, 40
		in = in.WithDefaults()
		a := in.Arm(Synchronous)
		o, err := Simulate(in, a)
		if err != nil {
			t.Fatal(err)
		}
		if closed := in.ClosedS(a); math.Abs(closed/o.Parts.StepS-1) > 0.06 {
			t.Errorf("%d slots: %.2f s, the closed form %.2f", slots, o.Parts.StepS, closed)
		}
	}
}

// TestThresholdIsExact: where it binds partial rollouts are ⌊(1+θ)G⌋/G − 1 syncs stale.
func TestThresholdIsExact(t *testing.T) {
	for _, theta := range []float64{0.25, 0.5, 1} {
		in := typical(t)
		in.Threshold, in.Train = theta, Phase{S: 60, GPUs: 16}
		o, err := Simulate(in.WithDefaults(), in.WithDefaults().Arm(Partial))
		if err != nil {
			t.Fatal(err)
		}
		want := math.Floor((1+theta)*32)/32 - 1
		if got := o.Summary.Staleness.MeanSyncs; math.Abs(got-want) > 0.02 {
			t.Errorf("θ %g is %.4f syncs stale, want %.4f", theta, got, want)
		}
	}
}

// TestWholeGroups: slots that come free by whole groups are no matter without spread,
// or with one rollout a group, and cost where groups have a tail.
func TestWholeGroups(t *testing.T) {
	step := func(in Input, name Name) float64 {
		in = in.WithDefaults()
		if err := in.Validate(); err != nil {
			t.Fatal(err)
		}
		o, err := Simulate(in, in.Arm(name))
		if err != nil {
			t.Fatal(err)
		}
		return o.Parts.StepS
	}
	for _, name := range []Name{Synchronous, Drop} {
		in := typical(t)
		in.Train, in.LogProbs = Phase{S: 1, GPUs: 16}, Phase{}
		whole := in
		whole.WholeGroups = true
		if a, b := step(in, name), step(whole, name); b < 1.02*a {
			t.Errorf("%s: %.2f s by rollouts, %.2f by whole groups", name, a, b)
		}
		in.GroupSize, in.BatchGroups, whole = 1, 256, in
		whole.GroupSize, whole.BatchGroups, whole.WholeGroups = 1, 256, true
		if a, b := step(in, name), step(whole, name); math.Abs(a/b-1) > 1e-6 {
			t.Errorf("%s: groups of one take %.6f s by rollouts, %.6f by whole groups", name, a, b)
		}
		in = typical(t)
		in.Lengths, whole = fixed(t, 1000), in
		whole.Lengths, whole.WholeGroups = in.Lengths, true
		if a, b := step(in, name), step(whole, name); math.Abs(a/b-1) > 0.01 {
			t.Errorf("%s: equal lengths take %.4f s by rollouts, %.4f by whole groups", name, a, b)
		}
	}
}

// TestBestSplit: no other split is better by the closed form it takes.
func TestBestSplit(t *testing.T) {
	in := typical(t)
	in.RolloutGPUs, in.TrainGPUsUnit, in.TrainGPUsMin = 0, 2, 2
	in = in.WithDefaults()
	best := in.BestSplit()
	for rollout := 2; rollout <= 14; rollout += 2 {
		if in.overlapS(rollout) < in.overlapS(best)*(1-1e-9) {
			t.Errorf("%d:%d takes %.3f s, the best split %d:%d %.3f", rollout, 16-rollout, in.overlapS(rollout), best, 16-best, in.overlapS(best))
		}
	}
}

// TestSecondRun: the same input gives the same bytes.
func TestSecondRun(t *testing.T) {
	in := typical(t)
	in.Batches = 4
	a, b := compare(t, in), compare(t, in)
	if !reflect.DeepEqual(a, b) {
		t.Error("a second comparison has other figures")
	}
	text := func(c Comparison) string {
		var out bytes.Buffer
		if err := Text(&out, c, 120); err != nil {
			t.Fatal(err)
		}
		if err := HTML(&out, c, []string{"about"}); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(&out).Encode(c); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	page := text(a)
	if page != text(b) {
		t.Error("a second print has other bytes")
	}
	for _, name := range Names() {
		if !strings.Contains(page, string(name)) {
			t.Errorf("%s is not printed", name)
		}
	}
	for _, outside := range []string{"src=", "@import", `href="http`} {
		if strings.Contains(page, outside) {
			t.Errorf("the page refers to something outside: %s", outside)
		}
	}
}
