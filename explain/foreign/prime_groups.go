package foreign

import (
	"fmt"
	"math"
)

const (
	primeGroups = "mean over groups of the version trained from − their first version (traces)"
	primeScaled = "off_policy/mean + what the staleness of groups is above it in the steps with traces"
	primeReady  = "off_policy/in_flight/mean + what the steps with traces say that groups wait longer (siblings, scoring, the sync's lag)"
	primeQueued = "staleness of groups − pqs"
)

// primeSplit takes staleness and its parts from the groups in the traces. The steps without traces, which are most where
// only some are kept, have the same of single rollouts: what groups have beyond them is taken from those with.
func primeSplit(v Values, log *Log) {
	byStep := trainedGroups(log)
	if len(byStep) == 0 || splitGiven(log) {
		return
	}
	ends, clocked := newStepEnds(log, func(*Step) float64 { return 0 }, func(s *Step) float64 { return float64(s.Step) })
	if !clocked {
		warnOfClocks(log, 0, 0)
		return
	}
	split := map[int64]readiness{}
	disagreed, groups := 0, 0
	for step, of := range byStep {
		var r readiness
		whole := true
		for _, rollouts := range of {
			g, known := groupReady(rollouts)
			whole = whole && known
			groups++
			if known && !r.add(ends, g) {
				disagreed++
			}
		}
		if whole {
			split[step] = r
		}
	}
	if float64(disagreed) > disagreeMax*float64(groups) {
		warnOfClocks(log, disagreed, groups)
		return
	}
	primeFill(v, log, split)
}

// groupReady is a group of rollouts, known if all of them say when and from which versions.
func groupReady(rollouts []Rollout) (g readyGroup, known bool) {
	g = readyGroup{oldest: math.Inf(1), newest: math.Inf(-1), trained: rollouts[0].Trained.Value}
	for _, r := range rollouts {
		if !r.EndS.Known() || !r.Start.Known() || !r.End.Known() {
			return g, false
		}
		g.oldest, g.newest, g.readyS = min(g.oldest, r.Start.Value), max(g.newest, r.End.Value), max(g.readyS, r.EndS.Value)
	}
	return g, true
}

// tracedMin is how many steps must have traces before those without are judged by them.
const tracedMin = 4

// primeFill sets the steps with traces, and the others by what those say.
func primeFill(v Values, log *Log, split map[int64]readiness) {
	var totals, befores []float64 // what groups have beyond rollouts, by step
	without := 0
	for i := range log.Series {
		at := &log.Series[i]
		started, flight, known := primeOfRollouts(v, at)
		r, traced := split[at.Step]
		switch {
		case known && traced:
			totals, befores = append(totals, r.total/r.groups-started), append(befores, r.before/r.groups-flight)
		case at.StalenessMean.Known() && !traced:
			without++
		}
	}
	if without > 0 && len(befores) < tracedMin {
		log.Warnings = append(log.Warnings, Warning{Count: 1, Text: fmt.Sprintf("the parts of staleness (pqs, iqs) are left unknown: %d steps have traces, %d none; from %d with traces on the others are judged by them", len(split), without, tracedMin)})
		return
	}
	moreTotal, _ := meanAndMargin(totals)
	moreBefore, margin := meanAndMargin(befores)
	for i := range log.Series {
		at := &log.Series[i]
		started, flight, known := primeOfRollouts(v, at)
		if r, traced := split[at.Step]; traced {
			r.put(at)
			at.StalenessMean = Figure{r.total / r.groups, Inferred, primeGroups}
		} else if known {
			staleness := started + moreTotal
			pqs := math.Max(0, math.Min(flight+moreBefore, staleness))
			at.StalenessMean = Figure{staleness, Inferred, primeScaled}
			at.PQS, at.IQS = Figure{pqs, Inferred, primeReady}, Figure{staleness - pqs, Inferred, primeQueued}
		}
	}
	log.Inferred = append(log.Inferred, Staleness.Name+" = "+primeGroups, PreQueue.Name+" = "+readyFormula, InQueue.Name+" = "+queuedFormula)
	if without > 0 {
		log.Inferred = append(log.Inferred, Staleness.Name+" = "+primeScaled, PreQueue.Name+" = "+primeReady)
		log.Warnings = append(log.Warnings, Warning{Count: 1, Text: fmt.Sprintf("%d of %d steps have traces: the mean pqs and iqs can be off by %.2f versions, to one side each, their sum by far less; the traces of more steps would say it better", len(split), len(split)+without, margin)})
	}
}

// meanAndMargin is a mean with two standard errors of it.
func meanAndMargin(values []float64) (mean, margin float64) {
	n := float64(len(values))
	if n < 2 {
		return append(values, 0)[0], 0
	}
	for _, value := range values {
		mean += value / n
	}
	squares := 0.0
	for _, value := range values {
		squares += (value - mean) * (value - mean)
	}
	return mean, 2 * math.Sqrt(squares/(n-1)/n)
}

// primeOfRollouts is what a step logged of single rollouts: staleness, and its part before the last token.
func primeOfRollouts(v Values, step *Step) (started, flight float64, known bool) {
	v.at = v.table.rows[floorDivide(step.Step, v.table.width)]
	started, ok := v.Get("off_policy/mean")
	flight, there := v.Get("off_policy/in_flight/mean")
	return started, flight, ok && there
}
