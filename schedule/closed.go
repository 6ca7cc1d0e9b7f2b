package schedule

import (
	"math"

	"github.com/headway-rl/headway/theory"
	"github.com/headway-rl/headway/workload"
)

// barrierS is the expected time until the last rollout of a batch is done on that
// many GPUs, in seconds: the mean field of engines that run empty. On the common
// clock of tokens made in a slot, a share of what was started ends in each cell as
// the lengths say, and what still waits takes its place; the clock is turned into
// time by the decode step at what is then active, as long as the longest of the
// batch is expected to run. With an environment it is the longest of generation and
// environment together, at the mean decode speed of that.
func (in Input) barrierS(gpus int) float64 {
	engines := gpus / in.GPUsPerEngine
	batch := float64(in.rollouts())
	lengths := in.Lengths.Distribution()
	if in.environmentS() > 0 && engines*in.SlotsPerEngine < in.rollouts() {
		full := in.rolloutS(in.SlotsPerEngine)
		times := workload.Times(in.Lengths, 1e9*in.Decode.StepS(float64(in.SlotsPerEngine)), in.Environment, in.GroupSize)
		makespan, _ := theory.Barrier(times.Rollout.Scale(1/times.Rollout.Mean()), times.Group, float64(engines*in.SlotsPerEngine), batch, in.GroupSize)
		return makespan * full
	}
	total := in.emptyingS(lengths, engines, batch)
	if in.environmentS() == 0 {
		return total
	}
	mean := total / lengths.MeanMax(in.rollouts())
	return workload.Times(in.Lengths, 1e9*mean, in.Environment, in.GroupSize).Group.MeanMax(in.BatchGroups) / 1e9
}

// Cells of the mean field: how many to a mean length, and how many at most.
const (
	cellsPerMean = 40
	cellsMax     = 6000
)

// emptyingS is the mean field of a batch without environment.
func (in Input) emptyingS(lengths workload.Distribution, engines int, batch float64) float64 {
	slots := float64(engines * in.SlotsPerEngine)
	longest := lengths.MeanMax(in.rollouts())
	// The clock ends where even what starts last is done.
	end := lengths.Mean()*batch/slots + 3*longest
	width := max(lengths.Mean()/cellsPerMean, end/cellsMax)
	cells := int(end/width) + 1
	alive := make([]float64, cells+1) // P(L > i·width)
	for i := range alive {
		alive[i] = 1 - lengths.CDF(float64(i)*width)
	}
	started := make([]float64, cells)
	started[0] = min(batch, slots)
	waiting, total := batch-started[0], 0.0
	for i := range cells {
		active, logDone := 0.0, 0.0
		for k := 0; k <= i; k++ {
			if started[k] == 0 {
				continue
			}
			active += started[k] * alive[i-k]
			logDone += started[k] * math.Log1p(-min(alive[i-k], 1-1e-12))
		}
		if i > 0 && waiting > 0 {
			started[i] = min(waiting, max(slots-active, 0))
			waiting -= started[i]
			active += started[i]
		}
		running := 1.0
		if waiting == 0 && started[i] == 0 {
			running = 1 - math.Exp(logDone)
		}
		if running < 1e-9 {
			break
		}
		total += width * in.Decode.StepS(active/float64(engines)) * running
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
		return in.barrierS(a.RolloutGPUs) + train + a.SyncS + a.LoadS
	case OneStepOff:
		return max(in.barrierS(a.RolloutGPUs), train) + a.SyncS + a.LoadS
	case Streamed:
		return max(in.barrierS(a.RolloutGPUs)+train/float64(a.Pieces), train) + a.SyncS + a.LoadS
	case Async, Partial:
		return max(in.workS(a.RolloutGPUs), train) + a.SyncS
	}
	return max(in.workS(a.RolloutGPUs), train, a.SyncS)
}
