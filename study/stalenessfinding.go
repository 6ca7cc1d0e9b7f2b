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
func (a *StalenessArm) lost() bool { return a.AreaChange.Mean < -a.AreaChange.Half }

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
		var best *StalenessArm
		var at int
		for i := range r.Arms {
			if a := &r.Arms[i]; a.grid() && a.Lag == lag && lag > 2 && (best == nil || a.Area.Mean > best.Area.Mean) {
				best, at = a, i
			}
		}
		if best == nil {
			continue
		}
		var like, worse []string
		for i := range r.Arms {
			a := &r.Arms[i]
			if i == at || !a.grid() || a.Lag != lag {
				continue
			}
			if e := r.between(i, at); e.Mean < -e.Half {
				worse = append(worse, fmt.Sprintf("%s (%s)", a.Correction, e.print(3)))
			} else {
				like = append(like, a.Correction)
			}
		}
		text := fmt.Sprintf("At lag %d %s does best (mean accuracy %s)", lag, best.Correction, best.Area.print(3))
		if len(like) > 0 {
			text += "; not to be told from it: " + strings.Join(like, ", ")
		}
		if len(worse) > 0 {
			text += "; worse: " + strings.Join(worse, ", ")
		}
		all = append(all, text+".")
	}
	return all
}

// between is the difference of two arms' mean accuracies, seed by seed.
func (r *StalenessResult) between(i, k int) Estimate {
	var values []float64
	end := float64(r.Options.Steps)
	for seed := range r.runs[i] {
		values = append(values, r.runs[i][seed].area(end)-r.runs[k][seed].area(end))
	}
	return estimateOf(values)
}

// rateFindings say whether a smaller learning rate buys stability back.
func (r *StalenessResult) rateFindings() []string {
	var all []string
	most := slices.Max(r.Options.Lags)
	for _, c := range rateCorrections {
		full := r.find(stalenessArm{most, c, 1, 1})
		if full == nil {
			continue
		}
		var told []string
		for _, rate := range stalenessRates {
			if a := r.find(stalenessArm{most, c, rate, 1}); a != nil {
				told = append(told, fmt.Sprintf("× %g: final accuracy %s, mean %s, clip fraction %s", rate, a.Final.print(3), a.Area.print(3), a.ClipFraction.print(2)))
			}
		}
		if len(told) > 0 {
			all = append(all, fmt.Sprintf("Learning rate at lag %d, %s (full rate: final accuracy %s, mean %s, clip fraction %s): %s.",
				most, c, full.Final.print(3), full.Area.print(3), full.ClipFraction.print(2), strings.Join(told, "; ")))
		}
	}
	return all
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

// timeFindings say which lag is best at equal time.
func (r *StalenessResult) timeFindings() []string {
	var all []string
	for i := range r.Hardware {
		h := &r.Hardware[i]
		var best, fresh *TimedArm
		for k := range h.Arms {
			a := &h.Arms[k]
			if best == nil || a.Area.Mean > best.Area.Mean {
				best = a
			}
			if a.Lag == 0 {
				fresh = a
			}
		}
		if best == nil || fresh == nil {
			continue
		}
		all = append(all, fmt.Sprintf("At equal time, %s: lag %d with %s is best, mean accuracy over the time %s against %s for fresh data, which makes %.0f of its %.0f steps.",
			h.Name, best.Lag, best.Correction, best.Area.print(3), fresh.Area.print(3), fresh.Steps, best.Steps))
	}
	return all
}
