package diagnosis

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

const (
	// versionScale is the least staleness that a drift is measured by: what is below half a
	// version may move by more than a share of itself.
	versionScale = 0.5
	// stepsMin is the least number of train steps that a judged window has.
	stepsMin = 2 * estimate.ValuesMin
)

// settle finds the longest window at a run's end whose means have settled: after its
// warm-up, else after more and more of it, else after the last absence. Where none has, it says why and for how long.
func settle(steps []metrics.Step, warmup loop.Version, absences spells) Settled {
	n := len(steps)
	begin := 0
	for begin < n && steps[begin].Step <= warmup {
		begin++
	}
	if warmup == 0 {
		begin = detected(steps)
	}
	first := judged(steps[begin:], absences)
	first.FromStep = fromStep(steps, begin)
	if first.OK {
		return first
	}
	for _, cut := range cuts(steps, begin, absences) {
		if n-cut < 2*stepsMin {
			break
		}
		if v := judged(steps[cut:], absences); v.OK {
			v.FromStep = fromStep(steps, cut)
			return v
		}
	}
	return first
}

// cuts are where windows are tried to begin, in order, if the one that begins first has not settled.
func cuts(steps []metrics.Step, begin int, absences spells) []int {
	var list []int
	for _, share := range []float64{0.1, 0.25, 0.4, 0.5, 0.6, 0.7} {
		list = append(list, begin+int(share*float64(len(steps)-begin)))
	}
	if n := len(absences); n > 0 {
		if cut := stepAfter(steps, absences[n-1].version) + 1; cut > begin && cut < len(steps) {
			list = append(list, cut)
		}
	}
	slices.Sort(list)
	return list
}

// stepAfter is the index of the step that came after a version, whose period a spell that began at it is in; all of them
// where none did.
func stepAfter(steps []metrics.Step, version loop.Version) int {
	return sort.Search(len(steps), func(i int) bool { return steps[i].Step > version })
}

// fromStep is the version after which a window begins.
func fromStep(steps []metrics.Step, begin int) int64 {
	if begin == 0 {
		return 0
	}
	return int64(steps[begin-1].Step)
}

// detected is where the transients of staleness and period end.
func detected(steps []metrics.Step) int {
	x, p := make([]float64, len(steps)), make([]float64, len(steps))
	for i := range steps {
		x[i], p[i] = steps[i].Staleness, float64(steps[i].PeriodNS)
	}
	return max(estimate.Warmup(x).Steps, estimate.Warmup(p).Steps)
}

// judged says whether the means over some steps have settled.
func judged(steps []metrics.Step, absences spells) Settled {
	s := judgeSeries(stepsMin,
		column(steps, func(s *metrics.Step) float64 { return s.Staleness }),
		column(steps, func(s *metrics.Step) float64 { return float64(s.PeriodNS) / 1e9 }))
	in := absences.within(steps)
	share := float64(in.sums().toNS) / math.Max(float64(timeOf(steps)), 1)
	if len(steps) < stepsMin || share <= absentMost || len(in) >= absencesMany {
		return s
	}
	s.OK, s.Why = false, fmt.Sprintf("the trainer was absent for %s of the time of these %d train steps, so that their means are not those of a run that trains", report.Share(share), len(steps))
	s.MoreSteps = max(2*stepsMin-int64(steps[len(steps)-1].Step-in[len(in)-1].version-1), 1)
	return s
}

// absentMost is the share of a window's time from which on a trainer's absences make its means those of nothing that a
// setting changes, but for many of them: a pause after every so many steps is the trainer's own way.
const (
	absentMost   = 0.1
	absencesMany = 10
)

// timeOf is how long some steps took, in ns.
func timeOf(steps []metrics.Step) (ns int64) {
	for i := range steps {
		ns += steps[i].PeriodNS
	}
	return ns
}

// judgeSeries says it of staleness and period, either of which may be missing; least values are the fewest.
func judgeSeries(least int, staleness, periods []float64) Settled {
	n := max(len(staleness), len(periods))
	s := Settled{Steps: int64(n)}
	if n < least {
		s.MoreSteps = int64(least - n)
		s.Why = fmt.Sprintf("%s: at least %d are needed to tell", values(n), least)
		return s
	}
	s.OK = true
	var whys []string
	more, endless := 0.0, false
	add := func(what string, x []float64, v estimate.Settling) {
		if v.OK() {
			return
		}
		s.OK = false
		whys = append(whys, because(what, v, len(x)))
		if math.IsNaN(v.More) {
			endless = true
			return
		}
		more = math.Max(more, v.More)
	}
	if len(staleness) > 0 {
		mean := estimate.OfSeries(staleness).Mean
		add("the mean staleness", staleness, estimate.SettlingOf(staleness, math.Max(mean, versionScale)))
	}
	if len(periods) > 0 {
		add("the train period", periods, estimate.SettlingOf(periods, 0))
	}
	s.Why = strings.Join(whys, "; ")
	if !endless {
		s.MoreSteps = int64(math.Ceil(more))
	}
	return s
}

// because says why a mean has not settled.
func because(what string, v estimate.Settling, n int) string {
	switch v.Cause {
	case estimate.Transient:
		return fmt.Sprintf("%s is still in its transient as the %d steps begin", what, n)
	case estimate.Trend:
		return fmt.Sprintf("%s drifts by %s over %d steps, around %s", what, report.Figure(v.Drift, 3), n, report.Figure(v.Interval.Mean, 3))
	}
	return fmt.Sprintf("%s wanders so slowly that %d steps are worth only %s independent ones", what, n, report.Figure(v.Independent, 0))
}

func values(n int) string {
	if n == 1 {
		return "1 value of a step"
	}
	return fmt.Sprintf("%d values of steps", n)
}

func column(steps []metrics.Step, f func(*metrics.Step) float64) []float64 {
	x := make([]float64, len(steps))
	for i := range steps {
		x[i] = f(&steps[i])
	}
	return x
}
