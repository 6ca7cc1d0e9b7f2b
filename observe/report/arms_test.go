package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// contest is a comparison of n arms over so many seeds.
func contest(n, seeds int) Arms {
	rng := rand.New(rand.NewPCG(1, 2))
	arms := Arms{Title: "Presets on reverse", Summary: "Reversing strings with a small model.", WallS: 120,
		Settings: []Row{{Name: "rollout.group_size", Value: "8"}}, Notes: []string{"<i>the engine shares cores with the trainer</i>"}}
	for i := range n {
		arm := Arm{Name: fmt.Sprintf("preset-%d", i+1), Note: "Drops the oldest group.", Settings: []Row{{Name: "queue.policy", Value: "drop"}}}
		for seed := range seeds {
			run := ArmRun{Seed: uint64(seed + 1), WallS: 120 + 0.3*rng.Float64(), Steps: float64(400 + 10*i), Tokens: 1e6, Reward: 0.8, Staleness: 1 + 0.4*float64(i) + 0.05*rng.NormFloat64(),
				StalenessP95: 4, WastedShare: 0.02 * float64(i), TrainerIdle: 0.05, RolloutIdle: Unknown, ClipFraction: 0.01, LengthRatio: Unknown}
			level := 0.9 - 0.04*float64(i) + 0.02*rng.NormFloat64()
			for k := range 13 {
				at := 10 * float64(k)
				run.Curve = append(run.Curve, ArmPoint{TimeS: at, Step: int64(k * 40), Accuracy: level * (1 - math.Exp(-at/40)), Reward: Unknown})
			}
			run.Accuracy = run.Curve[12].Accuracy
			arm.Runs = append(arm.Runs, run)
		}
		arms.Arms = append(arms.Arms, arm)
	}
	return arms
}

func armsPageOf(t *testing.T, arms Arms) string {
	t.Helper()
	var page bytes.Buffer
	if err := ArmsHTML(&page, arms); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestArmsPage(t *testing.T) {
	page := armsPageOf(t, contest(7, 4))
	if *keep != "" {
		if err := os.WriteFile(*keep+".arms.html", []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := parse(t, page)
	var headings []string
	for _, h := range root.all("h2") {
		headings = append(headings, h.text)
	}
	if got := strings.Join(headings, ", "); got != "Result, Side by side, Learning curves, Arms, Every run, Common settings" {
		t.Errorf("headings %s", got)
	}
	if !strings.Contains(root.text, "7 arms, every run 120 s of wall time, 4 seeds: 1, 2, 3, 4.") {
		t.Error("the page does not say seeds and wall time")
	}
	if strings.Contains(page, "<i>the engine") || strings.Contains(page, "NaN") || len(root.all("script")) != 0 {
		t.Error("text from outside is not escaped, or a figure is not a number")
	}
	if n := len(root.all("svg")); n != 5+1+7 {
		t.Errorf("%d pictures, want five of intervals, one of all curves, and one of each arm", n)
	}
	ids := map[string]bool{}
	for _, svg := range root.all("svg") {
		id := svg.attr["aria-labelledby"]
		if svg.attr["role"] != "img" || len(svg.all("title")) != 1 || ids[id] {
			t.Errorf("a picture without a role, or without a title of its own: %v", svg.attr)
		}
		ids[id] = true
	}
	if strings.Contains(root.text, "rollout idle") || strings.Contains(root.text, "length, trained to started") {
		t.Error("a column of what nobody measured is there")
	}
}

// Means and intervals are Student's over the seeds; differences pair the seeds.
func TestArmsEstimates(t *testing.T) {
	arms := Arms{WallS: 10, Arms: []Arm{{Name: "a"}, {Name: "b"}}}
	for i, accuracy := range []float64{0.5, 0.6, 0.7} {
		run := ArmRun{Seed: uint64(i), WallS: 10, Accuracy: accuracy}
		arms.Arms[0].Runs = append(arms.Arms[0].Runs, run)
		run.Accuracy = accuracy + 0.1 + 0.01*float64(i)
		arms.Arms[1].Runs = append(arms.Arms[1].Runs, run)
	}
	r := Compare(arms)
	e := r.Arms[0].Figures["held_out_accuracy"]
	half := 4.302653 * 0.1 / math.Sqrt(3) // Student's quantile of two degrees of freedom
	if math.Abs(e.Mean-0.6) > 1e-9 || math.Abs(e.Interval95[1]-0.6-half) > 1e-6 || math.Abs(e.Interval95[0]-0.6+half) > 1e-6 || e.Difference != nil {
		t.Errorf("%+v %v, want 0.6 ± %g", e, *e.Interval95, half)
	}
	d := r.Arms[1].Figures["held_out_accuracy"]
	if math.Abs(*d.Difference-0.11) > 1e-9 || math.Abs(d.Difference95[1]-0.11-half/10) > 1e-6 {
		t.Errorf("difference %g %v, want 0.11 ± %g", *d.Difference, *d.Difference95, half/10)
	}
	if len(r.Warnings) != 0 {
		t.Errorf("warnings %q", r.Warnings)
	}
	if _, err := json.Marshal(Compare(contest(3, 2))); err != nil {
		t.Error(err)
	}
}

// One seed is no result: it is said before anything else, and no interval is drawn.
func TestOneSeedIsNoResult(t *testing.T) {
	arms := contest(3, 1)
	r := Compare(arms)
	for _, arm := range r.Arms {
		for name, e := range arm.Figures {
			if e.Interval95 != nil || e.Difference95 != nil {
				t.Errorf("%s of %s has an interval from one seed", name, arm.Name)
			}
		}
	}
	page := armsPageOf(t, arms)
	root := parse(t, page)
	if at := strings.Index(root.text, "One seed is no result"); at < 0 || at > strings.Index(root.text, "held-out accuracy") {
		t.Error("the page does not say first that one seed is no result")
	}
	if strings.Contains(root.text, "±") || strings.Contains(page, "fill-opacity:0.16") {
		t.Error("the page shows an interval")
	}
	var text bytes.Buffer
	if err := ArmsText(&text, arms); err != nil || !strings.Contains(text.String(), "! One seed is no result") || strings.Contains(text.String(), "±") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// Runs that failed, lack seeds or ran for another time are named.
func TestArmsDoubts(t *testing.T) {
	arms := contest(3, 3)
	arms.Arms[0].Runs[1].Failed = "stalled"
	arms.Arms[1].Runs[0].WallS = 90
	arms.Arms[2].Runs = arms.Arms[2].Runs[:1]
	r := Compare(arms)
	for i, want := range []string{"preset-1: 1 of 3 runs failed", "preset-2 did not run for the common 120 s: seed 1 90.0 s", "preset-3 has one run", "preset-3 ran with 1 of the 3 seeds"} {
		if i >= len(r.Warnings) || !strings.Contains(r.Warnings[i], want) {
			t.Errorf("warnings %q lack %q", r.Warnings, want)
		}
	}
	if n := r.Arms[0].Figures["held_out_accuracy"].Seeds; n != 2 {
		t.Errorf("%d seeds in the mean, want the 2 that did not fail", n)
	}
}

// A comparison of nothing, or of runs without curves, is a page all the same.
func TestDegenerateArms(t *testing.T) {
	for _, arms := range []Arms{{}, {Title: "x", Arms: []Arm{{Name: "empty"}}},
		{WallS: 5, Arms: []Arm{{Name: "a", Runs: []ArmRun{{Seed: 1, WallS: 5, Accuracy: Unknown, Reward: Unknown, Staleness: Unknown, StalenessP95: Unknown}}}}}, contest(10, 2)} {
		page := armsPageOf(t, arms)
		parse(t, page)
		if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Error("a figure that is no number is printed")
		}
		var text bytes.Buffer
		if err := ArmsText(&text, arms); err != nil {
			t.Error(err)
		}
	}
}

// Curves are set on common times, as far as every run has got.
func TestCurvesShareTimes(t *testing.T) {
	arm := Arm{Runs: []ArmRun{
		{Curve: []ArmPoint{{TimeS: 0, Accuracy: 0}, {TimeS: 30, Accuracy: Unknown}, {TimeS: 60, Accuracy: 0.6}}},
		{Curve: []ArmPoint{{TimeS: 0, Accuracy: 0.2}, {TimeS: 30, Accuracy: 0.2}}},
	}}
	points := curve(arm, 60)
	last := points[len(points)-1]
	if last.TimeS != 31 || math.Abs(points[30].Mean-(0.3+0.2)/2) > 1e-12 || points[30].TimeS != 30 || points[30].Interval95 == nil {
		t.Errorf("the curve ends at %g s, and is %g at %g s", last.TimeS, points[30].Mean, points[30].TimeS)
	}
}
