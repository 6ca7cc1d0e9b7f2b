package doctor

import (
	"math"
	"sort"

	"github.com/headway-rl/headway/loop/workload"
)

// factor is how much longer than the modelled lengths those of some prompts are,
// and the share of groups that play such prompts.
type factor struct{ times, share float64 }

// promptFactorsMax bounds the prompts that are looked at one by one; a larger set
// has the distribution they are drawn from.
const promptFactorsMax = 1 << 16

// alikePrompts reports whether lengths are modelled, and as if all prompts were
// alike, which is what the closed forms of staleness and order statistics assume.
func (e *examination) alikePrompts() bool {
	return e.setting != nil && e.document.Modelled.Length.PromptSigma == 0
}

// promptFactors returns the factors of the prompts: those of the document's prompt
// set, all of them played equally often, or the lognormal where every group has a
// prompt of its own.
func (e *examination) promptFactors() []factor {
	sigma, count := e.document.Modelled.Length.PromptSigma, e.document.Prompts.Count
	if sigma == 0 {
		return []factor{{1, 1}}
	}
	if count > 0 && count <= promptFactorsMax {
		src := workload.NewSource(e.document.Seed, workload.StreamPromptScale)
		factors := make([]factor, count)
		for i := range factors {
			factors[i] = factor{workload.LognormalFactor(src, uint64(i)+1, sigma), 1 / float64(count)}
		}
		return factors
	}
	// The trapezoid rule, far enough out for the mean of the factor, which is z = σ from the middle.
	const cells, width = 1024, 12.0
	factors, total := make([]factor, cells+1), 0.0
	for i := range factors {
		z := width * (2*float64(i)/cells - 1)
		factors[i] = factor{math.Exp(sigma * (z - sigma/2)), math.Exp(-z * z / 2)}
		total += factors[i].share
	}
	for i := range factors {
		factors[i].share /= total
	}
	return factors
}

// longestTokens is the longest response any prompt can have: the model's where
// prompts are alike. Else the cap, which applies after the prompt's factor; without
// one there is no bound worth naming, and it is infinite.
func (e *examination) longestTokens() float64 {
	if e.alikePrompts() {
		return float64(e.setting.Lengths.Quantile(1))
	}
	if limit := e.document.Modelled.Length.CapTokens; limit > 0 {
		return float64(limit)
	}
	return math.Inf(1)
}

// meanTokens is the mean length over prompts, cap included, and short of rounding.
func (e *examination) meanTokens() float64 {
	lengths := e.setting.Lengths
	if e.alikePrompts() {
		return lengths.Mean()
	}
	limit := min(e.longestTokens(), workload.MaxTokens)
	values := lengths.Distribution()
	below := make([]float64, values.Len()+1) // E[L; L among the first i values]
	for i := range values.Len() {
		tokens, p := values.At(i)
		below[i+1] = below[i] + tokens*p
	}
	mean := 0.0
	for _, f := range e.promptFactors() {
		uncut := limit / f.times
		first := sort.Search(values.Len(), func(i int) bool { tokens, _ := values.At(i); return tokens > uncut })
		mean += f.share * (f.times*below[first] + limit*(1-lengths.CDF(uncut)))
	}
	return mean
}

// shareOver returns the share of rollouts longer than so many tokens, and of groups
// of n rollouts, independent but for their prompt, in which all are.
func (e *examination) shareOver(tokens, n int) (rollouts, groups float64) {
	if e.longestTokens() <= float64(tokens) {
		return 0, 0
	}
	for _, f := range e.promptFactors() {
		// The longest length that the factor, rounded, leaves within the limit.
		within := math.Ceil((float64(tokens)+0.5)/f.times) - 1
		if f.times == 1 {
			within = float64(tokens)
		}
		over := 1 - e.setting.Lengths.CDF(within)
		rollouts += f.share * over
		groups += f.share * math.Pow(over, float64(n))
	}
	return rollouts, groups
}

// load returns the effective ρ of the lengths that prompts really have, whose
// mean a cap moves, and a small set of prompts: rollouts take more or less time in
// proportion.
func (e *examination) load() (rho float64, ok bool) {
	p, ok := e.predict()
	if !ok || e.alikePrompts() {
		return p.Utilization, ok
	}
	if e.mean == 0 {
		e.mean = e.meanTokens()
	}
	time := func(tokens float64) float64 { return tokens / e.setting.DecodeTokensPerS }
	environment := 0.0
	if !e.setting.Environment.Zero() {
		environment = e.setting.Environment.Mean() / 1e9
	}
	return p.Utilization * (time(e.setting.Lengths.Mean()) + environment) / (time(e.mean) + environment), true
}
