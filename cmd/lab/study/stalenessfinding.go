package study

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// findings are sentences that the figures bear out: none is written where they do not.
func (r *StalenessResult) findings() []string {
	if r.Options.Seeds < 2 {
		return nil
	}
	var all []string
	all = append(all, r.worthOfFreshness()...)
	all = append(all, r.bestAtLags()...)
	all = append(all, r.rateFindings()...)
	all = append(all, r.predictionFindings()...)
	all = append(all, r.timeFindings()...)
	return all
}

// find is an arm of the result; nil where there is none.
func (r *StalenessResult) find(a stalenessArm) *StalenessArm {
	if i := slices.Index(r.arms, a); i >= 0 {
		return &r.Arms[i]
	}
	return nil
}

// lost reports whether an arm is worse than without lag by more than its interval.
func (a *StalenessArm) lost() bool { return a.AreaChange.below() }

// worthOfFreshness says, by correction, from which lag on staleness costs accuracy.
func (r *StalenessResult) worthOfFreshness() []string {
	var all []string
	for _, c := range r.Options.Corrections {
		var told []string
		first := 0
		for _, lag := range r.Options.Lags {
			a := r.find(stalenessArm{lag, c, 1, 1})
			if lag == 0 || a == nil {
				continue
			}
			told = append(told, fmt.Sprintf("%s at %d", a.AreaChange.starred(3), lag))
			if first == 0 && a.lost() {
				first = lag
			}
		}
		if len(told) == 0 {
			continue
		}
		when := "no lag that was tried costs more than its interval"
		if first > 0 {
			when = fmt.Sprintf("the first lag that costs more than its interval is %d", first)
		}
		all = append(all, fmt.Sprintf("**%s**: %s. Change of the mean accuracy over the steps, against fresh data: %s.", c, when, strings.Join(told, ", ")))
	}
	return all
}

// bestAtLags says which correction does best at each larger lag, and which are as good.
func (r *StalenessResult) bestAtLags() []string {
	var all []string
	for _, lag := range r.Options.Lags {
		best := r.extreme(lag, 1)
		if lag <= 2 || best < 0 {
			continue
		}
		a := &r.Arms[best]
		text := fmt.Sprintf("At lag %d the mean accuracy is highest with %s, %s", lag, a.Correction, a.Area.print(3))
		like, other := r.likeAtLag(best)
		if len(like) > 0 {
			text += "; not told apart from it: " + strings.Join(like, ", ")
		}
		if len(other) > 0 {
			text += "; worse: " + strings.Join(other, ", ")
		}
		all = append(all, text+".")
	}
	return all
}

// extreme is the index of the grid's arm at a lag with the highest mean accuracy, or with sign -1 the
// lowest; -1 where there is none.
func (r *StalenessResult) extreme(lag int, sign float64) int {
	at := -1
	for i := range r.Arms {
		if a := &r.Arms[i]; a.grid() && a.Lag == lag && (at < 0 || sign*a.Area.Mean > sign*r.Arms[at].Area.Mean) {
			at = i
		}
	}
	return at
}

// likeAtLag are the corrections that are not told apart from an arm at its lag, seed by seed, and those that
// are, with their differences.
func (r *StalenessResult) likeAtLag(at int) (like, other []string) {
	for i := range r.Arms {
		a := &r.Arms[i]
		if i == at || !a.grid() || a.Lag != r.Arms[at].Lag {
			continue
		}
		if e := r.between(i, at); e.clear() {
			other = append(other, fmt.Sprintf("%s (%s)", a.Correction, e.print(3)))
		} else {
			like = append(like, a.Correction)
		}
	}
	return like, other
}

// clear reports whether an interval leaves out 0; one seed has none.
func (e Estimate) clear() bool { return math.Abs(e.Mean) > e.Half }

// below reports whether an interval lies below 0.
func (e Estimate) below() bool { return e.Mean < -e.Half }

// between is the difference of two arms' mean accuracies, seed by seed.
func (r *StalenessResult) between(i, k int) Estimate {
	end := float64(r.Options.Steps)
	return difference(areas(r.runs[i], end), areas(r.runs[k], end))
}

// rateFindings say what another learning rate makes of fresh data, and of the largest lag under it.
func (r *StalenessResult) rateFindings() []string {
	var all []string
	most := slices.Max(r.Options.Lags)
	base := slices.Index(r.arms, stalenessArm{0, stalenessReference, 1, 1})
	for _, rate := range stalenessRates {
		at := slices.Index(r.arms, stalenessArm{0, stalenessReference, rate, 1})
		if at < 0 || base < 0 || most == 0 {
			continue
		}
		var told []string
		for _, c := range rateCorrections {
			a, full := slices.Index(r.arms, stalenessArm{most, c, rate, 1}), slices.Index(r.arms, stalenessArm{most, c, 1, 1})
			if a < 0 || full < 0 {
				continue
			}
			told = append(told, fmt.Sprintf("%s %s (%s to itself at the whole rate; final accuracy %s, clip fraction %s)", c, r.Arms[a].AreaChange.starred(3),
				r.between(a, full).starred(3), r.Arms[a].Final.print(3), r.Arms[a].ClipFraction.print(2)))
		}
		if len(told) > 0 {
			all = append(all, fmt.Sprintf("Learning rate × %g: fresh data has a mean accuracy of %s, %s to that at the whole rate. Lag %d costs, against fresh data at the same rate: %s.",
				rate, r.Arms[at].Area.print(3), r.between(at, base).starred(3), most, strings.Join(told, "; ")))
		}
	}
	all = append(all, r.turnedAround()...)
	if told := r.bestRates(); len(told) > 0 {
		all = append(all, "The rate with the highest mean accuracy, of those tried: "+strings.Join(told, "; ")+".")
	}
	return all
}

// turnedAround names corrections whose order at the largest lag is another one at another learning rate.
func (r *StalenessResult) turnedAround() []string {
	var all []string
	most := slices.Max(r.Options.Lags)
	at := func(c string, rate float64) int { return slices.Index(r.arms, stalenessArm{most, c, rate, 1}) }
	for _, rate := range stalenessRates {
		for i, a := range rateCorrections {
			for _, b := range rateCorrections[:i] {
				if at(a, rate) < 0 || at(b, rate) < 0 {
					continue
				}
				here, whole := r.between(at(a, rate), at(b, rate)), r.between(at(a, 1), at(b, 1))
				if here.clear() && whole.clear() && here.Mean*whole.Mean < 0 {
					all = append(all, fmt.Sprintf("The order turns around with the learning rate: at lag %d the mean accuracy with %s is %s to that with %s at the whole rate, and %s at × %g.", most, a, whole.print(3), b, here.print(3), rate))
				}
			}
		}
	}
	return all
}

// bestRates say at which learning rate fresh data, and each correction at the largest lag, does best.
func (r *StalenessResult) bestRates() []string {
	var told []string
	for _, c := range append([]string{stalenessReference}, rateCorrections...) {
		lag := slices.Max(r.Options.Lags)
		if c == stalenessReference {
			lag = 0
		}
		best, rates := -1, map[int]float64{}
		var tried []int
		for _, rate := range append([]float64{1}, stalenessRates...) {
			if i := slices.Index(r.arms, stalenessArm{lag, c, rate, 1}); i >= 0 {
				tried, rates[i] = append(tried, i), rate
				if best < 0 || r.Arms[i].Area.Mean > r.Arms[best].Area.Mean {
					best = i
				}
			}
		}
		if len(tried) < 2 {
			continue
		}
		text := fmt.Sprintf("lag %d, %s × %g", lag, c, rates[best])
		var like []string
		for _, i := range tried {
			if i != best && !r.between(i, best).below() {
				like = append(like, fmt.Sprintf("× %g", rates[i]))
			}
		}
		if len(like) > 0 {
			text += ", not told apart from " + strings.Join(like, " and ")
		}
		told = append(told, text)
	}
	return told
}

// predictionFindings compare the closed forms of off-policyness with what was measured.
func (r *StalenessResult) predictionFindings() []string {
	var all []string
	if len(r.Drift) > 1 {
		first, last := r.Drift[0], r.Drift[len(r.Drift)-1]
		all = append(all, fmt.Sprintf("The KL between versions of an on-policy learner grows as s^%s (theory: between 1 and 2). At %d and %d versions apart the clip fraction is %.3f and %.3f, where the closed form says %.3f and %.3f from the KL; ESS/N is %.3f and %.3f, where exp(−Var) says %.3f and %.3f.",
			r.DriftExponent.print(2), first.Lag, last.Lag, first.ClipFraction.Mean, last.ClipFraction.Mean, first.ClipPredicted.Mean, last.ClipPredicted.Mean,
			first.EffectiveSample.Mean, last.EffectiveSample.Mean, first.SamplePredicted.Mean, last.SamplePredicted.Mean))
	}
	var told []string
	for _, e := range r.Exponents {
		if !math.IsNaN(e.Exponent.Mean) {
			told = append(told, fmt.Sprintf("%s %s", e.Correction, e.Exponent.print(2)))
		}
	}
	if len(told) > 0 {
		all = append(all, "Exponent of the KL over lags, trained at that lag: "+strings.Join(told, ", ")+".")
	}
	return all
}

// timeFindings say which lag is best at equal time, what it is not told apart from, and what synchronous
// training would have to cost to do as well.
func (r *StalenessResult) timeFindings() []string {
	var all []string
	for i := range r.Hardware {
		h := &r.Hardware[i]
		best, like := h.best()
		var fresh []*TimedArm
		for k := range h.Arms {
			if h.Arms[k].Lag == 0 {
				fresh = append(fresh, &h.Arms[k])
			}
		}
		if best == nil || best.Lag == 0 || len(fresh) == 0 {
			continue
		}
		text := fmt.Sprintf("At equal time, %s: the mean accuracy over the time is highest at lag %d with %s, %s in %.0f steps.", h.Name, best.Lag, best.Correction, best.Area.print(3), best.Steps)
		if len(like) > 0 {
			text += " Not told apart from it: " + h.byLag(like) + "."
		}
		all = append(all, text)
		var told []string
		for _, a := range fresh {
			told = append(told, fmt.Sprintf("%s %s at a period of %.2f (%s to the highest)", a.Schedule, a.Area.print(3), a.Period, difference(a.areas, best.areas).starred(3)))
		}
		even := "it would come to as much as the highest at no period of a train step or more"
		if period, ok := r.breakEven(h, best); ok {
			even = fmt.Sprintf("it would come to as much as the highest at a period of %.2f", period)
			if period > trainShare {
				even += fmt.Sprintf(", which is colocated with slots that decode %.1f times as fast", h.barrier()/(period-trainShare))
			}
		}
		all = append(all, fmt.Sprintf("At equal time, %s, fresh data comes to: %s; %s.", h.Name, strings.Join(told, ", "), even))
		all = append(all, h.passFindings()...)
	}
	return all
}

// byLag names arms, those of a lag together.
func (h *TimedHardware) byLag(arms []*TimedArm) string {
	var all []string
	for _, p := range h.Prices {
		var names []string
		for _, a := range arms {
			switch {
			case a.Lag != p.Lag:
			case a.Schedule != "":
				names = append(names, a.Correction+" "+a.Schedule)
			default:
				names = append(names, a.Correction)
			}
		}
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("lag %d: %s", p.Lag, strings.Join(names, ", ")))
		}
	}
	return strings.Join(all, "; ")
}

// passFindings say what the forward pass of a correction costs at the lag where it does best.
func (h *TimedHardware) passFindings() []string {
	best := map[string]*TimedArm{}
	var names []string
	for k := range h.Arms {
		a := &h.Arms[k]
		if math.IsNaN(a.Pass.Mean) || a.Pass == (Estimate{}) {
			continue
		}
		if best[a.Correction] == nil {
			names = append(names, a.Correction)
		}
		if b := best[a.Correction]; b == nil || a.Area.Mean > b.Area.Mean {
			best[a.Correction] = a
		}
	}
	var told []string
	for _, name := range names {
		a := best[name]
		told = append(told, fmt.Sprintf("%s %s at lag %d", name, a.Pass.print(3), a.Lag))
	}
	if len(told) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("At equal time, %s, the forward pass for the log-probs of π_p costs, of the mean accuracy at the lag where each does best: %s.", h.Name, strings.Join(told, ", "))}
}
