package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// advisedFrom is the least worth of a change that is advised: see [worth].
const advisedFrom = 0.03

// First says what to expect, and which single changes buy most.
func (a Answer) First(in theory.Input) report.Answer {
	mean, period := a.mean(), a.period()
	first := report.Answer{Verdict: regimeSentence(in, a.Prediction) + a.outsideBinds() + " " + a.expected(mean, period), Rest: "--full has the figures, all levers and their conditions, --json all."}
	if a.Simulated != nil && !a.Simulated.Settled {
		first.Notes = append(first.Notes, "no mean is printed: "+a.Simulated.Why+".")
	}
	if a.Target != nil {
		first.Notes = append(first.Notes, "the target: "+a.Target.Says+".")
		first.Advice = a.Target.advice()
		return first
	}
	levers := slices.DeleteFunc(slices.Clone(a.Levers), func(l theory.Lever) bool { return worth(l, in, mean) < advisedFrom || slows(l, in) })
	slices.SortStableFunc(levers, func(x, y theory.Lever) int { return cmp.Compare(worth(y, in, mean), worth(x, in, mean)) })
	for _, l := range levers {
		first.Advice = append(first.Advice, advised(l, in, mean))
	}
	return first
}

// outsideBinds names the service that binds in the place of generation, "" where none does.
func (a Answer) outsideBinds() string {
	if a.Simulated == nil || a.Regime != theory.RolloutBound || a.Simulated.Binding == "rollout" || a.Simulated.Binding == "train" {
		return ""
	}
	return " What binds: " + a.Simulated.Binding + "."
}

// mean is the staleness that is expected, NaN where it is not known.
func (a Answer) mean() float64 { return a.Corrected.Mean.Or(a.Staleness.Mean.Or(math.NaN())) }

// period is the time between updates over the train step, NaN where it is not known.
func (a Answer) period() float64 {
	return a.Corrected.Period.RelativeToStep.Or(a.Period.RelativeToStep.Or(math.NaN()))
}

// expected are the figures of a prediction in a sentence.
func (a Answer) expected(mean, period float64) string {
	text := fmt.Sprintf("Expect staleness %s versions (p95 %s)", report.Figure(mean, 2), a.Staleness.P95.Format(0))
	if s, known := a.Period.S.Value(); known {
		text += fmt.Sprintf(", an update every %s s", report.Figure(a.Corrected.Period.S.Or(s), 2))
	} else if !math.IsNaN(period) {
		text += fmt.Sprintf(", an update every %s train steps", report.Figure(period, 2))
	}
	return text + ", by " + a.Basis + "."
}

// after is a lever's staleness.
func after(l theory.Lever) float64 { return l.CorrectedMean.Or(l.StalenessMean.Or(math.NaN())) }

// updateRatio is the time of an update with a lever over that without it, each worth the root of its batch.
func updateRatio(l theory.Lever, in theory.Input) float64 {
	return l.PeriodRatio.Or(math.NaN()) * math.Sqrt(in.BatchRollouts/cmp.Or(l.Setting.BatchRollouts, in.BatchRollouts))
}

// worth is by what share a lever betters staleness and the time of an update together, in logarithms; 0 where it
// is not known. A staleness below a tenth of a version has no more to give.
func worth(l theory.Lever, in theory.Input, mean float64) float64 {
	gain := math.Log(math.Max(mean, 0.1)/math.Max(after(l), 0.1)) - math.Log(updateRatio(l, in))
	if math.IsNaN(gain) || math.IsInf(gain, 0) {
		return 0
	}
	return gain
}

// advised words a lever.
func advised(l theory.Lever, in theory.Input, mean float64) report.Advice {
	return report.Advice{Do: l.Change, Buys: fmt.Sprintf("staleness %s instead of %s, period × %s", report.Figure(after(l), 2), report.Figure(mean, 2), l.PeriodRatio.Format(2)), Price: l.Note}
}

// slows reports whether a lever puts more rollouts on the same engines. It is priced at the decode speed of a slot as
// it is, which real engines do not keep, so that it is listed and not advised.
func slows(l theory.Lever, in theory.Input) bool {
	return l.Name == "concurrency" && l.Setting.ConcurrencyRollouts > in.ConcurrencyRollouts
}

// advice is which changes train more under the target, the best first.
func (a *TargetAnswer) advice() []report.Advice {
	var list []report.Advice
	levers := slices.DeleteFunc(slices.Clone(a.Levers), func(l TargetLever) bool {
		return l.ThroughputRatio == nil || l.HeldShare == nil || *l.ThroughputRatio < 1+advisedFrom
	})
	slices.SortStableFunc(levers, func(x, y TargetLever) int { return cmp.Compare(*y.ThroughputRatio, *x.ThroughputRatio) })
	for _, l := range levers {
		list = append(list, report.Advice{Do: l.Change, Buys: fmt.Sprintf("rollouts trained a second × %s, the target held in %s of the steps", report.Figure(*l.ThroughputRatio, 2), report.Share(*l.HeldShare))})
	}
	return list
}
