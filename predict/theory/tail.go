package theory

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// tail is the shape of rollout and group times in units of the mean rollout,
// whichever way the input gave it.
type tail struct {
	multiplier float64               // M, of times if there is an environment
	group      workload.Distribution // longest sibling, mean multiplier
	rollout    workload.Distribution // one rollout, mean 1
	spread     float64               // coefficient of variation of one rollout
	meanSquare float64               // K₂ of lengths; 0 where it has no meaning
	maxSum     float64               // M_tok of lengths; 0 where it has no meaning
	assumed    bool                  // shape assumed lognormal from a bare multiplier
	shape      *shape                // what estimates look up
}

// tailOf resolves the tail of a valid input, for a decode time of so many ns a
// token where there is an environment.
func tailOf(in *Input, nsPerToken float64) (tail, error) {
	if in.Lengths == nil {
		return assumedTail(in.TailMultiplier, in.GroupSize)
	}
	mean := in.Lengths.Mean()
	t := tail{
		meanSquare: in.Lengths.MeanSquare() / (mean * mean),
		maxSum:     in.Lengths.MeanMaxSum(in.GroupSize) / (float64(in.GroupSize) * mean * mean),
	}
	times, unit := workload.NewRolloutTimes(in.Lengths, 1, nil, in.GroupSize), mean
	if !in.Environment.Zero() {
		times = workload.NewRolloutTimes(in.Lengths, nsPerToken, in.Environment, in.GroupSize)
		t.meanSquare, t.maxSum = 0, 0
		unit = times.Rollout.Mean()
	}
	t.rollout = times.Rollout.Scale(1 / unit)
	t.group = times.Group.Scale(1 / unit)
	t.multiplier = t.group.Mean()
	t.spread = deviation(t.rollout)
	t.shape = newShape(t.rollout, t.group, in.GroupSize)
	return t, nil
}

// nsPerToken is the decode time of a token that a valid input implies, 1 where
// nothing depends on it: s_R is the C-th part of v_R = ρ·B·E[L]/t_step.
func (in *Input) nsPerToken() float64 {
	if in.Environment.Zero() {
		return 1
	}
	return 1e9 * in.StepS * in.ConcurrencyRollouts / (in.Utilization * in.BatchRollouts * in.Lengths.Mean())
}

// overhead is e = E[environment]/E[generation].
func (in *Input) overhead() float64 {
	if in.Environment.Zero() {
		return 0
	}
	return in.Environment.Mean() / (in.nsPerToken() * in.Lengths.Mean())
}

// loneSigma is the log-spread assumed of rollouts that are groups of their own
// where only their multiplier is known, which is 1 whatever they are: that of
// tailness 50.
const loneSigma = 0.65

// assumedTail finds the lognormal with a given multiplier for groups of s.
func assumedTail(multiplier float64, s int) (tail, error) {
	if multiplier == 1 {
		one, err := workload.NewDistribution([]float64{1}, []float64{1})
		if s == 1 {
			// A lone rollout has no tail of siblings: its spread is not known.
			one = lognormalShape(loneSigma)
		}
		return tail{multiplier: 1, group: one, rollout: one, spread: deviation(one), meanSquare: one.MeanSquare(), maxSum: one.MeanSquare(), assumed: s == 1, shape: newShape(one, one, s)}, err
	}
	// Up to σ = 6 a lognormal is a believable length distribution. Multipliers
	// beyond it (close to s) keep the mean asked for on the shape of σ = 6.
	low, high := 1e-6, 6.0
	for range 60 {
		middle := (low + high) / 2
		if lognormalShape(middle).MeanMax(s) < multiplier {
			low = middle
		} else {
			high = middle
		}
	}
	one := lognormalShape(high)
	group := one.Max(s)
	group = group.Scale(multiplier / group.Mean())
	return tail{
		multiplier: multiplier,
		group:      group,
		rollout:    one,
		spread:     deviation(one),
		meanSquare: one.MeanSquare(),
		maxSum:     one.MeanMaxSum(s) / float64(s),
		assumed:    true,
		shape:      newShape(one, group, s),
	}, nil
}

// deviation is the standard deviation of a distribution of mean 1.
func deviation(d workload.Distribution) float64 { return math.Sqrt(max(d.MeanSquare()-1, 0)) }

// shapeCells is the resolution of the assumed lognormal: the means of equal
// slices of z, so that the mean is exact and E[max] good to 1e-4.
const shapeCells = 768

// lognormalShape is a lognormal of mean 1 and log-spread σ as conditional means
// of slices of the normal z: E[e^{σz−σ²/2}; a<z<b] = Φ(b−σ) − Φ(a−σ).
func lognormalShape(sigma float64) workload.Distribution {
	const first = -8.0
	step := (16 + sigma) / shapeCells
	values := make([]float64, 0, shapeCells)
	weights := make([]float64, 0, shapeCells)
	for i := range shapeCells {
		a := first + float64(i)*step
		b := a + step
		weight := slice(a, b)
		if weight <= 0 {
			continue
		}
		values = append(values, slice(a-sigma, b-sigma)/weight)
		weights = append(weights, weight)
	}
	d, err := workload.NewDistribution(values, weights)
	if err != nil {
		panic(fmt.Sprintf("theory: lognormal of sigma %v: %v", sigma, err))
	}
	return d
}

// slice is P(a < z < b), taken from the tail that keeps its digits.
func slice(a, b float64) float64 {
	if a > 0 {
		return normalCDF(-a) - normalCDF(-b)
	}
	return normalCDF(b) - normalCDF(a)
}
