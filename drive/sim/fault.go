package sim

import (
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// faultsMost is how many losses and returns of engines may follow on one another
// without a train step before a run counts as stalled.
const faultsMost = 100_000

// Faults are what goes wrong with engines and train steps.
type Faults struct {
	// Seed of its draws.
	Seed uint64
	// MTBFNS is the mean time an engine is there before it is lost, in ns, exponential; 0 never.
	// DownNS is the mean time until it joins again, exponential, too.
	MTBFNS, DownNS float64
	// Plan are losses at given times.
	Plan []EngineLoss
	// TrainRate is the share of train steps that fail at their end, in [0, 1).
	TrainRate float64
}

// EngineLoss is one planned loss of an engine.
type EngineLoss struct {
	// Engine is its index.
	Engine int
	// AtNS is when it is lost, DownNS after how long it joins again; 0 never.
	AtNS, DownNS int64
	// AtStep and BackStep, from 1, replace times: they are the versions after whose train steps the engine is lost and
	// joins again. Simulations of different speed then lose it at the same step. BackStep 0 is never.
	AtStep, BackStep loop.Version
}

// byStep reports whether the loss is at a train step.
func (l EngineLoss) byStep() bool { return l.AtStep != 0 || l.BackStep != 0 }

// none reports whether nothing goes wrong.
func (f *Faults) none() bool { return f.MTBFNS == 0 && len(f.Plan) == 0 && f.TrainRate == 0 }

func (f *Faults) validate(c *Config, bad func(format string, args ...any)) {
	if !(f.MTBFNS >= 0) || !(f.DownNS >= 0) || f.MTBFNS > 0 && f.DownNS == 0 {
		bad("Faults has engines lost every %g ns for %g ns, want times above 0", f.MTBFNS, f.DownNS)
	}
	if err := workload.FailureRate("TrainRate", f.TrainRate); err != nil {
		bad("Faults: %v", err)
	}
	for _, loss := range f.Plan {
		if loss.Engine < 0 || loss.Engine >= len(c.Loop.EngineSlots) || loss.AtNS < 0 || loss.DownNS < 0 {
			bad("Faults.Plan loses engine %d at %d ns for %d ns, want an engine from 0 to %d and times of at least 0", loss.Engine, loss.AtNS, loss.DownNS, len(c.Loop.EngineSlots)-1)
		}
		if loss.byStep() && (loss.AtStep < 1 || loss.BackStep != 0 && loss.BackStep <= loss.AtStep || loss.AtNS != 0 || loss.DownNS != 0) {
			bad("Faults.Plan loses engine %d after step %d until step %d, want a step of at least 1, a later one or 0, and no times beside them", loss.Engine, loss.AtStep, loss.BackStep)
		}
	}
}

// forever is a time that does not come.
const forever = math.MaxInt64

// faults draws what goes wrong.
type faults struct {
	engine, step workload.Source
	// losses counts those drawn of each engine; goneUntil is when it is back at the earliest, over all
	// causes of its absence.
	losses    []uint32
	goneUntil []int64
	// outages are those to come and those that last; down the number of engines that are gone.
	outages []outage
	down    int
}

// outage is a time without an engine, for one cause: planned or drawn. Those of an
// engine may overlap: it is gone while any of them lasts.
type outage struct {
	engine        int32
	atNS, untilNS int64 // until forever: it does not come back
	drawn, begun  bool
	backStep      loop.Version // the train step that ends it, 0 for none
}

func newFaults(cfg *Config) faults {
	n := len(cfg.Loop.EngineSlots)
	return faults{engine: workload.NewSource(cfg.Faults.Seed, workload.StreamEngine), step: workload.NewSource(cfg.Faults.Seed, workload.StreamStepFault),
		losses: make([]uint32, n), goneUntil: make([]int64, n)}
}

// plan schedules the planned outages, and the first one drawn of every engine.
func (f *faults) plan(r *runner) {
	for _, loss := range r.cfg.Faults.Plan {
		if loss.byStep() {
			continue
		}
		o := outage{engine: int32(loss.Engine), atNS: loss.AtNS, untilNS: forever}
		if loss.DownNS > 0 {
			o.untilNS = loss.AtNS + loss.DownNS
		}
		f.add(r, o)
	}
	for i := range r.engines {
		f.draw(r, int32(i))
	}
}

// stepped begins and ends what the plan has at the train step that made a version.
func (f *faults) stepped(r *runner, made loop.Version) {
	for i := range f.outages {
		if o := &f.outages[i]; o.backStep == made {
			o.untilNS = r.now
			f.goneUntil[o.engine] = f.lastOf(o.engine)
			r.schedule(loop.Event{Time: r.now, Kind: loop.EngineJoined, Engine: o.engine})
		}
	}
	for _, loss := range r.cfg.Faults.Plan {
		if loss.AtStep == made {
			f.add(r, outage{engine: int32(loss.Engine), atNS: r.now, untilNS: forever, backStep: loss.BackStep})
		}
	}
}

// lastOf is when the last of an engine's outages that have begun ends.
func (f *faults) lastOf(engine int32) int64 {
	last := int64(0)
	for _, o := range f.outages {
		if o.engine == engine && o.begun {
			last = max(last, o.untilNS)
		}
	}
	return last
}

// add schedules an outage: its beginning now, its end once it has begun.
func (f *faults) add(r *runner, o outage) {
	f.outages = append(f.outages, o)
	r.schedule(loop.Event{Time: o.atNS, Kind: loop.EngineLost, Engine: o.engine})
}

// draw schedules an engine's next drawn outage, if it has any.
func (f *faults) draw(r *runner, engine int32) {
	if mean := r.cfg.Faults.MTBFNS; mean > 0 {
		f.losses[engine]++
		at := r.now + f.exponential(uint32(engine), 0, mean)
		f.add(r, outage{engine: engine, atNS: at, untilNS: at + f.exponential(uint32(engine), 1, r.cfg.Faults.DownNS), drawn: true})
	}
}

// exponential draws a time with a mean, the first or the second of a loss.
func (f *faults) exponential(engine, which uint32, mean float64) int64 {
	u := f.engine.Float64(uint64(engine), f.losses[engine], which)
	return int64(min(max(math.Round(-mean*math.Log(u)), 1), math.MaxInt64/4))
}

// begin begins an engine's outage of that time.
func (f *faults) begin(r *runner, engine int32, at int64) {
	for i := range f.outages {
		o := &f.outages[i]
		if o.engine != engine || o.atNS != at || o.begun {
			continue
		}
		o.begun = true
		f.goneUntil[engine] = max(f.goneUntil[engine], o.untilNS)
		if o.untilNS != forever {
			r.schedule(loop.Event{Time: o.untilNS, Kind: loop.EngineJoined, Engine: engine})
		}
		return
	}
}

// end ends an engine's outage until that time. It reports whether that was the last one.
func (f *faults) end(r *runner, engine int32, until int64) (last bool) {
	i := slices.IndexFunc(f.outages, func(o outage) bool { return o.engine == engine && o.untilNS == until && o.begun })
	o := f.outages[i]
	f.outages = slices.Delete(f.outages, i, i+1)
	if o.drawn {
		f.draw(r, engine)
	}
	return until >= f.goneUntil[engine]
}

// loseEngine takes an engine out with all that runs on it. It reports false if the
// engine is gone already.
func (r *runner) loseEngine(ev *loop.Event) bool {
	e := &r.engines[ev.Engine]
	r.faults.begin(r, ev.Engine, ev.Time)
	r.sinceStep += max(r.stallAfter/faultsMost, 1)
	if e.lost {
		return false
	}
	if !r.cfg.Loop.ResumeLost { // else the loop has them interrupted, and they go on elsewhere
		r.stopAll(e)
	}
	r.hold(e, heldBySync|heldByPrefill|heldByValidation, false)
	e.lost = true
	r.faults.down++
	r.rec.EnginesDown(r.now, r.faults.down)
	return true
}

// stopAll ends what runs on an engine.
func (r *runner) stopAll(e *engine) {
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
	e.active = 0
}

// joinEngine has a lost engine come back, with no weights. It reports false if it is
// not gone, or if another outage of it lasts.
func (r *runner) joinEngine(ev *loop.Event) bool {
	last := r.faults.end(r, ev.Engine, ev.Time)
	e := &r.engines[ev.Engine]
	if !e.lost || !last {
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
		e.switched(r.now, ev.Version)
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
