package loop

import (
	"math"
	"slices"
)

// NoTick is the instant that never comes: the loop wants no Tick.
const NoTick int64 = math.MaxInt64

// Loop is the state machine. It is not safe for concurrent use: one goroutine
// owns it.
type Loop struct {
	cfg Config
	s   state
	out []Action
	// stride is the samples of a group in the arena, liveMax the cap of bounded and threshold,
	// weights the replay weight by age. All follow from cfg.
	stride  int
	liveMax int
	weights []uint64
	// queued counts the queued groups of each prompt while a batch is selected (Balance).
	queued []uint64
	// prompts: groups are given a prompt or a level.
	prompts bool
	// handsOver: a slot that becomes free may be given away at once (handOver).
	handsOver bool
	// free counts the free slots of all engines, taken those that hold a rollout, or one that is being stopped.
	free, taken int
	// rules are the settings as they are now; sizes: groups may differ in size.
	rules rules
	sizes bool
	// alarm is when the controller wants a Tick, NoTick for never; departs: an engine that is to leave is empty.
	alarm   int64
	departs bool
	// ev is the event of the step, for the message of a broken invariant: that of the
	// caller, or the copy in own.
	ev  *Event
	own Event
}

// New returns a loop that waits for RunStarted. The error names every field of
// the config that cannot be.
func New(cfg Config) (*Loop, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Loop{cfg: cfg}
	l.derive()
	l.s = state{
		NextGroup: 1,
		NextLease: 1,
		Open:      none,
		Queue:     list{none, none, 0},
		Held:      list{none, none, 0},
		Sync:      sync{Target: NoVersion},
		Settle:    NoTick,
		Levels:    make([]level, cfg.Levels),
		Times:     times{LeaseAt: unknownTime, SyncAt: unknownTime, EndAt: unknownTime},
		Hold:      hold{Since: unknownTime},
	}
	for i, n := range cfg.EngineSlots {
		l.s.Engines = append(l.s.Engines, engine{Served: NoVersion, Loading: NoVersion, State: engineServing})
		for range n {
			l.s.Slots = append(l.s.Slots, slot{Group: none, Engine: int32(i)})
		}
	}
	if cfg.Control != nil {
		l.s.Control = newController(&cfg)
		l.beginFleet()
	}
	if cfg.Placement == PlaceCacheAware {
		l.s.Opens = slices.Repeat([]int32{none}, len(cfg.EngineSlots))
	}
	l.adopt()
	for i := range l.s.Engines {
		if !l.cfg.Owns(int32(i)) {
			l.s.Engines[i].State = engineLost
		}
	}
	l.freeOwnSlots()
	l.grow(cfg.Concurrency()/cfg.GroupSize + cfg.QueueGroups + cfg.BatchGroups + 2)
	return l, nil
}

// derive computes what follows from the config alone.
func (l *Loop) derive() {
	l.stride, l.liveMax = l.cfg.stride(), l.cfg.LiveGroupsMax()
	l.prompts = l.cfg.Prompts > 0 || l.cfg.Levels > 0 || l.cfg.Requeue
	l.countFree()
	for i := range l.s.Engines {
		l.departs = l.departs || l.s.Engines[i].Away == engineLeaving
	}
	if l.cfg.Policy == PolicyReplay {
		l.weights = replayWeights(l.cfg.Gamma)
	}
	if l.cfg.Balance {
		l.queued = make([]uint64, l.cfg.Prompts+1)
	}
}

// Config returns the rules the loop runs by, defaults filled in.
func (l *Loop) Config() Config { return l.cfg }

// Step takes one event and returns what follows from it, and the next instant
// at which the loop wants a Tick (NoTick for never). The actions are valid until
// the next call. Events must come in the order of their time; an earlier one is
// taken as happening now.
func (l *Loop) Step(ev Event) (actions []Action, tick int64) {
	l.own = ev
	return l.StepEvent(&l.own)
}

// StepEvent is Step for an event that the caller keeps as it is until the next call. Nothing is
// copied. A driver of millions of events a second feels a copy: an event copied right after its
// writing waits for its parts to reach memory.
func (l *Loop) StepEvent(ev *Event) (actions []Action, tick int64) {
	l.out, l.ev = l.out[:0], ev
	s := &l.s
	if ev.Kind == RolloutScored && s.Started && s.Finished == ReasonNone && ev.Time >= s.Now { // nearly all
		if s.Hold.Since != unknownTime {
			l.payHold(ev.Time)
		}
		s.Now = ev.Time
		if l.onRolloutScored(ev) && s.Now < l.alarm {
			s.Settle = NoTick
			l.check()
			return l.out, l.alarm
		}
		return l.settle(false)
	}
	return l.step(ev)
}

// step takes any event.
func (l *Loop) step(ev *Event) (actions []Action, tick int64) {
	s := &l.s
	if ev.Time < s.Now {
		s.Counts.TimeReversed++
	} else {
		if s.Hold.Since != unknownTime {
			l.payHold(ev.Time)
		}
		s.Now = ev.Time
	}
	if (s.Finished != ReasonNone || !s.Started) && ev.Kind != Recovered && ev.Kind != RunStarted {
		s.Counts.Late++
		return l.out, NoTick
	}
	return l.settle(l.apply(ev))
}

// settle ends a step: unless it is to wait for other events of this instant, free
// slots are given away.
func (l *Loop) settle(wait bool) (actions []Action, tick int64) {
	s := &l.s
	if s.Finished != ReasonNone {
		s.Settle = NoTick
		l.check()
		return l.out, NoTick
	}
	if l.departs {
		l.releaseEmpty()
	}
	if s.Now >= l.alarm {
		l.onAlarm()
	}
	switch {
	case wait:
		s.Settle = s.Now
	default:
		s.Settle = NoTick
		l.fill()
	}
	l.check()
	tick = min(s.Settle, l.alarm)
	if l.rules.hold > 0 {
		tick = min(tick, l.holdTick())
	}
	return l.out, tick
}

// apply changes the state by one event. It reports whether starts are to wait
// for the other events of this instant: at one instant the version goes up, the
// engines switch, the next batch is selected, and only then rollouts start.
func (l *Loop) apply(ev *Event) (settle bool) {
	switch ev.Kind {
	case RunStarted:
		l.onRunStarted()
	case Recovered:
		l.onRecovered()
	case StopRequested:
		l.onStopRequested()
	case SettingRequested:
		l.onSettingRequested(ev)
	case GroupMeasured:
		l.onGroupMeasured(ev)
		return l.s.Settle != NoTick
	case TrainStepEnded:
		l.onTrainStepEnded(ev)
		return true
	case TrainStepFailed:
		l.onTrainStepFailed(ev)
	case LeaseReturned:
		l.onLeaseReturned(ev)
	case TrainerRestored:
		l.onTrainerRestored(ev)
		return true
	case TrainerReady:
		l.onTrainerReady()
		return l.s.Settle != NoTick
	case WeightsLoaded:
		l.onWeightsLoaded(ev)
		return true
	case WeightsSwitched:
		l.onWeightsSwitched(ev)
		return true
	case SyncFailed:
		l.onSyncFailed(ev)
	case EngineLost:
		l.onEngineLost(ev)
	case EngineJoined:
		l.onEngineJoined(ev)
	case EngineUnavailable:
		l.onEngineUnavailable(ev)
	case Tick:
	case FirstToken:
		l.onFirstToken(ev)
		return l.s.Settle != NoTick
	case RolloutScored:
		if l.onRolloutScored(ev) {
			return false
		}
	case RolloutFailed:
		l.onRolloutFailed(ev)
	case RolloutAborted:
		l.onRolloutAborted(ev)
	case RolloutInterrupted:
		l.onRolloutInterrupted(ev)
	default:
		l.s.Counts.Unknown++
	}
	return false
}

func (l *Loop) emit(a Action) { l.out = append(l.out, a) }

func (l *Loop) late() { l.s.Counts.Late++ }

func (l *Loop) onRunStarted() {
	s := &l.s
	if s.Started {
		l.late()
		return
	}
	s.Started = true
	for i := range s.Engines {
		if s.Engines[i].Away == engineOurs && l.cfg.Owns(int32(i)) {
			s.Engines[i].Served = 0
		}
	}
	if s.Control != nil {
		l.beginControl()
	}
}

func (l *Loop) onStopRequested() {
	l.s.Stopping = true
	if l.s.Lease.ID == 0 {
		l.finish(ReasonStopped)
	}
}

func (l *Loop) finish(why Reason) {
	l.s.Finished = why
	l.emit(Action{Kind: FinishRun, Reason: why, Version: l.s.Trained})
}

// onRecovered issues every outstanding effect again as its next attempt: the
// process that had them under way is gone, and with it the weights of the engines of cell 0 and
// the rollouts in flight on them, unless their turns are kept (ResumeRestart). Other cells go on with what they have.
func (l *Loop) onRecovered() {
	s := &l.s
	if !s.Started {
		l.onRunStarted()
		return
	}
	s.Stopping, s.Finished, s.Asked = false, ReasonNone, false
	before := s.Sync
	s.Sync = sync{Target: NoVersion, Completed: l.newestWeights()} // first: an ending rollout must not switch an engine that is gone
	s.Times.LeaseAt, s.Times.SyncAt, s.Times.EndAt = unknownTime, unknownTime, unknownTime
	s.Hold = hold{Since: unknownTime}
	for i := range s.Slots {
		switch sl := &s.Slots[i]; {
		case !sl.holdsAttempt() || !l.cfg.Owns(sl.Engine):
		case l.cfg.ResumeRestart:
			l.stand(int32(i))
		default:
			l.failAttempt(int32(i), ReasonRestart)
		}
	}
	if !l.cfg.ResumeRestart {
		l.failBacklog(0, ReasonRestart)
	}
	l.freeOwnSlots()
	if l.cfg.EngineCells != nil {
		s.Sync = before
	} else if s.Sync.Completed != before.Completed { // engines come back with what a sync would bring
		s.Taken = 0
	}
	if l.cfg.TrainSteps > 0 && s.Trained >= l.cfg.TrainSteps {
		l.finish(ReasonSteps)
		return
	}
	if s.Control != nil {
		l.recoverControl()
	}
	leased := s.Lease.ID != 0
	l.joinOwn()
	if leased {
		s.Lease.Attempt++
		l.emitTrainStep()
	} else {
		l.selectBatch()
	}
}

// joinOwn has the engines of cell 0 join, which have lost their weights. What the others serve, or are about to, is known
// before that: a sync of theirs may have waited for an engine that is gone, or for the run to go on.
func (l *Loop) joinOwn() {
	s := &l.s
	for i := range s.Engines {
		if e := &s.Engines[i]; e.Away == engineOurs && l.cfg.Owns(int32(i)) {
			e.State, e.Phase, e.Served = engineLost, phaseIdle, NoVersion
		}
	}
	l.advanceSync()
	l.completeSync()
	l.startSync()
	v := l.fleetVersion()
	for i := range s.Engines {
		if s.Engines[i].Away == engineOurs && l.cfg.Owns(int32(i)) {
			l.join(int32(i), v)
		}
	}
}
