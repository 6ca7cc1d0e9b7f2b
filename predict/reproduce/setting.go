package reproduce

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// nsPerToken is the decode time of a token in every simulation of a setting.
// Staleness does not depend on it; periods are given relative to the train step.
const nsPerToken = 2e7

// setting is what the theory speaks of: one asynchronous loop in its own units.
type setting struct {
	// slots is C, batch B and group S, in rollouts; batch is a multiple of group.
	slots, batch, group int
	// queue is q, rho is ρ.
	queue, rho float64
	lengths    *workload.Lengths
	// promptSigma is the spread of the prompts' own length factor; 0 for none.
	promptSigma float64
	// budget is queue-max's, in versions; negative for queue-drop.
	budget int
	// times makes every length and the train step that many times longer; 0 is once.
	times int
}

// input is the setting as the closed forms take it.
func (s setting) input() theory.Input {
	in := theory.Input{
		ConcurrencyRollouts: float64(s.slots), BatchRollouts: float64(s.batch), GroupSize: s.group,
		QueueFactor: s.queue, Utilization: s.rho, Lengths: s.lengths,
	}
	if s.budget >= 0 {
		in.Policy, in.MaxStaleness = theory.PolicyMax, s.budget
	}
	return in.WithDefaults()
}

// stepNS is the train step: ρ·B·E[L]·(time of a token)/C, of lengths that were not
// made longer yet, so that the longer step is an exact multiple.
func (s setting) stepNS() int64 {
	return int64(max(s.times, 1)) * int64(math.Round(s.rho*float64(s.batch)*s.lengths.Mean()*nsPerToken/float64(s.slots)))
}

// stretched are the lengths that are simulated.
func (s setting) stretched() (*workload.Lengths, error) {
	if s.times <= 1 {
		return s.lengths, nil
	}
	return workload.NewLengths(s.lengths.Distribution().Scale(float64(s.times)))
}

// simulation is the setting as one simulation.
func (s setting) simulation(seed uint64, warmup, measured int) (sim.Config, error) {
	if s.batch%s.group != 0 {
		return sim.Config{}, fmt.Errorf("reproduce: a batch of %d rollouts is not a whole number of groups of %d", s.batch, s.group)
	}
	acceptance, err := workload.NewAcceptance(1)
	if err != nil {
		return sim.Config{}, err
	}
	scale, err := workload.NewPromptScale(s.promptSigma, 0)
	if err != nil {
		return sim.Config{}, err
	}
	groups := s.batch / s.group
	rules := loop.Config{
		GroupSize: s.group, BatchGroups: groups, EngineSlots: []int{s.slots},
		QueueGroups: int(math.Round(s.queue * float64(groups))),
	}
	if s.budget >= 0 {
		rules.Policy, rules.MaxStaleness = loop.PolicyMax, loop.Version(s.budget)
	}
	lengths, err := s.stretched()
	if err != nil {
		return sim.Config{}, err
	}
	work := sim.NewModelled(seed, lengths, nil, acceptance, s.stepNS()).WithPromptScale(scale)
	return sim.Config{Loop: rules, Work: work, NSPerToken: nsPerToken, Warmup: warmup, Measured: measured}, nil
}

// lognormal are lengths as the article's simulator draws them.
func lognormal(mean, tailness float64, limit int) (*workload.Lengths, error) {
	return workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: mean, Tailness: tailness, CapTokens: limit}.Build()
}

// matched are independent lognormal lengths whose tail multiplier in groups of so
// many is the given one, by bisection of the tailness.
func matched(tail float64, group int) (*workload.Lengths, error) {
	low, high := 0.0, 100.0
	for range 20 {
		middle := (low + high) / 2
		d := workload.LognormalLengths(matchedMean, 1.3*middle/100, matchedCap)
		if d.MeanMax(group) < tail*d.Mean() {
			low = middle
		} else {
			high = middle
		}
	}
	lengths, err := lognormal(matchedMean, high, matchedCap)
	if err != nil {
		return nil, err
	}
	if got := lengths.TailMultiplier(group); math.Abs(got-tail) > 0.005 {
		return nil, fmt.Errorf("reproduce: no lognormal has a tail multiplier of %g in groups of %d; the nearest is %.3f", tail, group, got)
	}
	return lengths, nil
}

// matchedMean is the mean of lengths of which only the tail multiplier is published.
// Staleness does not depend on it. The cap is beyond what such tails reach.
const (
	matchedMean = 1400
	matchedCap  = 12 * matchedMean
)

// staleness of a simulation.
func staleness(s metrics.Summary) float64 { return s.Staleness.Mean }

// relativePeriod is the train period over the train step alone.
func relativePeriod(s metrics.Summary) float64 { return s.PeriodS.Mean / s.StepS.Mean }
