package study

import (
	"math"
	"slices"
)

// Tolerances that the corrected theory is held to, for tailness of 30 and more:
// outside ρ 0.9 to 1.1, inside it, and for the period.
const (
	ToleranceOutside = 0.02 // of the mean, in at least 95 % of cells
	ToleranceWorst   = 0.06 // of the mean, in every cell
	ToleranceInside  = 0.05 // of the mean, in at least 90 % of cells
	TolerancePeriod  = 0.02 // in every cell; near ρ = 1 with q = 1 [ToleranceLate]
	ToleranceLate    = 0.05
	ShareOutside     = 0.95
	ShareInside      = 0.90
	ShareExact       = 0.90 // of p50, p95 and p99
)

// AccuracyTotal sums up one form over some cells.
type AccuracyTotal struct {
	// Cells, and in how many of them the mean is within 2 %, 5 % and 6 %.
	Cells   int `json:"cells"`
	Within2 int `json:"within_2_percent"`
	Within5 int `json:"within_5_percent"`
	Within6 int `json:"within_6_percent"`
	// MeanError and WorstError of the mean staleness, relative; MeanVersions and
	// WorstVersions the same in versions.
	MeanError     float64 `json:"mean_error"`
	WorstError    float64 `json:"worst_error"`
	MeanVersions  float64 `json:"mean_error_versions"`
	WorstVersions float64 `json:"worst_error_versions"`
	// PeriodError is the mean, PeriodWorst the largest relative error of the period,
	// PeriodWithin in how many cells it is within its tolerance.
	PeriodError  float64 `json:"period_error"`
	PeriodWorst  float64 `json:"period_worst_error"`
	PeriodWithin int     `json:"period_within_tolerance"`
	// DroppedWorst is the largest error of the share dropped, absolute.
	DroppedWorst float64 `json:"dropped_worst_error"`
	// Exact counts exact p50, p95 and p99; TwoOff quantiles off by two or more. All 0
	// for the published form, which has none.
	Exact  [3]int `json:"exact_quantiles"`
	TwoOff int    `json:"quantiles_two_off"`
	// TokenError is the mean, TokenWorst the largest relative error of the tokens'
	// mean staleness; 0 for the published form.
	TokenError float64 `json:"token_mean_error"`
	TokenWorst float64 `json:"token_worst_error"`
	// Worst is the cell of WorstError.
	Worst AccuracyCell `json:"worst_cell"`
}

// ErrorOf is the relative error of a form's mean.
func (r AccuracyRow) ErrorOf(form int) float64 { return r.Forms[form].Mean/r.Simulated.Mean - 1 }

// periodTolerance is what a cell's period is held to.
func (c AccuracyCell) periodTolerance() float64 {
	if c.near() && c.QueueFactor == 1 {
		return ToleranceLate
	}
	return TolerancePeriod
}

// Total sums up one form over the rows that keep accepts.
func (a Accuracy) Total(form int, keep func(AccuracyRow) bool) AccuracyTotal {
	var t AccuracyTotal
	for _, r := range a.Rows {
		if keep(r) {
			t.add(r, form)
		}
	}
	if n := float64(t.Cells); n > 0 {
		t.MeanError, t.MeanVersions, t.PeriodError, t.TokenError = t.MeanError/n, t.MeanVersions/n, t.PeriodError/n, t.TokenError/n
	}
	return t
}

func (t *AccuracyTotal) add(r AccuracyRow, form int) {
	f := r.Forms[form]
	t.Cells++
	relative := math.Abs(r.ErrorOf(form))
	versions := math.Abs(f.Mean - r.Simulated.Mean)
	t.MeanError += relative
	t.MeanVersions += versions
	t.WorstVersions = max(t.WorstVersions, versions)
	if relative > t.WorstError {
		t.WorstError, t.Worst = relative, r.AccuracyCell
	}
	for _, within := range []struct {
		bound float64
		count *int
	}{{0.02, &t.Within2}, {0.05, &t.Within5}, {0.06, &t.Within6}} {
		if relative <= within.bound {
			*within.count++
		}
	}
	period := math.Abs(f.Period/r.Simulated.Period - 1)
	t.PeriodError += period
	t.PeriodWorst = max(t.PeriodWorst, period)
	if period <= r.periodTolerance() {
		t.PeriodWithin++
	}
	t.DroppedWorst = max(t.DroppedWorst, math.Abs(f.Dropped-r.Simulated.Dropped))
	if f.Token > 0 {
		token := math.Abs(f.Token/r.Simulated.Token - 1)
		t.TokenError += token
		t.TokenWorst = max(t.TokenWorst, token)
	}
	t.quantiles(f, r.Simulated)
}

// quantiles compares p50, p95 and p99; the published form has none.
func (t *AccuracyTotal) quantiles(f, simulated AccuracyFigures) {
	if f.P50 < 0 {
		return
	}
	for i, pair := range [3][2]int{{f.P50, simulated.P50}, {f.P95, simulated.P95}, {f.P99, simulated.P99}} {
		switch off := pair[0] - pair[1]; {
		case off == 0:
			t.Exact[i]++
		case off > 1 || off < -1:
			t.TwoOff++
		}
	}
}

// ClaimCheck is one line of what the theory is held to.
type ClaimCheck struct {
	Claim    string  `json:"claim"`
	Want     float64 `json:"want"`
	Measured float64 `json:"measured"`
	Holds    bool    `json:"holds"`
}

// Checks hold the corrected form to its tolerances.
func (a Accuracy) Checks() []ClaimCheck {
	last := len(a.Forms) - 1
	outside, inside := a.Total(last, outside), a.Total(last, inside)
	all := a.Total(last, func(r AccuracyRow) bool { return r.counted() })
	share := func(n, of int) float64 { return float64(n) / float64(max(of, 1)) }
	least := func(claim string, want, measured float64) ClaimCheck {
		return ClaimCheck{claim, want, measured, measured >= want}
	}
	exact := math.Inf(1)
	for _, n := range all.Exact {
		exact = min(exact, share(n, all.Cells))
	}
	return []ClaimCheck{
		least("share of cells outside ρ 0.9–1.1 with the mean within 2 %", ShareOutside, share(outside.Within2, outside.Cells)),
		{"largest error of the mean outside ρ 0.9–1.1", ToleranceWorst, outside.WorstError, outside.WorstError <= ToleranceWorst},
		least("share of cells inside ρ 0.9–1.1 with the mean within 5 %", ShareInside, share(inside.Within5, inside.Cells)),
		least("share of cells with p50, p95 and p99 exact, the least of the three", ShareExact, exact),
		{"quantiles two versions off", 0, float64(all.TwoOff), all.TwoOff == 0},
		least("share of cells with the period within 2 % (5 % at q = 1 near ρ = 1)", 1, share(all.PeriodWithin, all.Cells)),
	}
}

// outside and inside are the two regimes of the grid.
func outside(r AccuracyRow) bool { return r.counted() && !r.near() }
func inside(r AccuracyRow) bool  { return r.counted() && r.near() }

// worst are the rows with the largest errors of a form, most of all first.
func (a Accuracy) worst(form, count int, keep func(AccuracyRow) bool) []AccuracyRow {
	var rows []AccuracyRow
	for _, r := range a.Rows {
		if keep(r) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(x, y AccuracyRow) int {
		switch dx, dy := math.Abs(x.ErrorOf(form)), math.Abs(y.ErrorOf(form)); {
		case dx > dy:
			return -1
		case dx < dy:
			return 1
		}
		return 0
	})
	return rows[:min(count, len(rows))]
}
