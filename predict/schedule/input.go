package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// Input is one workload on one set of GPUs, the same for every schedule.
type Input struct {
	// Lengths are the responses' lengths, and Environment the time a rollout spends outside the
	// engine with its slot held; a nil Environment takes none.
	Lengths     *workload.Lengths
	Environment *workload.Times
	// GroupSize is S, the rollouts of one prompt, and BatchGroups the groups of one batch.
	// At least 1 each.
	GroupSize, BatchGroups int

	// GPUs is how many there are for rollouts and training together. At least 2.
	GPUs int
	// RolloutGPUs is how many of them generate where rollouts and training are apart. The value 0 is the split that is
	// best by the closed form of full overlap.
	RolloutGPUs int
	// GPUsPerEngine is the size of one engine; 0 means 1. TrainGPUsMin is the fewest the trainer
	// runs on and TrainGPUsUnit that by which it grows; 0 means 1.
	GPUsPerEngine, TrainGPUsMin, TrainGPUsUnit int
	// SlotsPerEngine is how many rollouts one engine runs at once. At least 1.
	SlotsPerEngine int
	// WholeGroups has the GroupSize slots of a group come free together, when its last rollout is done. That is so
	// where prompts in flight are counted and not rollouts. A group is then simulated as its longest rollout, and an
	// engine's speed taken at the siblings that are alive on average. SlotsPerEngine must then hold at least one group,
	// and there can be no Environment.
	WholeGroups bool
	// Decode is the speed of an engine.
	Decode Decode
	// PrefillTokensPerS is how fast an engine fills its cache for a resumed rollout; 0 is at once.
	PrefillTokensPerS float64

	// Train is the update of one batch, LogProbs the recomputation of its old log-probs. The synchronous schedules and
	// one step off need that; the others take the rollout's own log-probs.
	Train, LogProbs Phase
	// SyncS is the time of a weight sync in which engines stand still. LoadS is the part before that through which they
	// generate. Both are in seconds and for separate GPUs.
	SyncS, LoadS float64
	// SwitchS is what one step costs on shared GPUs to hand them from rollouts to training and
	// back, weights included, in seconds.
	SwitchS float64

	// Pieces is K: streamed and asynchronous training takes the batch in so many train steps, with
	// a weight sync after the last; 0 means 4. It must divide BatchGroups, else the next
	// smaller number that does is taken.
	Pieces int
	// Threshold is the share of groups that may be started ahead of a sync; 0 means 0.5.
	Threshold float64
	// QueueFactor is q of queue-drop; 0 means 1.
	QueueFactor float64

	// KLPerBatch is the mean divergence, in nats a token, of the policy that trains from the one that was served a
	// batch earlier. The value 0 is unknown, and no clip fraction is predicted. KLExponent is how it grows with the
	// lag, between 1 and 2; 0 means 1. ClipLow and ClipHigh are the band of the importance ratio, 1−ClipLow to
	// 1+ClipHigh; 0 means 0.2.
	KLPerBatch, KLExponent, ClipLow, ClipHigh float64

	// StalenessMax and StalenessP95Max are the budget, mean and 95 % quantile in batches; 0 is none.
	// A schedule beyond it is compared, and not advised.
	StalenessMax, StalenessP95Max float64

	// Kept, if not nil, keeps figures for other Inputs that differ in little.
	Kept *Kept

	// Seed of the simulations' draws.
	Seed uint64
	// Warmup and Batches are the batches before and in the window that is reported; 0 means 6 and 30.
	Warmup, Batches int
}

// Limits of what is simulated in one comparison.
const (
	rolloutsMax = 1 << 22
	enginesMax  = 1 << 14
)

// WithDefaults returns a copy in which every zero that stands for a default is replaced by it.
func (in Input) WithDefaults() Input {
	whole := func(field *int, value int) {
		*field = cmp.Or(*field, value)
	}
	number := func(field *float64, value float64) {
		*field = cmp.Or(*field, value)
	}
	whole(&in.GPUsPerEngine, 1)
	whole(&in.TrainGPUsMin, 1)
	whole(&in.TrainGPUsUnit, 1)
	whole(&in.Pieces, 4)
	whole(&in.Warmup, 6)
	whole(&in.Batches, 30)
	number(&in.Threshold, 0.5)
	number(&in.QueueFactor, 1)
	number(&in.KLExponent, 1)
	number(&in.ClipLow, 0.2)
	number(&in.ClipHigh, 0.2)
	for in.Pieces > 1 && in.BatchGroups > 0 && in.BatchGroups%in.Pieces != 0 {
		in.Pieces--
	}
	return in
}

// Validate reports what cannot be compared, everything at once. Call it on an Input
// with defaults.
func (in Input) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("schedule: "+format, args...)) }
	if in.Lengths == nil {
		bad("Lengths are missing")
	}
	if in.GroupSize < 1 || in.BatchGroups < 1 || in.GroupSize > rolloutsMax || in.BatchGroups > rolloutsMax || in.GroupSize*in.BatchGroups > rolloutsMax {
		bad("a batch is %d groups of %d, want at least 1 each and at most %d rollouts", in.BatchGroups, in.GroupSize, rolloutsMax)
	}
	if in.SlotsPerEngine < 1 || in.SlotsPerEngine > rolloutsMax {
		bad("SlotsPerEngine is %d, want 1 to %d", in.SlotsPerEngine, rolloutsMax)
	}
	if in.WholeGroups && (in.SlotsPerEngine < in.GroupSize || in.environmentS() > 0) {
		bad("WholeGroups needs SlotsPerEngine (%d) of at least GroupSize (%d), and no Environment", in.SlotsPerEngine, in.GroupSize)
	}
	errs = append(errs, in.validateGPUs())
	errs = append(errs, in.Decode.validate(), in.Train.validate("Train"), in.LogProbs.validate("LogProbs"))
	if in.Train.S == 0 {
		bad("Train.S is 0, want the time of one batch's update")
	}
	for _, f := range []struct {
		name             string
		value, low, high float64
	}{
		{"SyncS", in.SyncS, 0, phaseSMax}, {"LoadS", in.LoadS, 0, phaseSMax}, {"SwitchS", in.SwitchS, 0, phaseSMax},
		{"PrefillTokensPerS", in.PrefillTokensPerS, 0, 1e12}, {"Threshold", in.Threshold, 0, 1e3}, {"QueueFactor", in.QueueFactor, 1, 1e3},
		{"StalenessMax", in.StalenessMax, 0, 1e6}, {"StalenessP95Max", in.StalenessP95Max, 0, 1e6}, {"KLPerBatch", in.KLPerBatch, 0, 1e3}, {"KLExponent", in.KLExponent, 1, 2}, {"ClipLow", in.ClipLow, 0, 0.999}, {"ClipHigh", in.ClipHigh, 0, 1e3},
	} {
		if !(f.value >= f.low && f.value <= f.high) {
			bad("%s is %g, want %g to %g", f.name, f.value, f.low, f.high)
		}
	}
	if in.Pieces < 1 || in.Warmup < 0 || in.Batches < 1 {
		bad("Pieces %d, Warmup %d and Batches %d, want at least 1, 0 and 1", in.Pieces, in.Warmup, in.Batches)
	}
	return errors.Join(errs...)
}

// validateGPUs reports a split that is none.
func (in Input) validateGPUs() error {
	switch {
	case in.GPUs < 2:
		return fmt.Errorf("schedule: GPUs is %d, want at least 2: one side each", in.GPUs)
	case in.GPUsPerEngine < 1 || in.TrainGPUsMin < 1 || in.TrainGPUsUnit < 1:
		return fmt.Errorf("schedule: GPUsPerEngine %d, TrainGPUsMin %d and TrainGPUsUnit %d, want at least 1 each", in.GPUsPerEngine, in.TrainGPUsMin, in.TrainGPUsUnit)
	case in.trainGPUs(in.GPUsPerEngine) < in.TrainGPUsMin:
		return fmt.Errorf("schedule: %d GPUs hold no engine of %d beside a trainer of %d, in units of %d: no separate schedule is possible", in.GPUs, in.GPUsPerEngine, in.TrainGPUsMin, in.TrainGPUsUnit)
	case in.GPUs/in.GPUsPerEngine > enginesMax:
		return fmt.Errorf("schedule: %d engines, want at most %d", in.GPUs/in.GPUsPerEngine, enginesMax)
	case in.RolloutGPUs < 0 || in.RolloutGPUs > 0 && in.RolloutGPUs < in.GPUsPerEngine:
		return fmt.Errorf("schedule: RolloutGPUs is %d, want at least one engine of %d, or 0 for the best split", in.RolloutGPUs, in.GPUsPerEngine)
	case in.RolloutGPUs > 0 && in.trainGPUs(in.RolloutGPUs) < in.TrainGPUsMin:
		return fmt.Errorf("schedule: %d of %d GPUs generate and leave %d to the trainer in units of %d, which needs %d", in.RolloutGPUs, in.GPUs, max(in.trainGPUs(in.RolloutGPUs), 0), in.TrainGPUsUnit, in.TrainGPUsMin)
	}
	return nil
}

// trainGPUs are those that the trainer has beside so many that generate, in whole units.
func (in Input) trainGPUs(rollout int) int {
	return (in.GPUs - rollout) / in.TrainGPUsUnit * in.TrainGPUsUnit
}

// rollouts of one batch.
func (in Input) rollouts() int { return in.GroupSize * in.BatchGroups }

// environmentS is the mean time outside the engine, in seconds.
func (in Input) environmentS() float64 {
	if in.Environment == nil || in.Environment.Zero() {
		return 0
	}
	return in.Environment.Mean() / 1e9
}

// holders is what holds slots, rollouts or whole groups: how many a batch has, how
// many an engine holds at once, how long they are in tokens, and how many rollouts
// one of them keeps generating on average.
type holders struct {
	batch, slots int
	lengths      workload.Distribution
	alive        float64
}

func (in Input) holders() holders {
	if !in.WholeGroups {
		return holders{in.rollouts(), in.SlotsPerEngine, in.Lengths.Distribution(), 1}
	}
	longest := in.Lengths.MaxDistribution(in.GroupSize)
	return holders{in.BatchGroups, in.SlotsPerEngine / in.GroupSize, longest, float64(in.GroupSize) * in.Lengths.Mean() / longest.Mean()}
}

// stepS is the decode step with so many slots held.
func (in Input) stepS(h holders, held float64) float64 { return in.Decode.StepS(held * h.alive) }

// holdS is how long a mean holder keeps its slot while all slots of its engine are
// busy, in seconds: of slots in the environment the others are the faster.
func (in Input) holdS(h holders) float64 {
	environment := in.environmentS()
	mean := h.lengths.Mean()
	t := mean*in.stepS(h, float64(h.slots)) + environment
	if environment == 0 {
		return t
	}
	for range 50 {
		generating := float64(h.slots) * (t - environment) / t
		t = (t + mean*in.stepS(h, generating) + environment) / 2
	}
	return t
}

// WorkS is how long a batch takes on that many GPUs with every slot busy, in seconds.
func (in Input) WorkS(gpus int) float64 {
	h := in.holders()
	return float64(h.batch) * in.holdS(h) / float64(gpus/in.GPUsPerEngine*h.slots)
}

// BestSplit returns the rollout GPUs for which the slower side of full overlap,
// max(work, train), is the least. It counts in whole engines and whole units of
// the trainer; of equals it takes the fewest.
func (in Input) BestSplit() int {
	best, least := 0, math.Inf(1)
	for engines := 1; engines*in.GPUsPerEngine <= in.GPUs-in.TrainGPUsMin; engines++ {
		rollout := engines * in.GPUsPerEngine
		train := in.trainGPUs(rollout)
		if train < in.TrainGPUsMin {
			break
		}
		if t := max(in.WorkS(rollout), in.Train.On(train)); t < least*(1-1e-12) {
			best, least = rollout, t
		}
	}
	return best
}
