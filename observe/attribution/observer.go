package attribution

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/track"
)

// Observer splits the staleness and the idle time of a run. It takes every event with its actions,
// in order, and the calls that drivers make to a metrics.Recorder. Make it the recorder's Beside,
// or feed it like one. In the steady state it does not allocate. New makes one.
type Observer struct {
	// Warmup is the version at which the measured window begins; 0 measures from the start.
	Warmup loop.Version
	// OnGroup, if not nil, is called with the split of every trained group, in the order of training.
	// OnStep is called after every train step, with the splits of its groups before it. Under
	// loop.PolicyReplay a group comes once for each step on it.
	OnGroup func(Group)
	OnStep  func(Step)

	cfg    loop.Config
	run    track.Run
	groups track.Groups[life]
	s      state
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
	// Due is the version that weight syncs without any duration would have the engines serve, Restored
	// the newest that the trainer went back to.
	Due, Restored loop.Version
	// Now is the time of the last event, or of what a driver told since; Settled that up to which time has been counted.
	Now, Settled int64
	// TrainFrom is when a step that waits for a validation goes on.
	TrainFrom int64
	// Stopped: nothing will be started any more.
	Stopped bool
	// Queued is the queue in groups, Validating how many engines do that.
	Queued, Validating int
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
	o.s = state{SyncEvery: cfg.SyncEvery, Redundancy: cfg.Redundancy, Made: make([]origin, remembered), Recent: make([]sums, recentSteps)}
	o.run, o.groups = track.New(cfg), track.NewGroups[life](&cfg)
	return o
}

// Observe takes one event and the actions that followed from it, which it only reads. Of what was
// measured it needs EnvironmentNS of scored rollouts, and QueueGroups.
func (o *Observer) Observe(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
	o.s.Now = max(o.s.Now, ev.Time)
	o.settle()
	o.ended = false
	if len(actions) == 1 && ev.Kind == loop.RolloutScored && o.turnover(ev, m, &actions[0]) { // nearly all
		o.s.Queued = m.QueueGroups
		return
	}
	o.judged = false
	o.event(ev, m)
	for i := range actions {
		left := o.run.Action(&actions[i])
		o.action(&actions[i], left)
	}
	o.s.Queued = m.QueueGroups
	o.lost(o.run.Done(ev))
	switch {
	case o.ended:
		o.endStep()
	case ev.Kind == loop.TrainerRestored:
		o.warmedUp()
	}
}

// turnover takes a rollout that is scored and the next one that starts in its slot: every engine is as busy as before,
// and idle slots are so for the same reason. It reports false, with nothing changed, for any other step.
func (o *Observer) turnover(ev *loop.Event, m *metrics.Measured, a *loop.Action) bool {
	if a.Kind != loop.StartRollout || a.Slot != ev.Slot {
		return false
	}
	at := o.run.At(ev)
	if at == nil || at.Aborted || fails(ev) {
		return false
	}
	if g := o.groups.Get(ev.Group); g != nil {
		o.keep(g, m)
	}
	o.run.NowNS = max(o.run.NowNS, ev.Time)
	o.run.Turn(at, a)
	o.start(a)
	return true
}

func (o *Observer) event(ev *loop.Event, m *metrics.Measured) {
	version := o.run.Version
	left := o.run.Event(ev)
	switch ev.Kind {
	case loop.RolloutScored:
		o.scored(ev, m, left)
	case loop.RolloutFailed, loop.RolloutAborted, loop.EngineLost:
		if o.run.Stand(ev) {
			o.stand(left)
		} else {
			o.lost(left)
		}
	case loop.FirstToken:
		o.firstToken(ev)
	case loop.TrainStepEnded:
		if o.ended = o.run.Version > version; o.ended {
			o.increment(ev.Lease)
		}
	case loop.TrainerRestored:
		if o.run.Version > version {
			o.s.Restored = ev.Version
			o.increment(0)
		}
	case loop.Recovered:
		o.recovered(ev, left)
	case loop.StopRequested:
		o.s.Stopped = true
	}
}

// lost fails the attempts that left these slots without a score, and those that stood interrupted in a cell at its end.
func (o *Observer) lost(slots []int32) {
	for _, slot := range slots {
		if at := &o.run.Slots[slot]; !at.Aborted {
			o.leave(at.Group)
		}
	}
	for _, p := range o.run.Dropped() {
		o.leave(p.Group)
	}
}

// action takes an action, with the slots that attempts left by it.
func (o *Observer) action(a *loop.Action, left []int32) {
	switch a.Kind {
	case loop.StartRollout:
		o.start(a)
	case loop.ResumeRollout:
		o.began(a, o.groups.Get(a.Group))
	case loop.AbortRollout:
		if a.Reason != loop.ReasonNone { // of its own, not with its group
			o.leave(a.Group)
		}
	case loop.ReleaseEngine:
		o.lost(left)
	case loop.GroupQueued, loop.GroupHeld:
		o.ready(a)
	case loop.GroupTrained:
		o.train(a)
	case loop.GroupEnded:
		o.groups.Remove(a.Group)
	case loop.SettingChanged:
		o.moved(a)
	case loop.FinishRun:
		o.s.Stopped = true
	}
}

// start counts an attempt of a group, which lives from its first on.
func (o *Observer) start(a *loop.Action) {
	g, opened := o.groups.Put(a.Group)
	if opened {
		g.anew()
	}
	g.Flying++
	o.began(a, g)
}

// moved takes over a setting that explanations go by.
func (o *Observer) moved(a *loop.Action) {
	switch a.Setting {
	case loop.SettingSyncEvery:
		o.s.SyncEvery = int(a.Value)
	case loop.SettingRedundancy:
		o.s.Redundancy = int(a.Value)
	}
}

// increment counts a version, made by the step of a lease or by going back.
func (o *Observer) increment(by loop.LeaseID) {
	s, version := &o.s, o.run.Version
	s.Made[int(version)%remembered] = origin{s.Now, by}
	if o.cfg.TrainerAsks || version-s.Due >= loop.Version(s.SyncEvery) {
		s.Due = o.newestWeights()
	}
}

// newestWeights is the newest version that has weights: a trainer that asks for its batches
// publishes those of every SyncEvery-th version, and those that it went back to.
func (o *Observer) newestWeights() loop.Version {
	version := o.run.Version
	if !o.cfg.TrainerAsks {
		return version
	}
	return max(version-version%loop.Version(o.s.SyncEvery), o.s.Restored)
}

// began notes that an engine was given a rollout of a group.
func (o *Observer) began(a *loop.Action, g *life) {
	if g != nil {
		g.began(o, o.run.Engines[a.Engine].Served)
	}
}

// leave notes that an attempt of a group ended without a score.
func (o *Observer) leave(id loop.GroupID) {
	if g := o.groups.Get(id); g != nil {
		g.left()
	}
}

// Engines are those of the run after the newest event, in the order of loop.Config.EngineSlots. They are good until the next.
func (o *Observer) Engines() []track.Engine { return o.run.Engines }

// TouchSlots reads what is kept of slots, as the method of loop.Loop does.
func (o *Observer) TouchSlots(slots []int32) int32 { return o.run.Touch(slots) }

// TouchGroups reads what is kept of the groups of the rollouts in slots, as the method of loop.Loop does.
func (o *Observer) TouchGroups(slots []int32) (sum int32) {
	for _, slot := range slots {
		if g := o.groups.Get(o.run.Slots[slot].Group); g != nil {
			sum += int32(g.Begun) + int32(g.MadeNS) // one at each end of what a rollout needs
		}
	}
	return sum
}
