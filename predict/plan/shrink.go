package plan

import (
	"math"

	"github.com/headway-rl/headway/predict/schedule"
)

// A fleet is scale-free: batch, rollouts at once and both throughputs divided by one number leave staleness,
// utilization and period as they are, but for chance. Chance falls with the root of the batch, and at this batch is
// below what a simulation resolves. So the time and the memory of a plan do not grow with its GPUs.
const (
	// simulatedBatch is the largest batch that is simulated whole, in rollouts.
	simulatedBatch = 2048
	// scheduledGPUs are the fewest that a comparison of schedules is shrunk to: whole GPUs leave the split alike.
	scheduledGPUs = 64
)

// shrunk is a candidate with a batch that is simulated in its stead, and by what its batch was divided; 0 for whole.
// Services with limits of their own are not divided: their limits are counts.
func (e *evaluator) shrunk(c *Candidate) (small Candidate, scale float64) {
	small = *c
	m, group := &e.problem.Document.Modelled, e.problem.Document.Rollout.GroupSize
	counted := m.Tools.Concurrency + m.Verifier.Concurrency + m.Scorer.Concurrency + m.Sandbox.Limit + m.Sandbox.StartConcurrency + m.Sandbox.Warm
	if c.BatchRollouts <= simulatedBatch || counted > 0 || e.problem.Machine.ReadS > 0 {
		return small, 0
	}
	small.BatchRollouts = max(simulatedBatch/group, 1) * group
	scale = float64(c.BatchRollouts) / float64(small.BatchRollouts)
	small.slots = max(int(math.Round(float64(c.Concurrency())/scale)), group)
	small.ConcurrencyRollouts = small.slots
	return small, scale
}

// shrunkSchedules is the input of a comparison of schedules on a part of the GPUs, with that part of the batch.
func shrunkSchedules(in schedule.Input) schedule.Input {
	scale := min(float64(in.BatchGroups*in.GroupSize)/simulatedBatch, float64(in.GPUs)/scheduledGPUs)
	if scale < 2 {
		return in
	}
	part := func(n, unit int) int {
		unit = max(unit, 1)
		return max(int(math.Round(float64(n)/scale/float64(unit))), 1) * unit
	}
	train := max(part(in.GPUs-in.RolloutGPUs, in.TrainGPUsUnit), in.TrainGPUsMin)
	in.RolloutGPUs = part(in.RolloutGPUs, in.GPUsPerEngine)
	in.GPUs, in.BatchGroups = in.RolloutGPUs+train, part(in.BatchGroups, 1)
	in.Train.S, in.LogProbs.S = in.Train.S/scale, in.LogProbs.S/scale
	return in
}
