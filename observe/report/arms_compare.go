package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	estimated "github.com/headway-rl/headway/observe/estimate"
)

// ArmsResult is a comparison as one JSON document, which [ArmsHTML] and [ArmsText] print.
type ArmsResult struct {
	Title string `json:"title"`
	// WallS is the wall time every run was given, in seconds; Seeds those of all arms.
	WallS float64  `json:"wall_s"`
	Seeds []uint64 `json:"seeds"`
	// Warnings say what keeps this from being a result: a single seed, unequal seeds or
	// wall times, failed runs.
	Warnings []string    `json:"warnings"`
	Arms     []ArmResult `json:"arms"`
}

// ArmResult is one arm over its seeds.
type ArmResult struct {
	Name string `json:"name"`
	Note string `json:"note,omitempty"`
	// Runs and FailedRuns count; failed ones enter no figure.
	Runs       int `json:"runs"`
	FailedRuns int `json:"failed_runs"`
	// Figures by name; one that no run measured is missing.
	Figures map[string]Estimate `json:"figures"`
	// Curve is held-out accuracy against wall time, interpolated to common times.
	Curve []CurvePoint `json:"curve"`
}

// Estimate is a mean over seeds.
type Estimate struct {
	Mean float64 `json:"mean"`
	// Interval95 is by Student's law over the seeds; null for a single one.
	Interval95 *[2]float64 `json:"interval_95"`
	Seeds      int         `json:"seeds"`
	// Difference is the one from the first arm, of the same seeds pair by pair, with its interval. It
	// is null for the first arm and where no seed is common.
	Difference   *float64    `json:"difference"`
	Difference95 *[2]float64 `json:"difference_95"`
}

// CurvePoint is a mean over seeds at one time.
type CurvePoint struct {
	TimeS      float64     `json:"time_s"`
	Mean       float64     `json:"mean"`
	Interval95 *[2]float64 `json:"interval_95"`
}

// measure is one figure of a run that arms are compared by.
type measure struct {
	key, name string
	value     func(ArmRun) float64
	print     func(float64) string
}

func decimalsOf(n int) func(float64) string { return func(v float64) string { return Figure(v, n) } }

// measures in the order of the table's columns.
var measures = []measure{
	{"held_out_accuracy", "held-out accuracy", func(r ArmRun) float64 { return r.Accuracy }, decimalsOf(3)},
	{"reward", "reward", func(r ArmRun) float64 { return r.Reward }, decimalsOf(3)},
	{"staleness_mean", "staleness", func(r ArmRun) float64 { return r.Staleness }, decimalsOf(2)},
	{"staleness_p95", "staleness p95", func(r ArmRun) float64 { return r.StalenessP95 }, decimalsOf(1)},
	{"wasted_share", "tokens wasted", func(r ArmRun) float64 { return r.WastedShare }, Share},
	{"steps", "train steps", func(r ArmRun) float64 { return r.Steps }, decimalsOf(0)},
	{"trained_tokens", "trained tokens", func(r ArmRun) float64 { return r.Tokens }, decimalsOf(0)},
	{"trainer_idle_ratio", "trainer idle", func(r ArmRun) float64 { return r.TrainerIdle }, Share},
	{"rollout_idle_ratio", "rollout idle", func(r ArmRun) float64 { return r.RolloutIdle }, Share},
	{"clip_fraction", "clip fraction", func(r ArmRun) float64 { return r.ClipFraction }, Share},
	{"length_ratio", "length, trained to started", func(r ArmRun) float64 { return r.LengthRatio }, decimalsOf(3)},
}

// wallTolerance is by how much wall times may differ and still be called equal.
const wallTolerance = 0.02

// Compare computes means and intervals over seeds.
func Compare(arms Arms) ArmsResult {
	result := ArmsResult{Title: arms.Title, WallS: arms.WallS, Seeds: seedsOf(arms), Warnings: doubts(arms)}
	for i, arm := range arms.Arms {
		a := ArmResult{Name: arm.Name, Note: arm.Note, Runs: len(arm.Runs), Figures: map[string]Estimate{}, Curve: curve(arm, arms.WallS)}
		for _, run := range arm.Runs {
			if run.Failed != "" {
				a.FailedRuns++
			}
		}
		for _, m := range measures {
			e, ok := estimate(values(arm, m))
			if !ok {
				continue
			}
			if i > 0 {
				if diff, ok := estimate(differences(arms.Arms[0], arm, m)); ok {
					e.Difference, e.Difference95 = &diff.Mean, diff.Interval95
				}
			}
			a.Figures[m.key] = e
		}
		result.Arms = append(result.Arms, a)
	}
	return result
}

// values are a figure's over the runs that have it.
func values(arm Arm, m measure) []float64 {
	var all []float64
	for _, run := range arm.Runs {
		if v := m.value(run); run.Failed == "" && finite(v) {
			all = append(all, v)
		}
	}
	return all
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// differences are a figure's from the base's, of runs with the same seed.
func differences(base, arm Arm, m measure) []float64 {
	var all []float64
	for _, run := range arm.Runs {
		i := slices.IndexFunc(base.Runs, func(b ArmRun) bool { return b.Seed == run.Seed && b.Failed == "" })
		if i < 0 || run.Failed != "" {
			continue
		}
		if d := m.value(run) - m.value(base.Runs[i]); finite(d) {
			all = append(all, d)
		}
	}
	return all
}

// estimate is the mean with its interval; ok is false without a value.
func estimate(values []float64) (e Estimate, ok bool) {
	if len(values) == 0 {
		return e, false
	}
	v := estimated.OfSeeds(values)
	e.Mean, e.Seeds = v.Mean, len(values)
	if v.Known() {
		e.Interval95 = &[2]float64{v.Low(), v.High()}
	}
	return e, true
}

func seedsOf(arms Arms) []uint64 {
	var seeds []uint64
	for _, arm := range arms.Arms {
		for _, run := range arm.Runs {
			if !slices.Contains(seeds, run.Seed) {
				seeds = append(seeds, run.Seed)
			}
		}
	}
	slices.Sort(seeds)
	return seeds
}

// doubts says what keeps a comparison from being a result.
func doubts(arms Arms) []string {
	var all []string
	seeds := seedsOf(arms)
	if len(seeds) == 1 {
		all = append(all, fmt.Sprintf("One seed is no result: every arm ran with seed %d alone, so that no difference below can be told from chance, and no interval is given.", seeds[0]))
	}
	for _, arm := range arms.Arms {
		var failed, uneven []string
		ran := 0
		for _, run := range arm.Runs {
			if run.Failed != "" {
				failed = append(failed, fmt.Sprintf("seed %d (%s)", run.Seed, run.Failed))
				continue
			}
			ran++
			if arms.WallS > 0 && math.Abs(run.WallS-arms.WallS) > wallTolerance*arms.WallS {
				uneven = append(uneven, fmt.Sprintf("seed %d %s s", run.Seed, Figure(run.WallS, 1)))
			}
		}
		if len(failed) > 0 {
			all = append(all, fmt.Sprintf("%s: %d of %d runs failed and enter no mean: %s.", arm.Name, len(failed), len(arm.Runs), strings.Join(failed, ", ")))
		}
		if len(uneven) > 0 {
			all = append(all, fmt.Sprintf("%s did not run for the common %s s: %s. Its figures are not at equal wall time.", arm.Name, Figure(arms.WallS, 0), strings.Join(uneven, ", ")))
		}
		if ran == 1 && len(seeds) > 1 {
			all = append(all, fmt.Sprintf("%s has one run: one seed is no result, and no interval is given.", arm.Name))
		}
		if len(arm.Runs) != len(seeds) {
			all = append(all, fmt.Sprintf("%s ran with %d of the %d seeds.", arm.Name, len(arm.Runs), len(seeds)))
		}
	}
	return all
}

// curvePoints is how many times a curve is given at.
const curvePoints = 60

// curve is an arm's held-out accuracy against wall time, at times that every run has reached.
func curve(arm Arm, wallS float64) []CurvePoint {
	var points []CurvePoint
	for k := 0; k <= curvePoints; k++ {
		t := wallS * float64(k) / curvePoints
		var at []float64
		complete := true
		for _, run := range arm.Runs {
			if run.Failed != "" {
				continue
			}
			v, ok := interpolate(run.Curve, t, wallS/curvePoints)
			complete = complete && ok
			at = append(at, v)
		}
		if e, ok := estimate(at); ok && complete {
			points = append(points, CurvePoint{t, e.Mean, e.Interval95})
		}
	}
	return points
}

// interpolate is the accuracy of a curve at a time between two of its points; up to slack
// beyond its ends it is that of the end.
func interpolate(curve []ArmPoint, t, slack float64) (float64, bool) {
	var before, after *ArmPoint
	for i := range curve {
		p := &curve[i]
		if !finite(p.Accuracy) {
			continue
		}
		if p.TimeS <= t {
			before = p
		} else if after == nil {
			after = p
		}
	}
	switch {
	case before != nil && after != nil:
		share := (t - before.TimeS) / (after.TimeS - before.TimeS)
		return before.Accuracy + share*(after.Accuracy-before.Accuracy), true
	case before != nil && t-before.TimeS <= slack:
		return before.Accuracy, true
	case after != nil && after.TimeS-t <= slack:
		return after.Accuracy, true
	}
	return 0, false
}
