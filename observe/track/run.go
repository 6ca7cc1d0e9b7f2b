package track

import "github.com/headway-rl/headway/loop"

// Run is the place of every attempt of a run, and its time there. Observers read its fields; [New] makes one.
type Run struct {
	State
	cfg loop.Config
	// left are the slots whose attempts left them in the newest part of a step.
	left []int32
	// dropped are the interrupted attempts that ended with their cell in the newest part of a step.
	dropped []Parked
}

// State is the memory of a run, for observers that are saved.
type State struct {
	// NowNS is the time of the newest event.
	NowNS int64
	// Slots holds the attempts, by slot; Pasts what was before the resumed ones among them came into theirs.
	Slots []Attempt
	Pasts []Past
	// Parked are interrupted attempts that wait to be resumed.
	Parked Backlog
	// Engines are in the order of loop.Config.EngineSlots.
	Engines []Engine
	// Active is how many slots are taken, AwaySlots how many belong to engines that are away, Switching how many engines
	// switch.
	Active, AwaySlots, Switching int64
	// Version is the trainer's. Lease is the newest batch that it was given, and Asked says that it has asked for
	// another since (loop.Config.TrainerAsks).
	Version loop.Version
	Lease   Lease
	Asked   bool
	// Sync is the weight sync of the fleet. Synced is the version of the newest that is complete, loop.NoVersion after a
	// restart that ended all engines.
	Sync   Sync
	Synced loop.Version
}

// Attempt is a rollout attempt in a slot. Of one that has left, the slot still says all but that. It is kept small: every
// rollout writes one and reads it again.
type Attempt struct {
	Group loop.GroupID
	// StartNS is when its time in slots began, the time that it stood interrupted left out.
	StartNS        int64
	Sample, Number int32
	// First is the version that its engine served when the attempt started.
	First, Engine int32
	// Runs: it is in the slot. Resumed: it was interrupted before, see Pasts.
	Runs, Resumed bool
	// Aborted: it is to stop, and its slot waits for the engine's word. Failed: it was aborted for a reason of its own,
	// not with its group.
	Aborted, Failed bool
}

// Lease is a batch at the trainer; Runs says that its train step has not ended.
type Lease struct {
	ID      loop.LeaseID
	Attempt int32
	Runs    bool
	// Version its step starts from, and when that attempt of it began.
	Version loop.Version
	SinceNS int64
}

// Sync is a weight sync of the fleet, from its first load to the loop's word that it is complete. Engines that serve
// nothing yet fetch weights for themselves, and begin none.
type Sync struct {
	Runs    bool
	Version loop.Version
	SinceNS int64
}

// New returns the run of a loop with these rules, before its first event.
func New(cfg loop.Config) Run {
	cfg = cfg.WithDefaults()
	r := Run{cfg: cfg, left: make([]int32, 0, 8)}
	r.Slots, r.Pasts = make([]Attempt, cfg.Concurrency()), make([]Past, cfg.Concurrency())
	slot := 0
	for i, n := range cfg.EngineSlots {
		r.Engines = append(r.Engines, Engine{First: int32(slot), Slots: int32(n)})
		for range n {
			r.Slots[slot].Engine = int32(i)
			slot++
		}
		if !cfg.Owns(int32(i)) {
			r.Engines[i].Gone, r.Engines[i].Served = true, loop.NoVersion
		}
		if cfg.EnginesStart > 0 && i >= cfg.EnginesStart {
			r.Engines[i].Gone = true
			r.leaves(&r.Engines[i], true)
		}
	}
	return r
}

// Restore makes a run go on from a state of the same rules. It reports false, with the run unchanged, for a state that
// cannot be of these rules. It computes anew the figures that follow from the rules and from the rest.
func (r *Run) Restore(s State) bool {
	if len(s.Slots) != len(r.Slots) || len(s.Pasts) != len(r.Pasts) || len(s.Engines) != len(r.Engines) {
		return false
	}
	s.Active, s.AwaySlots, s.Switching = 0, 0, 0
	for i := range s.Engines {
		e := &s.Engines[i]
		e.First, e.Slots, e.Active = r.Engines[i].First, r.Engines[i].Slots, 0
		for k := range e.Slots {
			at := &s.Slots[e.First+k]
			if at.Engine = int32(i); at.Runs {
				e.Active++
			}
		}
		s.Active += int64(e.Active)
		if e.Away {
			s.AwaySlots += int64(e.Slots)
		}
		if e.Phase == Switching {
			s.Switching++
		}
	}
	r.State = s
	return true
}

// Event takes an event, before what followed from it. It returns the slots whose attempts it took out of them; Slots still
// says which these were. The list is good until the next call.
func (r *Run) Event(ev *loop.Event) (left []int32) {
	r.left, r.dropped = r.left[:0], r.dropped[:0]
	r.NowNS = max(r.NowNS, ev.Time)
	switch ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted, loop.RolloutInterrupted:
		if at := r.At(ev); at != nil {
			if ev.Kind == loop.RolloutInterrupted && !at.Aborted {
				r.park(ev, at)
			}
			r.vacate(ev.Slot, at)
		}
	case loop.TrainerReady:
		r.Asked = r.cfg.TrainerAsks
	case loop.TrainStepEnded, loop.TrainStepFailed, loop.LeaseReturned, loop.TrainerRestored:
		r.trainer(ev)
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed, loop.EngineLost:
		r.engine(ev)
	case loop.Recovered:
		r.recovered(ev)
	}
	return r.left
}

// Action takes an action that followed from the event. It returns slots as Event does: with an engine that is given back its
// cell may be at its end. Of other actions it returns none.
func (r *Run) Action(a *loop.Action) (left []int32) {
	switch a.Kind {
	case loop.StartRollout:
		r.start(a)
	case loop.ResumeRollout:
		r.resume(a)
	case loop.AbortRollout:
		r.abort(a)
	case loop.StartTrainStep:
		r.Lease = Lease{a.Lease, a.Attempt, true, a.Version, r.NowNS}
		r.Asked, r.Version = false, max(r.Version, a.Version) // an observer may have missed the end of a step
	case loop.LoadWeights, loop.SwitchWeights:
		r.told(a)
	case loop.SyncCompleted:
		r.Sync, r.Synced = Sync{}, a.Version
	case loop.ReleaseEngine:
		r.left, r.dropped = r.left[:0], r.dropped[:0]
		r.release(a.Engine)
		return r.left
	}
	return nil
}

// Done ends a step, after all its actions. It returns slots as Event does: those of an engine that was given up, which no
// event says.
func (r *Run) Done(ev *loop.Event) (left []int32) {
	r.left, r.dropped = r.left[:0], r.dropped[:0]
	if ev.Kind == loop.SyncFailed && uint(ev.Engine) < uint(len(r.Engines)) && r.Engines[ev.Engine].Failing {
		r.engine(&loop.Event{Kind: loop.EngineLost, Engine: ev.Engine})
	}
	return r.left
}

// At returns the attempt that an event names, nil for a late event, whose attempt runs nowhere.
func (r *Run) At(ev *loop.Event) *Attempt {
	if uint(ev.Slot) < uint(len(r.Slots)) {
		if at := &r.Slots[ev.Slot]; at.Runs && at.Group == ev.Group && at.Sample == ev.Sample && at.Number == ev.Attempt {
			return at
		}
	}
	return nil
}

// Past is what was before the attempt in a slot came into it, the zero value for one that was never interrupted.
func (r *Run) Past(slot int32) Past {
	if !r.Slots[slot].Resumed {
		return Past{}
	}
	return r.Pasts[slot]
}

// Entered returns when the attempt in a slot came into it, and the version that its engine served then.
func (r *Run) Entered(slot int32) (ns int64, version loop.Version) {
	at := &r.Slots[slot]
	if !at.Resumed {
		return at.StartNS, loop.Version(at.First)
	}
	return at.StartNS + r.Pasts[slot].SlotNS, loop.Version(r.Pasts[slot].Version)
}

// Turn replaces the attempt in a slot by the one that an action starts there. It stands for the three parts of a step
// in which nothing else happens, which nearly all steps are.
func (r *Run) Turn(at *Attempt, a *loop.Action) {
	// Sample and number apart: halves that were stored one by one are slow to read as one. The fields are set one by
	// one: a composite literal is built aside and copied.
	at.Group, at.Sample, at.StartNS, at.Number = a.Group, a.Sample, r.NowNS, a.Attempt
	at.First, at.Resumed, at.Aborted, at.Failed = int32(a.Version), false, false, false
}

func (r *Run) vacate(slot int32, at *Attempt) {
	at.Runs = false
	r.Active--
	r.Engines[at.Engine].Active--
	r.left = append(r.left, slot)
}

func (r *Run) start(a *loop.Action) *Attempt {
	at := &r.Slots[a.Slot]
	if !at.Runs {
		at.Runs = true
		r.Active++
		r.Engines[at.Engine].Active++
	}
	r.Turn(at, a)
	return at
}

func (r *Run) park(ev *loop.Event, at *Attempt) {
	p := r.parked(ev.Slot, at)
	if ev.Tokens > p.Tokens {
		p.Interruptions++
	}
	p.Tokens = ev.Tokens
	r.Parked.push(p)
}

// parked is the attempt in a slot as it would stand interrupted now, with the tokens of its last interruption.
func (r *Run) parked(slot int32, at *Attempt) Parked {
	p := Parked{Group: at.Group, Sample: at.Sample, Number: at.Number, First: at.First, Cell: r.cfg.CellOf(at.Engine), Past: r.Past(slot)}
	p.SlotNS = r.NowNS - at.StartNS
	return p
}

// parkAll has all attempts at an engine stand interrupted.
func (r *Run) parkAll(e *Engine) {
	slots, first := r.On(e)
	for i := range slots {
		if at := &slots[i]; at.Runs && !at.Aborted {
			r.Parked.push(r.parked(first+int32(i), at))
		}
	}
}

func (r *Run) resume(a *loop.Action) {
	at := r.start(a)
	at.Resumed = true
	p, _ := r.Parked.take(a)
	p.Version = int32(a.Version)
	at.First, at.StartNS, r.Pasts[a.Slot] = p.First, r.NowNS-p.SlotNS, p.Past
}

func (r *Run) abort(a *loop.Action) {
	if a.Slot < 0 {
		r.Parked.take(a)
		return
	}
	if at := &r.Slots[a.Slot]; at.Runs && at.Group == a.Group && at.Sample == a.Sample && at.Number == a.Attempt {
		at.Aborted, at.Failed = true, a.Reason != loop.ReasonNone
	}
}

// trainer takes an event of the batch at the trainer.
func (r *Run) trainer(ev *loop.Event) {
	named := ev.Lease == r.Lease.ID && ev.Attempt == r.Lease.Attempt
	switch {
	case ev.Kind == loop.TrainStepFailed || ev.Kind == loop.LeaseReturned:
		r.Lease.Runs = r.Lease.Runs && !named
	case ev.Version != r.Version+1 || ev.Kind == loop.TrainStepEnded && !(named && r.Lease.Runs): // late
	default:
		r.Version, r.Lease.Runs = ev.Version, false
	}
}

// recovered takes the end of the process before: whatever its engines had under way is gone, or stands interrupted
// (loop.Config.ResumeRestart), and they come back without weights. A sync ends with it unless other cells go on with theirs.
func (r *Run) recovered(ev *loop.Event) {
	r.Asked = false
	if r.cfg.EngineCells == nil {
		r.Sync, r.Synced = Sync{}, loop.NoVersion
	}
	stand := r.Stand(ev)
	if !stand {
		r.dropped = r.Parked.drop(0, r.dropped)
	}
	for i := range r.Loses(ev) {
		if stand {
			r.parkAll(&r.Engines[i])
		}
		r.vacateAll(&r.Engines[i])
		r.Engines[i].Gone = true
		r.enter(&r.Engines[i], Apart)
	}
	r.empty()
}

// Dropped are the interrupted attempts that ended with their cell by the newest Event, ReleaseEngine or Done, good until the
// next.
func (r *Run) Dropped() []Parked { return r.dropped }

// Touch reads slots and returns a sum that means nothing: an observer that knows which events come next has the slots
// near by then. The slots must exist.
func (r *Run) Touch(slots []int32) (sum int32) {
	for _, slot := range slots {
		sum += r.Slots[slot].Sample
	}
	return sum
}
