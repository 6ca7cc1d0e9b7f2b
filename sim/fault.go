package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/workload"
)

// faultsMost is how many losses and returns of engines may follow on one another
// without a train step before a run counts as stalled.
const faultsMost = 100_000

// faults draws what goes wrong.
type faults struct {
	engine, step workload.Source
	// losses counts those drawn of each engine, down the engines that are gone.
	losses []uint32
	down   int
}

func newFaults(cfg *Config) faults {
	return faults{engine: workload.NewSource(cfg.Faults.Seed, workload.StreamEngine), step: workload.NewSource(cfg.Faults.Seed, workload.StreamStepFault),
		losses: make([]uint32, len(cfg.Loop.EngineSlots))}
}

// plan schedules the planned losses, and the first one drawn of every engine.
func (f *faults) plan(r *runner) {
	for _, loss := range r.cfg.Faults.Plan {
		r.schedule(loop.Event{Time: loss.AtNS, Kind: loop.EngineLost, Engine: int32(loss.Engine)})
		if loss.DownNS > 0 {
			r.schedule(loop.Event{Time: loss.AtNS + loss.DownNS, Kind: loop.EngineJoined, Engine: int32(loss.Engine)})
		}
	}
	for i := range r.engines {
		f.drawLoss(r, int32(i))
	}
}

// exponential draws a time with a mean, the first or the second of a loss.
func (f *faults) exponential(engine, which uint32, mean float64) int64 {
	u := f.engine.Float64(uint64(engine), f.losses[engine], which)
	return int64(min(max(math.Round(-mean*math.Log(u)), 1), math.MaxInt64/4))
}

// drawn marks an event as drawn, not planned, until it is delivered.
const drawn = 1

// drawLoss schedules an engine's next loss, if it has any.
func (f *faults) drawLoss(r *runner, engine int32) {
	if mean := r.cfg.Faults.MTBFNS; mean > 0 {
		f.losses[engine]++
		at := r.now + f.exponential(uint32(engine), 0, mean)
		r.schedule(loop.Event{Time: at, Kind: loop.EngineLost, Engine: engine, Attempt: drawn})
	}
}

// loseEngine takes an engine out with all that runs on it. It reports false if the
// engine is gone already.
func (r *runner) loseEngine(ev *loop.Event) bool {
	e := &r.engines[ev.Engine]
	if ev.Attempt == drawn {
		ev.Attempt = 0
		down := r.now + r.faults.exponential(uint32(ev.Engine), 1, r.cfg.Faults.DownNS)
		r.schedule(loop.Event{Time: down, Kind: loop.EngineJoined, Engine: ev.Engine, Attempt: drawn})
	}
	r.sinceStep += max(r.stallAfter/faultsMost, 1)
	if e.lost {
		return false
	}
	for i := range e.slots {
		s := &e.slots[i]
		if s.group == 0 {
			continue
		}
		r.stop(e.running.first + int32(i))
		if s.agent != nil {
			r.endAgent(s.agent)
		}
		s.group = 0
	}
	e.settle(r.now)
	e.lost, e.held, e.active = true, 0, 0
	r.faults.down++
	r.rec.EnginesDown(r.now, r.faults.down)
	return true
}

// joinEngine has a lost engine come back, with no weights. It reports false if it is
// not gone.
func (r *runner) joinEngine(ev *loop.Event) bool {
	if ev.Attempt == drawn {
		ev.Attempt = 0
		r.faults.drawLoss(r, ev.Engine)
	}
	e := &r.engines[ev.Engine]
	if !e.lost {
		return false
	}
	e.settle(r.now)
	e.lost = false
	if r.now < r.validation.untilNS {
		r.holdEngine(ev.Engine, heldByValidation, true)
	}
	r.faults.down--
	r.rec.EnginesDown(r.now, r.faults.down)
	return true
}

// engineReports takes what an engine says of a load. It reports false if the engine
// is gone, or loads anew since.
func (r *runner) engineReports(ev *loop.Event) bool {
	e := &r.engines[ev.Engine]
	if e.lost || e.attempt != ev.Attempt {
		return false
	}
	if ev.Kind == loop.WeightsSwitched {
		e.switched(r.now, ev.Version, r.cfg.NSPerToken)
		r.holdEngine(ev.Engine, heldBySync, false)
	}
	return true
}

// startStep has the trainer train on the batch just named.
func (r *runner) startStep(a *loop.Action) {
	ns := r.validateTrainer(a.Version) + max(r.cfg.Work.StepNS(a.Lease, r.leaseRollouts, r.leaseTokens), 1)
	r.leaseRollouts, r.leaseTokens = 0, 0
	r.setBusy(true)
	ev := loop.Event{Time: r.now + ns, Kind: loop.TrainStepEnded, Lease: a.Lease, Attempt: a.Attempt, Version: a.Version + 1}
	if rate := r.cfg.Faults.TrainRate; rate > 0 && r.faults.step.Float64(uint64(a.Lease), 0, uint32(a.Attempt)) < rate {
		ev.Kind, ev.Reason, ev.Version = loop.TrainStepFailed, loop.ReasonTrainer, 0
	}
	r.schedule(ev)
}
