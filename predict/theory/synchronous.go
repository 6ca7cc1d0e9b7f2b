package theory

import (
	"container/heap"
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// estimateSynchronous is the synchronous schedule: exactly one batch per served
// version, so that staleness is 0 and the price is the barrier, the wait for
// the longest rollout of the batch: T = τ_R + t_step + t_s/SyncEvery.
func estimateSynchronous(p *Point, t *tail, overhead float64) Estimate {
	out := Estimate{Utilization: p.Utilization / (1 + overhead), SettlingSteps: 1, Reason: ReasonBarrier}
	if p.Acceptance < 1 || p.BatchRollouts > maxBarrier || p.ConcurrencyRollouts < p.BatchRollouts {
		return out // refilled or short, too large, or a makespan that only [Barrier] estimates
	}
	out.Reason, out.Covered = ReasonNone, true
	out.barrier(p, t.shape.meanMax(max(math.Floor(p.BatchRollouts/float64(t.shape.size)), 1)))
	return out
}

// barrier fills in the period for a barrier of so many mean rollout times.
func (out *Estimate) barrier(p *Point, longest float64) {
	// One mean rollout takes C/(Bρ) of a step.
	out.PeriodRelative = longest*GroupTime(p.ConcurrencyRollouts, p.BatchRollouts, 1, out.Utilization) + 1
	if p.SyncTimeS > 0 {
		out.PeriodRelative += p.SyncTimeS / p.StepS / float64(p.SyncEvery)
	}
	out.PeriodS = out.PeriodRelative * p.StepS
	out.Published.PeriodRelative = out.PeriodRelative
}

// meanMax is the mean of the longest of n groups that start together.
func (s *shape) meanMax(n float64) float64 {
	sum, last, lastPoint := 0.0, 0.0, 0.0
	for i, f := range s.group {
		point := s.grid.point(i)
		missing := 1 - math.Pow(f, n)
		if i > 0 {
			sum += (missing + last) / 2 * (point - lastPoint)
		}
		last, lastPoint = missing, point
	}
	return sum
}

// maxBarrier bounds the batch whose makespan is estimated, and barrierDraws the
// rollouts drawn for it.
const (
	maxBarrier   = 1 << 20
	barrierDraws = 1 << 17
)

// Barrier returns the expected time until the last of a synchronous batch is done,
// in units of the given rollout times. Where C covers the batch it is E[longest of
// G groups], exact given the distributions. Where it does not, rollouts start in
// order as slots free up (list scheduling). The makespan is then the mean of
// seeded draws, the same on every call, and siblings count as independent.
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
