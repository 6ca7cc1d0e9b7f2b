package attribution

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Observer splits the staleness and the idle time of a run. It takes every event with what
// followed from it, in order, and what drivers tell a metrics.Recorder: make it the recorder's
// Beside, or feed it like one. In the steady state it does not allocate. New makes one.
type Observer struct {
	// Warmup is the version at which the measured window begins; 0 measures from the start.
	Warmup loop.Version
	// OnGroup, if not nil, is called with the split of every trained group, in the order of
	// training; OnStep after every train step, with those of its groups before it. Under
	// loop.PolicyReplay a group comes once for each step on it.
	OnGroup func(Group)
	OnStep  func(Step)

	cfg    loop.Config
	groups lives
	// engineOf is the engine of each slot.
	engineOf []int32
	s        state
	// judged: freed holds by why slots are free now, and stands how many taken ones stand still for a
	// sync. Whatever may change that clears it.
	judged bool
	freed  idle
	stands int64
	// ended: a train step's end is being taken.
	ended bool
	last  Step
}

// state is what an observer remembers beside its groups. Its fields are exported for State alone.
type state struct {
	// Version is the trainer's as observed, Due the one that weight syncs without any duration would
	// have the engines serve, Restored the newest that the trainer went back to, Completed that of the
	// newest completed sync.
	Version, Due, Restored, Completed loop.Version
	// Now is the time of the last event, Settled that up to which time has been counted.
	Now, Settled int64
	// Lease is the newest that began, at LeaseNS, which is -1 while no step runs. A step that waits for
	// a validation goes on at TrainFrom.
	Lease              loop.LeaseID
	LeaseAttempt       int32
	LeaseNS, TrainFrom int64
	// Asked: the trainer has asked for a batch since its last step began. Syncing: a weight sync has
	// begun and not ended. Stopped: nothing will be started any more.
	Asked, Syncing, Stopped bool
	// Queued is the queue in groups, Validating and Switching how many engines do that, Active how many
	// slots are taken,
	// AwaySlots how many slots have engines that are away.
	Queued, Validating, Switching, Active, AwaySlots int
	Slots                                            []use
	Engines                                          []engine
	// Made holds the newest versions, at their number modulo its length.
	Made []origin
	// Window are the sums of the measured window up to the last step's end, Step those since, and
	// Recent those of the newest periods, at the number of Steps modulo its length.
	// SyncEvery and Redundancy are the rules as they have been moved.
	SyncEvery, Redundancy int
	Window, Step          sums
	Recent                []sums
	Steps                 int64
	// PeriodFrom is when the running train period, or the measured window in it, began.
	PeriodFrom int64
}

// use is the attempt that runs in a slot; group 0 means none does.
type use struct {
	Group           loop.GroupID
	Sample, Attempt int32
	// Aborted: nobody wants it any more, and the slot waits for the engine's word.
	Aborted bool
}

// origin is when a version was made, and by the step of which lease; 0 for one that the trainer
// went back to.
type origin struct {
	NS    int64
	Lease loop.LeaseID
}

// remembered is how many versions the observer looks back on. Of a group that lives through more,
// the oldest count as made while it generated, or while others of the queue were trained.
const remembered = 1 << 12

// New returns an observer of a loop with these rules, before its first event.
func New(cfg loop.Config) *Observer {
	cfg = cfg.WithDefaults()
	o := &Observer{cfg: cfg}
	o.s = state{LeaseNS: -1, SyncEvery: cfg.SyncEvery, Redundancy: cfg.Redundancy, Slots: make([]use, cfg.Concurrency()), Made: make([]origin, remembered), Recent: make([]sums, recentSteps)}
	for i, n := range cfg.EngineSlots {
		away := cfg.EnginesStart > 0 && i >= cfg.EnginesStart
		o.s.Engines = append(o.s.Engines, engine{Slots: n, Gone: away})
		o.leaves(&o.s.Engines[i], away)
		for range n {
			o.engineOf = append(o.engineOf, int32(i))
		}
	}
	o.groups = newLives(4 * (cfg.Concurrency()/cfg.GroupSize + cfg.QueueGroups + cfg.BatchGroups + 4))
	return o
}

// Observe takes one event and what followed from it, which it only reads. Of what was measured it
// needs EnvironmentNS of scored rollouts, and QueueGroups.
func (o *Observer) Observe(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
	o.s.Now = max(o.s.Now, ev.Time)
	o.settle()
	o.ended = false
	o.event(ev, m)
	for i := range actions {
		o.action(&actions[i])
	}
	o.s.Queued = m.QueueGroups
	switch {
	case ev.Kind == loop.SyncFailed:
		o.givenUp(ev.Engine)
	case o.ended:
		o.endStep()
	case ev.Kind == loop.TrainerRestored:
		o.warmedUp()
	}
}

func (o *Observer) event(ev *loop.Event, m *metrics.Measured) {
	s := &o.s
	switch ev.Kind {
	case loop.RolloutScored:
		o.scored(ev, m)
	case loop.RolloutFailed, loop.RolloutAborted:
		o.failed(ev)
	case loop.RolloutInterrupted:
		o.vacate(ev)
	case loop.FirstToken:
		o.firstToken(ev)
	case loop.TrainStepEnded:
		if ev.Lease == s.Lease && ev.Attempt == s.LeaseAttempt && s.LeaseNS >= 0 && ev.Version == s.Version+1 {
			o.ended, s.LeaseNS = true, -1
			o.increment(ev.Lease)
		}
	case loop.TrainerRestored:
		if ev.Version == s.Version+1 {
			s.LeaseNS, s.Restored = -1, ev.Version
			o.increment(0)
		}
	case loop.TrainStepFailed, loop.LeaseReturned:
		if ev.Lease == s.Lease && ev.Attempt == s.LeaseAttempt {
			s.LeaseNS = -1
		}
	case loop.TrainerReady:
		s.Asked = true
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed, loop.EngineLost:
		o.engineEvent(ev)
	case loop.Recovered:
		o.recovered()
	case loop.StopRequested:
		s.Stopped = true
	}
}

func (o *Observer) action(a *loop.Action) {
	s := &o.s
	switch a.Kind {
	case loop.StartRollout:
		g := o.groups.put(a.Group)
		g.Flying++
		o.occupy(a, g)
	case loop.ResumeRollout:
		o.occupy(a, o.groups.get(a.Group))
	case loop.AbortRollout:
		o.abort(a)
	case loop.GroupQueued, loop.GroupHeld:
		o.ready(a)
	case loop.StartTrainStep:
		s.Lease, s.LeaseAttempt, s.LeaseNS, s.Asked = a.Lease, a.Attempt, s.Now, false
	case loop.GroupTrained:
		o.train(a)
	case loop.GroupEnded:
		o.groups.remove(a.Group)
	case loop.SyncCompleted:
		s.Syncing, s.Completed, o.judged = false, a.Version, false
	case loop.LoadWeights, loop.SwitchWeights:
		o.engineAction(a)
	case loop.ReleaseEngine:
		o.judged = false
		o.lose(a.Engine)
		o.leaves(&o.s.Engines[a.Engine], true)
	case loop.SettingChanged:
		o.moved(a)
	case loop.FinishRun:
		s.Stopped = true
	}
}

// moved takes over a setting that explanations go by.
func (o *Observer) moved(a *loop.Action) {
	o.judged = false
	switch a.Setting {
	case loop.SettingSyncEvery:
		o.s.SyncEvery = int(a.Value)
	case loop.SettingRedundancy:
		o.s.Redundancy = int(a.Value)
	}
}

// increment counts a version, made by the step of a lease or by going back.
func (o *Observer) increment(by loop.LeaseID) {
	s := &o.s
	s.Version++
	s.Made[int(s.Version)%remembered] = origin{s.Now, by}
	if o.cfg.TrainerAsks || s.Version-s.Due >= loop.Version(o.s.SyncEvery) {
		s.Due = o.newestWeights()
	}
}

// newestWeights is the newest version that has weights: a trainer that asks for its batches
// publishes those of every SyncEvery-th version, and those that it went back to.
func (o *Observer) newestWeights() loop.Version {
	if !o.cfg.TrainerAsks {
		return o.s.Version
	}
	return max(o.s.Version-o.s.Version%loop.Version(o.s.SyncEvery), o.s.Restored)
}

// occupy has an attempt of a group run in a slot from now on.
func (o *Observer) occupy(a *loop.Action, g *life) {
	u := &o.s.Slots[a.Slot]
	if u.Group == 0 {
		o.take(a.Engine, 1)
	}
	u.Group, u.Sample, u.Attempt, u.Aborted = a.Group, a.Sample, a.Attempt, false
	if g != nil {
		g.began(&o.s, o.s.Engines[a.Engine].Served)
	}
}

// vacate frees the slot of the attempt that an event names. It reports whether that attempt was
// still wanted; it is not either if the event comes late.
func (o *Observer) vacate(ev *loop.Event) (wanted bool) {
	if uint(ev.Slot) >= uint(len(o.s.Slots)) {
		return false
	}
	u := &o.s.Slots[ev.Slot]
	if u.Group != ev.Group || u.Group == 0 || u.Sample != ev.Sample || u.Attempt != ev.Attempt {
		return false
	}
	u.Group = 0
	o.take(o.engineOf[ev.Slot], -1)
	return !u.Aborted
}

// vacateAll frees every slot of an engine, of all engines for a negative one, and fails what ran
// there.
func (o *Observer) vacateAll(engine int32) {
	for i := range o.s.Slots {
		u := &o.s.Slots[i]
		if u.Group == 0 || engine >= 0 && o.engineOf[i] != engine {
			continue
		}
		if !u.Aborted {
			o.leave(u.Group)
		}
		u.Group = 0
		o.take(o.engineOf[i], -1)
	}
}

func (o *Observer) failed(ev *loop.Event) {
	if o.vacate(ev) {
		o.leave(ev.Group)
	}
}

// leave notes that an attempt of a group ended without a score.
func (o *Observer) leave(id loop.GroupID) {
	if g := o.groups.get(id); g != nil {
		g.left()
	}
}

// abort notes that an attempt is no longer wanted: with its group, or for a reason of its own.
func (o *Observer) abort(a *loop.Action) {
	if a.Slot >= 0 {
		if u := &o.s.Slots[a.Slot]; u.Group == a.Group && u.Sample == a.Sample && u.Attempt == a.Attempt {
			u.Aborted = true
		}
	}
	if a.Reason != loop.ReasonNone {
		o.leave(a.Group)
	}
}
