package diagnosis_test

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
)

// A trainer that is away for long, once without a batch and once with one that comes back, is what is named first; no
// setting is blamed for what that costs.
func TestAnAbsentTrainerIsNamed(t *testing.T) {
	r := &rig{stepS: 1.1, untilS: 700, asks: func(made loop.Version) float64 {
		if made == 150 {
			return 250
		}
		return 0
	}}
	gone := false
	r.fails = func(made loop.Version, _ float64) (float64, bool) {
		if made != 200 || gone {
			return 0, false
		}
		gone = true
		return 60, true
	}
	report, err := judged(t, r.trace(t), diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := found(report, "trainer_absent")
	if f == nil || len(report.Findings) == 0 || report.Findings[0].Code != "trainer_absent" {
		t.Fatalf("%+v", report.Findings)
	}
	for _, word := range []string{"absent 2 times, for 52.9 %", "from 174 s to 424 s, from 482 s to 602 s", "groups were evicted or discarded", "no_trainer"} {
		if !strings.Contains(f.Title+said(f), word) {
			t.Errorf("%q lacks %q", f.Title+said(f), word)
		}
	}
	if !report.Settled.OK || report.Settled.FromStep < 200 {
		t.Errorf("judged by the steps with the absence: %+v", report.Settled)
	}
}

// A run whose trainer has gone for good has no means that a setting changes.
func TestATrainerThatStaysAwayIsNamed(t *testing.T) {
	away := func(made loop.Version) float64 {
		switch made {
		case 60:
			return 300
		case 100:
			return 1e6
		}
		return 0
	}
	report, err := judged(t, (&rig{stepS: 1.1, untilS: 600, asks: away}).trace(t), diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := found(report, "trainer_absent")
	if f == nil || !strings.Contains(said(f), "as the trace ends") || f.Severity != "defect" {
		t.Errorf("%+v", f)
	}
	if report.Settled.OK || !strings.Contains(report.Settled.Why, "the trainer was absent for") || report.Settled.MoreSteps < 1 {
		t.Errorf("%+v", report.Settled)
	}
	if found(report, "move_to_trainer") != nil {
		t.Error("GPUs are to move")
	}
	if w := found(report, "waste"); w != nil && !strings.Contains(said(w), "while the trainer was absent") {
		t.Errorf("%+v", w)
	}
}

// What a trainer does between two steps, again and again, is its way: the run is judged, and by what the trainer does
// while it is there.
func TestATrainersOwnPausesAreItsWay(t *testing.T) {
	own := func(made loop.Version) float64 {
		if made%8 == 0 {
			return 6
		}
		return 0
	}
	report := (&rig{stepS: 1.4, untilS: 700, asks: own}).judged(t)
	if f := found(report, "trainer_absent"); f == nil || !strings.Contains(said(f), "(the longest; and ") || !strings.Contains(f.Fails, "checkpoint") {
		t.Errorf("%+v", f)
	}
	if !report.Settled.OK {
		t.Errorf("%+v", report.Settled)
	}
	if !strings.Contains(report.Fitted.StepS.From, "its own work between steps is in it") {
		t.Errorf("%+v", report.Fitted.StepS)
	}
	for _, d := range report.Drift {
		if d.What == "train_step_s" && (min(d.First, d.Last) < 1.3 || max(d.First, d.Last) > 1.5) {
			t.Errorf("pauses are no part of train steps of 1.4 s, and nothing of those: %+v", d)
		}
	}
}

// A trainer that is always there is not missed.
func TestATrainerThatIsThereIsNotMissed(t *testing.T) {
	report := (&rig{stepS: 1.1, untilS: 300}).judged(t)
	if f := found(report, "trainer_absent"); f != nil {
		t.Errorf("%+v", f)
	}
}

// Weights that do not come are named, with who waited for them.
func TestWeightsThatComeLateAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		loads func(engine int32, v loop.Version) float64
		want  []string
	}{
		"the sender is gone": {func(_ int32, v loop.Version) float64 {
			if v == 100 {
				return 90
			}
			return 0.05
		}, []string{"2 of 2 engines: a, b", "was loading from 1", "all engines point at where the weights come from"}},
		"one engine hangs": {func(engine int32, v loop.Version) float64 {
			if engine == 1 && v == 100 {
				return 90
			}
			return 0.05
		}, []string{"1 of 2 engines: b", "was loading from 1", "it is these engines"}},
	} {
		report := (&rig{stepS: 1.1, untilS: 400, loads: c.loads}).judged(t)
		f := found(report, "weights_late")
		if f == nil || f.Severity != "defect" || report.Findings[0].Code != "weights_late" {
			t.Errorf("%s: %+v", name, report.Findings)
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(said(f), word) {
				t.Errorf("%s: %q lacks %q", name, said(f), word)
			}
		}
	}
	report := (&rig{stepS: 1.1, untilS: 300, loads: func(int32, loop.Version) float64 { return 8 }}).judged(t)
	if f := found(report, "weights_late"); f != nil {
		t.Errorf("syncs that always take as long: %+v", f)
	}
}

// Environment workers that are gone are seen by rollouts of which nothing is heard.
func TestRolloutsThatStandStillAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		environmentS float64
		want         string
	}{"no worker is there": {80, "had been outside its engine"}, "the engines hang": {0, "had been generating"}} {
		r := &rig{stepS: 1.1, untilS: 400, stands: func(endsS float64) (untilS, environmentS float64) {
			if endsS > 120 && endsS < 200 {
				return 200 + (endsS-120)/80, c.environmentS
			}
			return endsS, 0
		}}
		report := r.judged(t)
		f := found(report, "rollouts_stood")
		if f == nil || report.Findings[0].Code != "rollouts_stood" || !strings.Contains(said(f), c.want) || !strings.Contains(said(f), "from 120 s to 200 s") {
			t.Errorf("%s: %+v", name, report.Findings)
		}
	}
}

// A train step that hangs is named, and steps that fail are.
func TestTrainStepsThatHangOrFailAreNamed(t *testing.T) {
	hung, err := judged(t, recording{steps: 200, warmup: 30, acceptance: 1, stepS: 12, halts: 100}.trace(t), diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	f := found(hung, "train_steps_long")
	if f == nil || hung.Findings[0].Code != "train_steps_long" || !strings.Contains(said(f), "to make version 100,") || found(hung, "train_steps_failed") != nil {
		t.Errorf("%+v", hung.Findings)
	}
	failing := (&rig{stepS: 1.1, untilS: 300, crashes: 4}).judged(t, "failures.train_attempts=3")
	f = found(failing, "train_steps_failed")
	if f == nil || f.Severity != "defect" || failing.Findings[0].Code != "train_steps_failed" || !strings.Contains(said(f), "was done again") || found(failing, "train_steps_long") != nil {
		t.Errorf("%+v", failing.Findings)
	}
}

// While the run's own process is down neither the trainer nor rollouts are missed, and no step is long for it.
func TestARestartIsNobodysAbsence(t *testing.T) {
	report := (&rig{stepS: 1.1, untilS: 400, recovers: 150}).judged(t)
	for _, code := range []string{"trainer_absent", "train_steps_long", "rollouts_stood", "weights_late"} {
		if f := found(report, code); f != nil {
			t.Errorf("%+v", f)
		}
	}
	if len(report.Warnings) == 0 || report.Warnings[0] != "the run was restarted once: figures hold the time it took" {
		t.Errorf("%q", report.Warnings)
	}
}

// Where rollouts wait for tools, tools are what is named, and GPUs are not what is missing.
func TestSlowToolsAreNoLackOfGPUs(t *testing.T) {
	slow := func(endsS float64) (untilS, environmentS float64) { return endsS + 8, 8 }
	report := (&rig{stepS: 1.1, untilS: 900, stands: slow}).judged(t)
	f, part := found(report, "environment_time"), 0.0
	if report.Attribution != nil {
		part = report.Attribution.Parts[attribution.Environment].Versions
	}
	if f == nil || part == 0 || f.CostVersions != part {
		t.Errorf("%+v, and its part of the split is %g", f, part)
	}
	if f := found(report, "move_to_rollout"); f == nil || strings.Contains(f.Title, "GPUs") || !strings.Contains(said(f), "more GPUs would not shorten that") {
		t.Errorf("%+v", f)
	}
}
