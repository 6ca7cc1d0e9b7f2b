package study

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// small runs the small grid.
func small(t *testing.T, steps int) Accuracy {
	t.Helper()
	a, err := RunAccuracy(t.Context(), AccuracyOptions{Small: true, Steps: steps}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAccuracyHolds: on the small grid the corrected theory is within everything
// that docs/theory-accuracy.md publishes of the whole one, and better than the published
// form it corrects.
func TestAccuracyHolds(t *testing.T) {
	a := small(t, 0)
	if len(a.Rows) < 30 || len(a.Rows) > 60 {
		t.Errorf("%d cells, want 30 to 60", len(a.Rows))
	}
	for _, v := range a.Checks() {
		if !v.Holds {
			t.Errorf("%s: %.4g, want %.4g", v.Claim, v.Measured, v.Want)
		}
	}
	last := len(a.Forms) - 1
	for name, keep := range map[string]func(AccuracyRow) bool{"outside": outside, "inside": inside} {
		before, after := a.Total(0, keep), a.Total(last, keep)
		if after.MeanError > before.MeanError*0.6 {
			t.Errorf("%s: corrected mean error %.4f, published %.4f: the corrections buy too little", name, after.MeanError, before.MeanError)
		}
		if after.DroppedWorst > 0.03 {
			t.Errorf("%s: the share dropped is off by %.3f", name, after.DroppedWorst)
		}
		if after.TokenError == 0 || after.TokenError > 0.01 || after.TokenWorst > 0.05 || before.TokenError != 0 {
			t.Errorf("%s: mean staleness of tokens off by %.4f, at most %.4f; published %.4f", name, after.TokenError, after.TokenWorst, before.TokenError)
		}
	}
	for _, r := range a.Rows {
		if !r.Covered {
			t.Errorf("%s is not covered: %s", r.name(), r.Reason)
		}
	}
	var document bytes.Buffer
	if err := AccuracyMarkdown(&document, a, Provenance{}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"## What it is held to", "### Outside ρ 0.9–1.1", "## Quantiles", "token error", "fitted"} {
		if !strings.Contains(document.String(), part) {
			t.Errorf("the document has no %q", part)
		}
	}
}

// TestAccuracyIsDeterministic: a cell gives the same figures again.
func TestAccuracyIsDeterministic(t *testing.T) {
	cells := accuracyCells(true)[:3]
	estimators, err := accuracyEstimators(cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		var rows [2]AccuracyRow
		for i := range rows {
			if rows[i], err = accuracyRow(c, estimators[keyOf(c)], AccuracyOptions{Steps: 200, Seed: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(rows[0], rows[1]) {
			t.Errorf("%s: %+v, then %+v", c.name(), rows[0], rows[1])
		}
	}
}

// TestAccuracyGrid: the whole grid is what is published, the small one a part of
// it with every value but tailness 0.
func TestAccuracyGrid(t *testing.T) {
	whole, part := accuracyCells(false), accuracyCells(true)
	if len(whole) != 13*3*5*4*4 {
		t.Errorf("%d cells", len(whole))
	}
	for _, c := range heldOutCells() {
		if slices.Contains(accuracyQueue, c.QueueFactor) && slices.Contains(accuracyTailness, c.Tailness) || c.Batch%c.GroupSize != 0 || c.counted() {
			t.Errorf("%s is not held out", c.name())
		}
	}
	seen := map[[2]float64]bool{}
	for _, c := range part {
		if !slices.Contains(whole, c) {
			t.Errorf("%s is not of the grid", c.name())
		}
		for i, v := range []float64{c.Rho, c.QueueFactor, c.Tailness, c.Load, float64(c.GroupSize)} {
			seen[[2]float64{float64(i), v}] = true
		}
	}
	if want := 13 + 3 + 4 + 4 + 4; len(seen) != want {
		t.Errorf("%d values of axes in the small grid, want %d", len(seen), want)
	}
}

// TestVerdictsCanFail: a form that is off does not hold.
func TestVerdictsCanFail(t *testing.T) {
	row := func(rho, mean float64, p50, p99 int, period float64) AccuracyRow {
		return AccuracyRow{AccuracyCell: AccuracyCell{Rho: rho, QueueFactor: 2, Tailness: 50, Load: 1, GroupSize: 8, Batch: 128},
			Simulated: AccuracyFigures{Mean: 2, P50: 2, P95: 3, P99: 4, Period: 1},
			Forms:     []AccuracyFigures{{Mean: mean, P50: p50, P95: 3, P99: p99, Period: period}}}
	}
	a := Accuracy{Forms: AccuracySteps[:1], Rows: []AccuracyRow{row(0.5, 2, 2, 4, 1), row(1, 2, 2, 4, 1)}}
	for _, v := range a.Checks() {
		if !v.Holds {
			t.Errorf("exact figures: %s does not hold", v.Claim)
		}
	}
	a.Rows = []AccuracyRow{row(0.5, 2.2, 3, 6, 1.03), row(1, 1.8, 2, 4, 1)}
	for _, v := range a.Checks() {
		if v.Holds {
			t.Errorf("figures that are off: %s holds with %g", v.Claim, v.Measured)
		}
	}
	if worst := a.worst(0, 1, outside); len(worst) != 1 || math.Abs(worst[0].ErrorOf(0)-0.1) > 1e-12 {
		t.Errorf("worst cells %+v", worst)
	}
}

// TestAccuracyStops: with the context, at once.
func TestAccuracyStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stop := func(done, _ int) {
		if done == 2 {
			cancel()
		}
	}
	if _, err := RunAccuracy(ctx, AccuracyOptions{}, stop); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}
