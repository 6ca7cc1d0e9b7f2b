package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop/workload"
)

const (
	keyBand   = "filter.solve_rate"
	keyLevels = "filter.curriculum.levels"
)

// bandShareLeast is the share of groups in the band below which a filter starves
// the trainer or a curriculum has nothing to choose.
const bandShareLeast = 0.1

var bandChecks = []check{
	{Kind{
		Code: "band-empty", Severities: []Severity{Error}, Keys: []string{keyBand},
		When:  "no solve rate that a group of S can have is within the band, or only those that the zero-advantage filter takes: everything is filtered",
		Known: "arithmetic: a group solves k of S rollouts, k from 0 to S",
	}, (*examination).bandEmpty},
	{Kind{
		Code: "band-narrow", Severities: []Severity{Warning}, Keys: []string{keyBand},
		When:  "even at the best difficulty less than half of all groups fall into the band",
		Known: "arithmetic: the largest binomial probability of the solve rates within it, over all difficulties",
	}, (*examination).bandNarrow},
	{Kind{
		Code: "band-missed", Severities: []Severity{Warning}, Keys: []string{keyBand, keyLevels},
		When:  "with the modelled skill, less than 10 % of groups are within the band at version 0, or when the skill has grown: of the best level where there is a curriculum",
		Known: "closed form: the share of groups of S rollouts at `modelled.solve`'s rates",
	}, (*examination).bandMissed},
	{Kind{
		Code: "band-unreached", Severities: []Severity{Warning}, Keys: []string{keyBand},
		When:  "groups outside a band that begins above 0 are dropped, `modelled.solve` models no skill, and a run has no supervised warm-up: a policy that solves nothing yet never gets a batch to learn from",
		Known: "arithmetic: a group in the band solves at least ⌈low·S⌉ of its S rollouts, and an untrained policy may solve none",
	}, (*examination).bandUnreached},
}

// attainable lists the numbers of solved rollouts of a group that are within the
// band, and are not all or none where the zero-advantage filter takes those.
func (e *examination) attainable() []int {
	var counts []int
	s := e.rules.GroupSize
	for k := range s + 1 {
		if e.rules.FilterZeroAdvantage && (k == 0 || k == s) {
			continue
		}
		rate := float64(k) / float64(s)
		if rate >= e.rules.SolveLow-1e-9 && rate <= e.rules.SolveHigh+1e-9 {
			counts = append(counts, k)
		}
	}
	return counts
}

func (e *examination) bandEmpty() {
	if !e.rules.FilterSolveRate || len(e.attainable()) > 0 {
		return
	}
	s := e.rules.GroupSize
	f := e.add(Error, keyBand, Arithmetic)
	f.What = "every group is filtered: no group can have a solve rate within the band"
	f.Why = fmt.Sprintf("a group of %d has a solve rate of k/%d, and none is from %s to %s", s, s, short(e.rules.SolveLow), short(e.rules.SolveHigh))
	if e.rules.FilterZeroAdvantage {
		f.Why += " other than 0 and 1, which the zero-advantage filter takes"
	}
	f.Do = fmt.Sprintf("a band that holds a multiple of %s", short(1/float64(s)))
	f.Figures = Figures{{"solve_rate_low", e.rules.SolveLow}, {"solve_rate_high", e.rules.SolveHigh}, {"attainable_rates", 0}}
}

func (e *examination) bandNarrow() {
	counts := e.attainable()
	if !e.rules.FilterSolveRate || len(counts) == 0 {
		return
	}
	best, at := e.bestAcceptance(counts[0], counts[len(counts)-1])
	if best >= 0.5 {
		return
	}
	f := e.add(Warning, keyBand, Arithmetic)
	f.What = fmt.Sprintf("at most %s of groups fall into the band, at a difficulty of %s solved", percent(best), percent(at))
	f.Why = fmt.Sprintf("%s of the %d solve rates of a group of %d are from %s to %s, and chance spreads groups of one difficulty over several",
		short(float64(len(counts))), e.rules.GroupSize+1, e.rules.GroupSize, short(e.rules.SolveLow), short(e.rules.SolveHigh))
	f.Do = "a wider band, or larger groups"
	f.Figures = Figures{{"acceptance_max", best}, {"at_solve_rate", at}, {"attainable_rates", float64(len(counts))}}
}

// bestAcceptance is the largest probability that a group solves from low to high of
// its rollouts, each independently with the same probability, and that probability.
func (e *examination) bestAcceptance(low, high int) (best, at float64) {
	for i := range 1001 {
		rate := float64(i) / 1000
		if share := e.fixedShare(rate, low, high); share > best+1e-12 { // beyond rounding
			best, at = share, rate
		}
	}
	return best, at
}

// fixedShare is the probability that a group solves from low to high of its
// rollouts, each with probability rate.
func (e *examination) fixedShare(rate float64, low, high int) float64 {
	solve, err := workload.SolveSpec{Kind: workload.KindFixed, Rate: rate}.Build()
	if err != nil {
		e.err = err
		return 0
	}
	return solve.Share(e.rules.GroupSize, low, high, 0, 0)
}

func (e *examination) bandMissed() {
	counts := e.attainable()
	key := keyBand
	if e.rules.Levels > 0 {
		key = keyLevels
	}
	if !e.rules.FilterSolveRate && e.rules.Levels == 0 || len(counts) == 0 || e.err != nil {
		return
	}
	solve, err := e.document.SolveModel()
	if err != nil {
		e.err = err
		return
	}
	if solve.None() {
		return
	}
	last := int64(e.document.Modelled.Solve.Begin + e.document.Modelled.Solve.Steps)
	for _, at := range []struct {
		version int64
		when    string
	}{{0, "at the start"}, {last, fmt.Sprintf("from version %d on", last)}} {
		share := e.bandShare(solve, counts, at.version)
		if share >= bandShareLeast {
			continue
		}
		f := e.add(Warning, key, ClosedForm)
		f.What = fmt.Sprintf("%s %s of groups are within the band", at.when, percent(share))
		f.Why = fmt.Sprintf("the modelled solve rate is then %s, and the band is from %s to %s", short(solve.Rate(min(e.rules.Levels, 1), at.version)), short(e.rules.SolveLow), short(e.rules.SolveHigh))
		f.Do = "filter.curriculum with levels on both sides of the skill, or prompts of another difficulty, or a wider band"
		if e.rules.Levels > 0 {
			f.Why = fmt.Sprintf("no level's modelled solve rate is near the band, from %s to %s", short(e.rules.SolveLow), short(e.rules.SolveHigh))
			f.Do = "easier levels for the start and harder ones for the end, or a wider band"
		}
		f.Figures = Figures{{"share_in_band", share}, {"version", float64(at.version)}}
		return
	}
}

func (e *examination) bandUnreached() {
	counts := e.attainable()
	if !e.rules.FilterSolveRate || e.document.Environment.SupervisedSteps > 0 || len(counts) == 0 || counts[0] == 0 || e.err != nil {
		return
	}
	solve, err := e.document.SolveModel()
	if err != nil {
		e.err = err
		return
	}
	if !solve.None() { // its rates are examined instead
		return
	}
	f := e.add(Warning, keyBand, Arithmetic)
	f.What = fmt.Sprintf("headway run may train nothing: an untrained policy has to solve %d of %d rollouts for a group to be kept", counts[0], e.rules.GroupSize)
	f.Why = fmt.Sprintf("groups below a solve rate of %s are dropped, and a policy that solves nothing yet gives no other; without a batch it learns nothing", short(e.rules.SolveLow))
	f.Do = "environment.supervised_steps, so that it solves some before; or filter.solve_rate.drop off, with filter.curriculum to choose prompts"
	f.Figures = Figures{{"solve_rate_low", e.rules.SolveLow}, {"least_solved", float64(counts[0])}, {"supervised_steps", 0}}
}

// bandShare is the share of groups within the band at a version, of the level that
// has the most.
func (e *examination) bandShare(solve *workload.Solve, counts []int, version int64) float64 {
	low, high := counts[0], counts[len(counts)-1]
	if e.rules.Levels == 0 {
		return solve.Share(e.rules.GroupSize, low, high, 0, version)
	}
	best := 0.0
	for level := 1; level <= e.rules.Levels; level++ {
		best = max(best, solve.Share(e.rules.GroupSize, low, high, level, version))
	}
	return best
}
