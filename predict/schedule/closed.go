package schedule

import (
	"math"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// BarrierS is the expected time until the last rollout of a batch is done on that
// many GPUs, in seconds. It is the mean field of engines that run empty. The
// common clock counts tokens made in a slot. In each cell, a share of the started
// rollouts ends as the lengths say, and waiting ones fill their slots. The decode
// step at the number then active turns the clock into time. The clock runs as long
// as the longest of the batch is expected to run. With an environment it is the
// longest of generation and environment together, at the mean decode speed of
// that.
func (in Input) BarrierS(gpus int) float64 {
	return in.Kept.figure(in.generates(gpus), in.Decode.Curve, func() float64 { return in.barrierS(gpus) })
}

// barrierS is the barrier, worked out.
func (in Input) barrierS(gpus int) float64 {
	engines := gpus / in.GPUsPerEngine
	h := in.holders()
	if in.environmentS() > 0 && engines*h.slots < h.batch {
		times := workload.NewRolloutTimes(in.Lengths, 1e9*in.stepS(h, float64(h.slots)), in.Environment, in.GroupSize)
		makespan, _ := theory.Barrier(times.Rollout.Scale(1/times.Rollout.Mean()), times.Group, float64(engines*h.slots), float64(h.batch), in.GroupSize)
		return makespan * in.holdS(h)
	}
	total, _ := in.emptyingS(h, engines, 1)
	if in.environmentS() == 0 {
		return total
	}
	mean := total / h.lengths.MeanMax(h.batch)
	return workload.NewRolloutTimes(in.Lengths, 1e9*mean, in.Environment, in.GroupSize).Group.MeanMax(in.BatchGroups) / 1e9
}

// Cells of the mean field: how many to a mean length, and how many at most.
const (
	cellsPerMean = 40
	cellsMax     = 6000
)

// emptyingS is the mean field of a batch without environment: when its last rollout
// is done, and when each of so many equal parts of its groups is, the last one with
// the batch.
func (in Input) emptyingS(h holders, engines, pieces int) (all float64, ready []float64) {
	lengths, batch, slots := h.lengths, float64(h.batch), float64(engines*h.slots)
	longest := in.Kept.figure(question{lengths: in.Lengths, group: in.GroupSize, groups: in.BatchGroups, whole: in.WholeGroups}, nil,
		func() float64 { return lengths.MeanMax(h.batch) })
	// The clock ends where even what starts last is done.
	end := lengths.Mean()*batch/slots + 3*longest
	width := max(lengths.Mean()/cellsPerMean, end/cellsMax)
	cells := int(end/width) + 1
	alive := make([]float64, cells+1) // P(L > i·width)
	done := make([]float64, cells+1)  // P(longest of a group <= i·width)
	siblings := in.GroupSize
	if in.WholeGroups {
		siblings = 1 // a holder is a group
	}
	for i := range alive {
		p := lengths.CDF(float64(i) * width)
		alive[i], done[i] = 1-p, math.Pow(p, float64(siblings))
	}
	type wave struct {
		cell    int
		started float64
	}
	waves := []wave{{0, min(batch, slots)}}
	waiting, total := batch-waves[0].started, 0.0
	for i := range cells {
		active, logDone, groups := 0.0, 0.0, 0.0
		for _, w := range waves {
			left := alive[i-w.cell]
			groups += w.started / batch * done[i-w.cell]
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
		for len(ready) < pieces-1 && groups >= float64(len(ready)+1)/float64(pieces) {
			ready = append(ready, total)
		}
		total += width * in.stepS(h, active/float64(engines)) * running
	}
	for len(ready) < pieces {
		ready = append(ready, total)
	}
	return total, ready
}

// streamedS is the step of a batch that is trained in pieces as they become ready:
// each piece waits for its groups and for the piece before.
func (in Input) streamedS(a Arm, train float64) float64 {
	piece := train / float64(a.Pieces)
	barrier := in.BarrierS(a.RolloutGPUs)
	_, ready := in.emptyingS(in.holders(), a.RolloutGPUs/in.GPUsPerEngine, a.Pieces)
	scale := barrier / ready[len(ready)-1] // 1 without environment
	t := 0.0
	for _, at := range ready {
		t = max(t, at*scale) + piece
	}
	return t
}

// groupTimes is the distribution of a group's time: by times that of X, in seconds.
type groupTimes struct {
	x  workload.Distribution
	by float64
}

// within returns the share of groups that take at most so long.
func (g groupTimes) within(s float64) float64 { return g.x.ScaledCDF(g.by, s) }

// groups is what a bound on groups ahead turns on, whatever the step: engines, tokens of a batch, and the length of
// a group's longest rollout.
type groups struct {
	engines, tokens float64
	longest         workload.Distribution
}

// groupsS is the distribution of a group's time where engines have that long to make a batch: its longest rollout
// at the decode step of what is active on average.
func (in Input) groupsS(of groups, generating float64) groupTimes {
	// n rollouts generate on an engine where n = tokens a second · step(n).
	rate := of.tokens / (generating * of.engines)
	low, high := 0.0, float64(in.SlotsPerEngine)
	for range 40 {
		if n := (low + high) / 2; rate*in.Decode.StepS(n) > n {
			low = n
		} else {
			high = n
		}
	}
	step := in.Decode.StepS(high)
	if in.environmentS() > 0 {
		return groupTimes{workload.NewRolloutTimes(in.Lengths, 1e9*step, in.Environment, in.GroupSize).Group, 1e-9}
	}
	return groupTimes{of.longest, step}
}

// aheadS is the step under a bound of θ on groups ahead where rollouts outlive
// syncs. G groups start at every sync, beside θ·G that are carried over. With D a
// group's time, T the step and T′ what of it engines do not stand still for the sync,
// the groups that are ready a time t after it are G·(θ + P(D <= t) − Σ over j >= 1 of
// P(D > j·T′ + t)), and where slots are few no more than the work of them allows,
// G·(θ + t/R); each of the K pieces waits for its share of them and for the piece
// before, and T is what comes out.
func (in Input) aheadS(a Arm, train float64) float64 {
	piece, sync, work := train/float64(a.Pieces), a.SyncS+a.LoadS, in.WorkS(a.RolloutGPUs)
	of := groups{float64(a.RolloutGPUs / in.GPUsPerEngine), float64(in.rollouts()) * in.Lengths.Mean(), in.Kept.longest(in.Lengths, in.GroupSize)}
	took := func(t float64) float64 {
		generating := t - a.SyncS
		d := in.groupsS(of, generating)
		now := 0.0
		for k := range a.Pieces {
			share := float64(k+1) / float64(a.Pieces)
			now = max(now, readyS(d, generating, in.Threshold, share), (share-in.Threshold)*work) + piece
		}
		return now + sync
	}
	low, high := train+sync, train+sync+in.BarrierS(a.RolloutGPUs)
	for range 30 {
		if t := (low + high) / 2; took(t) > t {
			low = t
		} else {
			high = t
		}
	}
	return high
}

// readyS is when a share of a batch is ready after a sync, see aheadS.
func readyS(d groupTimes, generating, theta, share float64) float64 {
	last, _ := d.x.At(d.x.Len() - 1)
	last *= d.by
	low, high := 0.0, last
	for range 30 {
		at := (low + high) / 2
		ready := theta + d.within(at)
		for j := 1; float64(j)*generating+at < last; j++ {
			ready -= 1 - d.within(float64(j)*generating+at)
		}
		if ready < share {
			low = at
		} else {
			high = at
		}
	}
	if high < 1e-6*last {
		return 0
	}
	return high
}

// ClosedS returns the closed form of a schedule's step time, in seconds a batch. Time τ_R is the barrier, R the work
// with every slot busy, A(θ) the step that a bound on groups ahead allows. Times τ_T and τ_logp are those of train
// and log-probs. Of a sync, engines generate through τ_L, while weights load, and stand still through τ_S:
//
//	colocated, synchronous   τ_R + τ_logp + τ_T + τ_L + τ_S
//	one step off             max(τ_R, τ_logp + τ_T + τ_L) + τ_S
//	streamed                 each piece after its groups and after the piece before, + τ_L + τ_S
//	async                    max(τ_R, τ_T + τ_L) + τ_S: a sync waits for all that it started
//	async, partial           max(R + τ_S, A(θ))
//	queue-drop               max(R, τ_T): nobody waits for a sync, one that takes longer skips versions
//
// The form leaves out three effects, which simulation has. A batch's last piece, which has its longest rollouts, takes
// longer to train than others. A drain that starts nothing while weights load leaves slots empty. Chance counts where
// two sides are nearly as fast.
func (in Input) ClosedS(a Arm) float64 {
	fixed, shared, _ := in.trainS(a)
	of := in.generates(a.RolloutGPUs)
	of.name, of.pieces, of.threshold, of.trainS, of.syncS, of.loadS = a.Name, a.Pieces, in.Threshold, fixed+shared, a.SyncS, a.LoadS
	return in.Kept.figure(of, in.Decode.Curve, func() float64 { return in.closedS(a, fixed+shared) })
}

// closedS is the closed form, worked out.
func (in Input) closedS(a Arm, train float64) float64 {
	sync := a.SyncS + a.LoadS
	switch a.Name {
	case Colocated, Synchronous:
		return in.BarrierS(a.RolloutGPUs) + train + sync
	case OneStepOff, Async:
		return max(in.BarrierS(a.RolloutGPUs), train+a.LoadS) + a.SyncS
	case Streamed:
		return in.streamedS(a, train) + sync
	case Partial:
		return max(in.WorkS(a.RolloutGPUs)+a.SyncS, in.aheadS(a, train))
	}
	return max(in.WorkS(a.RolloutGPUs), train)
}
