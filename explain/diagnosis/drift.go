package diagnosis

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/report"
)

// What drift is looked for in.
const (
	driftLength     = "response_tokens"
	driftTail       = "tail_multiplier"
	driftSolve      = "solve_rate"
	driftAcceptance = "acceptance"
	driftStaleness  = "staleness"
	driftReward     = "reward"
	driftTruncated  = "truncated_share"
	driftStep       = "train_step_s"
)

// driftWords are their names in sentences, with their unit, "" for none; shares are printed as such.
var driftWords = map[string]struct {
	name, unit string
	share      bool
}{
	driftLength: {"mean response", " tokens", false}, driftTail: {"tail multiplier", "", false}, driftSolve: {"solve rate", "", true},
	driftAcceptance: {"acceptance", "", true}, driftStaleness: {"mean staleness", " versions", false}, driftReward: {"mean reward", "", false},
	driftTruncated: {"share cut at the length cap", "", true}, driftStep: {"train step", " s", false},
}

// driftFig prints a figure of what may drift.
func driftFig(what string, v float64) string {
	if driftWords[what].share {
		return report.Share(v)
	}
	return fig(v) + driftWords[what].unit
}

// driftLeast is the least change, as a share, that counts as one.
const driftLeast = 0.02

// drifts are how the workload moved over the window.
func (w *own) drifts() []Drift {
	var list []Drift
	ratio := func(what string, num, den func(*row) int64) {
		a, b := make([]float64, len(w.rows)), make([]float64, len(w.rows))
		for i := range w.rows {
			a[i], b[i] = float64(num(&w.rows[i])), float64(den(&w.rows[i]))
		}
		list = appendDrift(list, what, a, b, float64(w.tally.steps))
	}
	ratio(driftLength, func(r *row) int64 { return r.tokens }, func(r *row) int64 { return r.scored })
	// The longest of a ready group over the mean of all rollouts of the time: groups that were
	// ready in a step are others than those whose rollouts ended in it, but as many.
	tail, ones := make([]float64, 0, len(w.rows)), []float64(nil)
	for i := range w.rows {
		r := &w.rows[i]
		longest, all := r.longestNS, r.durationNS
		if all == 0 {
			longest, all = r.longestTokens, r.tokens
		}
		if r.ready > 0 && all > 0 {
			tail = append(tail, float64(longest)/float64(r.ready)/(float64(all)/float64(r.scored)))
		}
	}
	list = appendDrift(list, driftTail, tail, ones, float64(w.tally.steps))
	if w.summary.Signal.SolveRate > 0 {
		ratio(driftSolve, func(r *row) int64 { return r.solved }, func(r *row) int64 { return r.scored })
	}
	if w.summary.Acceptance < 1 {
		ratio(driftAcceptance, func(r *row) int64 { return r.ready - r.filtered }, func(r *row) int64 { return r.ready })
	}
	staleness, reward, stepS := make([]float64, len(w.steps)), make([]float64, len(w.steps)), make([]float64, len(w.steps))
	for i := range w.steps {
		staleness[i], reward[i], stepS[i] = w.steps[i].Staleness, w.steps[i].Reward, float64(w.steps[i].TrainNS)/1e9
	}
	list = appendDrift(list, driftStaleness, staleness, nil, 1)
	list = appendDrift(list, driftReward, reward, nil, 1)
	list = appendDrift(list, driftStep, stepS, nil, 1)
	return list
}

// appendDrift adds the drift of a series, or of the ratio of two; each value stands for so
// many steps. A series of nothing has none.
func appendDrift(list []Drift, what string, num, den []float64, each float64) []Drift {
	n := len(num)
	if n < 4*estimate.BatchesMin {
		return list
	}
	part := func(from, to int) estimate.Interval {
		if den == nil {
			return estimate.OfSeries(num[from:to])
		}
		return estimate.OfRatio(num[from:to], den[from:to])
	}
	first, last := part(0, n/4), part(n-n/4, n)
	if math.IsNaN(first.Mean) || math.IsNaN(last.Mean) || first.Mean == 0 && last.Mean == 0 {
		return list
	}
	apart := math.Abs(last.Mean - first.Mean)
	d := Drift{What: what, First: first.Mean, Last: last.Mean, PerStep: (last.Mean - first.Mean) / (0.75 * float64(n) * each)}
	// Two intervals that do not touch are further apart than a test at 5 % asks for: with eight
	// quantities, and runs looked at again and again, that is as strict as it should be.
	d.Sure = apart > orZero(first.Half)+orZero(last.Half) && apart > driftLeast*math.Max(math.Abs(first.Mean), math.Abs(last.Mean))
	return append(list, d)
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// interpret says what each drift leads to. The tail leads: a group that is open now is trained
// some versions later, and its longest rollout decides how many.
func (f *facts) interpret() {
	for i := range f.drift {
		d := &f.drift[i]
		if !d.Sure {
			continue
		}
		up := d.Last > d.First
		switch d.What {
		case driftTail:
			d.Means = f.tailMeans(d)
		case driftLength:
			d.Means = either(up, "generation and train steps take longer; staleness does not change with length alone, and the share cut at a cap grows",
				"generation and train steps take less time")
		case driftSolve:
			d.Means = either(up, "more groups are solved by all, which teach nothing: with a filter the acceptance falls, and with it the effective utilization",
				"fewer groups are solved: what solved none teaches nothing")
		case driftAcceptance:
			d.Means = either(up, "more of what is generated is trained on", "more is generated for nothing: the effective utilization falls with it, and the trainer waits")
		case driftStep:
			d.Means = either(up, "the trainer is slower: the utilization rises", "the trainer is faster: the utilization falls")
		}
	}
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// tailMeans forecasts the staleness at the tail of the last quarter.
func (f *facts) tailMeans(d *Drift) string {
	text := either(d.Last > d.First, "staleness follows: the pre-queue part grows with the tail", "staleness follows: the pre-queue part falls with the tail")
	if f.uncovered != "" || !f.staleness.known {
		return text
	}
	in := f.in
	in.TailMultiplier = min(max(in.TailMultiplier*d.Last/((d.First+d.Last)/2), 1), float64(in.GroupSize))
	p, ok := ClosedMean(in)
	base, covered := MeanOf(&f.predicted)
	if !ok || !covered || base == 0 {
		return text
	}
	return fmt.Sprintf("%s: about %s versions at the last quarter's tail", text, report.Figure(f.staleness.value*p/base, 2))
}
