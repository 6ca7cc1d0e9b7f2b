package schedule

import (
	"math"

	"github.com/headway-rl/headway/theory"
	"github.com/headway-rl/headway/workload"
)

// BarrierS is the expected time until the last rollout of a batch is done on that
// many GPUs, in seconds: the mean field of engines that run empty. On the common
// clock of tokens made in a slot, a share of what was started ends in each cell as
// the lengths say, and what still waits takes its place; the clock is turned into
// time by the decode step at what is then active, as long as the longest of the
// batch is expected to run. With an environment it is the longest of generation and
// environment together, at the mean decode speed of that.
func (in Input) BarrierS(gpus int) float64 {
	engines := gpus / in.GPUsPerEngine
	h := in.holders()
	if in.environmentS() > 0 && engines*h.slots < h.batch {
		times := workload.Times(in.Lengths, 1e9*in.stepS(h, float64(h.slots)), in.Environment, in.GroupSize)
		makespan, _ := theory.Barrier(times.Rollout.Scale(1/times.Rollout.Mean()), times.Group, float64(engines*h.slots), float64(h.batch), in.GroupSize)
		return makespan * in.holdS(h)
	}
	total := in.emptyingS(h, engines)
	if in.environmentS() == 0 {
		return total
	}
	mean := total / h.lengths.MeanMax(h.batch)
	return workload.Times(in.Lengths, 1e9*mean, in.Environment, in.GroupSize).Group.MeanMax(in.BatchGroups) / 1e9
}

// Cells of the mean field: how many to a mean length, and how many at most.
const (
	cellsPerMean = 40
	cellsMax     = 6000
)

// emptyingS is the mean field of a batch without environment.
func (in Input) emptyingS(h holders, engines int) float64 {
	lengths, batch, slots := h.lengths, float64(h.batch), float64(engines*h.slots)
	longest := lengths.MeanMax(h.batch)
	// The clock ends where even what starts last is done.
	end := lengths.Mean()*batch/slots + 3*longest
	width := max(lengths.Mean()/cellsPerMean, end/cellsMax)
	cells := int(end/width) + 1
	alive := make([]float64, cells+1) // P(L > i·width)
	for i := range alive {
		alive[i] = 1 - lengths.CDF(float64(i)*width)
	}
	type wave struct {
		cell    int
		started float64
	}
	waves := []wave{{0, min(batch, slots)}}
	waiting, total := batch-waves[0].started, 0.0
	for i := range cells {
		active, logDone := 0.0, 0.0
		for _, w := range waves {
			left := alive[i-w.cell]
			active += w.started * left
			logDone += w.started * math.Log1p(-min(left, 1-1e-12))
		}
		fresh := 0.0
		if i > 0 && waiting > 0 {
			if fresh = min(waiting, max(slots-active, 0)); fresh > 0 {
				waves = append(waves, wave{i, fresh})
				waiting -= fresh
				active += fresh
			}
		}
		running := 1.0
		if waiting == 0 && fresh == 0 {
			running = 1 - math.Exp(logDone)
		}
		if running < 1e-9 {
			break
		}
		total += width * in.stepS(h, active/float64(engines)) * running
	}
	return total
}

// ClosedS returns the closed form of a schedule's step time, in seconds a batch:
// with τ_R the barrier, R the work with every slot busy, and τ_T, τ_logp and τ_S of
// train, log-probs and sync,
//
//	colocated, synchronous   τ_R + τ_logp + τ_T + τ_S
//	one step off             max(τ_R, τ_logp + τ_T) + τ_S
//	streamed                 max(τ_R + τ_T/K, τ_T) + τ_S
//	async, partial           max(R, τ_T) + τ_S
//	queue-drop               max(R, τ_T, τ_S)
//
// The asynchronous ones leave out what a bound on groups ahead makes wait and are
// lower bounds; simulation has it.
func (in Input) ClosedS(a Arm) float64 {
	fixed, shared, _ := in.trainS(a)
	train := fixed + shared
	switch a.Name {
	case Colocated, Synchronous:
		return in.BarrierS(a.RolloutGPUs) + train + a.SyncS + a.LoadS
	case OneStepOff:
		return max(in.BarrierS(a.RolloutGPUs), train) + a.SyncS + a.LoadS
	case Streamed:
		return max(in.BarrierS(a.RolloutGPUs)+train/float64(a.Pieces), train) + a.SyncS + a.LoadS
	case Async, Partial:
		return max(in.workS(a.RolloutGPUs), train) + a.SyncS
	}
	return max(in.workS(a.RolloutGPUs), train, a.SyncS)
}
