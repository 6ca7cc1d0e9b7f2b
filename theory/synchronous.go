package theory

import (
	"container/heap"
	"fmt"

	"github.com/headway-rl/headway/workload"
)

// predictSynchronous is the synchronous schedule: exactly one batch per served
// version, so that staleness is 0 and the price is the barrier, the wait for
// the longest rollout of the batch (theory.md §2): T = τ_R + t_step + t_s.
func predictSynchronous(in Input, shape tail) Prediction {
	p := Prediction{
		Utilization:    in.Utilization / (1 + shape.overhead),
		TailMultiplier: shape.multiplier,
		Smooth:         true,
		PQS:            Known(0), IQS: Known(0), TokenStaleness: Known(0),
		Staleness: Staleness{Mean: Known(0), P50: Known(0), P95: Known(0), P99: Known(0)},
		Corrected: Corrected{PQS: Known(0), IQS: Known(0), Mean: Known(0)},
	}
	p.Regime = regime(p.Utilization)
	if in.BudgetVersions > 0 {
		p.Staleness.ShareAboveBudget = Known(0)
	}
	p.SettlingSteps = 1
	if in.Acceptance < 1 {
		p.Warnings = append(p.Warnings, "a filtered synchronous batch is refilled or short, depending on the run: its period is not predicted; simulate")
		return p
	}
	if in.BatchRollouts > maxBarrier {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the barrier of a synchronous batch is computed up to %d rollouts; simulate", maxBarrier))
		return p
	}
	barrier, exact := Barrier(shape.rollout, shape.group, in.ConcurrencyRollouts, in.BatchRollouts, in.GroupSize)
	if !exact {
		p.Warnings = append(p.Warnings, "concurrency does not cover the batch: the barrier is a list-scheduling makespan, estimated from seeded draws of independent rollouts (± 1 %)")
	}
	// One mean rollout takes C/(Bρ) of a step.
	step := GroupTime(in.ConcurrencyRollouts, in.BatchRollouts, 1, p.Utilization)
	relative := barrier*step + 1
	if in.SyncTimeS > 0 {
		relative += in.SyncTimeS / in.StepS / float64(in.SyncEvery)
	}
	p.Period.RelativeToStep = Known(relative)
	if in.StepS > 0 {
		p.Period.S = Known(relative * in.StepS)
	}
	p.Corrected.Period = p.Period
	return p
}

// maxBarrier bounds the batch whose makespan is estimated, and barrierDraws the
// rollouts drawn for it.
const (
	maxBarrier   = 1 << 20
	barrierDraws = 1 << 17
)

// Barrier returns the expected time until the last of a synchronous batch is
// done, in units of the given rollout times. Where C covers the batch it is
// E[longest of G groups], exact given the distributions. Where it does not,
// rollouts start in order as slots free up (list scheduling), and the makespan
// is the mean of seeded draws, the same on every call; siblings then count as
// independent.
func Barrier(rollout, group workload.Distribution, concurrency, batch float64, groupSize int) (time float64, exact bool) {
	if concurrency >= batch {
		return group.MeanMax(max(int(batch)/groupSize, 1)), true
	}
	slots, rollouts := max(int(concurrency), 1), max(int(batch), 1)
	repeats := max(barrierDraws/rollouts, 1)
	src := workload.NewSource(0, workload.StreamEstimate)
	total := 0.0
	for i := range repeats {
		total += makespan(rollout, src, uint64(i), slots, rollouts)
	}
	return total / float64(repeats), false
}

// makespan schedules one batch on slots that take the next rollout when free.
func makespan(rollout workload.Distribution, src workload.Source, repeat uint64, slots, rollouts int) float64 {
	free := make(freeTimes, slots)
	last := 0.0
	for i := range rollouts {
		free[0] += rollout.Quantile(src.Float64(repeat, uint32(i), 0))
		last = max(last, free[0])
		heap.Fix(&free, 0)
	}
	return last
}

// freeTimes is a heap of the instants at which slots become free.
type freeTimes []float64

func (f freeTimes) Len() int           { return len(f) }
func (f freeTimes) Less(i, j int) bool { return f[i] < f[j] }
func (f freeTimes) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }

// Push and Pop complete heap.Interface; the number of slots never changes.
func (f *freeTimes) Push(any) { panic("theory: slots are fixed") }
func (f *freeTimes) Pop() any { panic("theory: slots are fixed") }
