package looptest

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Record is one step of a loop: its input and its result.
type Record struct {
	Event   loop.Event
	Actions []loop.Action
	Tick    int64
}

// World drives a loop in virtual time through a plan, and has every step
// checked. It is deterministic: the same plan gives the same records.
type World struct {
	// Checker has observed every step.
	Checker *Checker
	// Log holds every step if Keep is set.
	Log  []Record
	Keep bool
	// Watch, if set, looks at every step after the checker has.
	Watch func(c *Checker, actions []loop.Action) error

	plan   Plan
	faults Faults
	rng    *rand.Rand
	loop   *loop.Loop
	twin   *loop.Loop
	now    int64
	seq    int
	agenda agenda
	served []loop.Version
	lost   []bool
	stamps stamps
	asks   bool // it is under way that the trainer asks for a batch
}

const millisecond = int64(1e6)

// NewWorld returns a world at time 0. The error is the config's.
func NewWorld(p Plan) (*World, error) {
	l, err := loop.New(p.Config)
	if err != nil {
		return nil, err
	}
	n := len(p.Config.EngineSlots)
	w := &World{
		Checker: NewChecker(p.Config), plan: p, faults: p.Faults, rng: rand.New(rand.NewPCG(p.Seed, 0x776f726c64)),
		loop: l, served: make([]loop.Version, n), lost: make([]bool, n), stamps: newStamps(&p),
	}
	w.schedule(loop.Event{Kind: loop.RunStarted})
	return w, nil
}

// Loop returns the loop as it is now; stepping it from outside derails the world.
func (w *World) Loop() *loop.Loop { return w.loop }

// Run delivers events until n have been, with faults. An error says what the
// checker, or the comparison with a restored loop, found.
func (w *World) Run(n int) error {
	for range n {
		if err := w.advance(); err != nil {
			return err
		}
	}
	return nil
}

// Heal ends all faults and requires the trainer to reach the given number of
// further versions within a bound on events. The error names what blocks it.
func (w *World) Heal(versions int) error {
	w.faults = Faults{}
	goal := w.Checker.Version() + loop.Version(versions)
	limit := 40000 + 4000*versions
	for range limit {
		if w.Checker.Version() >= goal {
			return nil
		}
		if err := w.advance(); err != nil {
			return err
		}
	}
	return fmt.Errorf("no progress: v%d instead of v%d after %d events without faults: %s", w.Checker.Version(), goal, limit, w.Checker.Blocker())
}

// advance delivers the next event, perhaps with something going wrong first.
func (w *World) advance() error {
	w.misfortune()
	if w.Checker.Finished() {
		w.restart()
	}
	w.rejoin()
	w.ask()
	if len(w.agenda) == 0 {
		return fmt.Errorf("deadlock: nothing is under way: %s", w.Checker.Blocker())
	}
	ev := heap.Pop(&w.agenda).(entry).Event
	if ev.Time < w.now {
		ev.Time = w.now
	}
	w.now = ev.Time
	if w.hit(w.faults.Reversed) {
		ev.Time -= millisecond
	}
	if ev.Kind == loop.FirstToken && ev.Version == loop.NoVersion && ev.Engine >= 0 && int(ev.Engine) < len(w.served) {
		ev.Version = w.stamps.made(ev.Slot, w.served[ev.Engine])
	}
	if isCompletion(ev.Kind) && w.hit(w.faults.Duplicates) {
		again := ev
		again.Time = w.now + w.ms(50)
		w.schedule(again)
	}
	return w.deliver(ev)
}

func (w *World) deliver(ev loop.Event) error {
	w.made(&ev)
	w.stamps.tell(w.Checker, &ev)
	actions, tick := w.loop.Step(ev)
	if w.Keep {
		w.Log = append(w.Log, Record{ev, slices.Clone(actions), tick})
	}
	if err := w.Checker.Observe(ev, actions, tick); err != nil {
		return err
	}
	if err := w.stamps.check(w.Checker, actions); err != nil {
		return fmt.Errorf("after %v: %w", ev, err)
	}
	if err := w.Checker.Compare(w.loop.Status()); err != nil {
		return fmt.Errorf("after %v: %w", ev, err)
	}
	if w.Watch != nil {
		if err := w.Watch(w.Checker, actions); err != nil {
			return fmt.Errorf("after %v: %w", ev, err)
		}
	}
	if w.twin != nil {
		twin, twinTick := w.twin.Step(ev)
		if !slices.Equal(actions, twin) || tick != twinTick {
			return fmt.Errorf("after %v: the restored loop gives %v, %d instead of %v, %d", ev, twin, twinTick, actions, tick)
		}
	}
	if ev.Kind == loop.TrainerReady {
		w.asks = false
	}
	if ev.Kind == loop.WeightsSwitched && ev.Engine >= 0 && int(ev.Engine) < len(w.served) && w.Checker.engines[ev.Engine].served == ev.Version {
		w.served[ev.Engine] = ev.Version
	}
	if tick != loop.NoTick {
		w.schedule(loop.Event{Time: tick, Kind: loop.Tick})
	}
	for _, a := range actions {
		w.execute(a)
	}
	return w.snapshot()
}

// snapshot goes on with a loop restored from a snapshot, or lets one run beside.
func (w *World) snapshot() error {
	if !w.hit(w.faults.Snapshots) {
		return nil
	}
	data, err := w.loop.Snapshot()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	restored, err := loop.Restore(data)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	w.twin = w.loop
	w.loop = restored
	return nil
}

// execute puts the completion of an effect on the agenda.
func (w *World) execute(a loop.Action) {
	ev := loop.Event{Time: w.now, Engine: a.Engine, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Lease: a.Lease}
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		w.startRollout(ev, a.Level)
	case loop.AbortRollout:
		if a.Slot < 0 {
			return // it stands interrupted: there is nobody to answer
		}
		w.drop(func(e loop.Event) bool { return isRollout(e.Kind) && sameAttempt(e, ev) })
		ev.Kind = loop.RolloutAborted
		ev.Time += w.ms(5)
		w.schedule(ev)
	case loop.InterruptRollout:
		if a.Slot < 0 {
			return // it stands interrupted already
		}
		if !w.hit(w.faults.InterruptRaces) {
			w.drop(func(e loop.Event) bool { return isRollout(e.Kind) && sameAttempt(e, ev) })
		}
		w.interrupt(ev, w.plan.InterruptTicks)
	case loop.StartTrainStep:
		ev.Kind, ev.Version = loop.TrainStepEnded, a.Version+1
		switch {
		case w.hit(w.faults.TrainFails):
			ev.Kind, ev.Reason = loop.TrainStepFailed, loop.ReasonTrainer
		case w.hit(w.faults.LeaseReturns):
			ev.Kind, ev.Reason = loop.LeaseReturned, loop.ReasonTimeout
		}
		ev.Time += w.ms(w.plan.TrainTicks)
		w.schedule(ev)
		if ev.Kind == loop.TrainStepEnded {
			w.measure(ev.Time)
		}
	case loop.AcquireEngine:
		ev.Kind = loop.EngineJoined
		if w.hit(w.faults.SyncFails) {
			ev.Kind, ev.Reason = loop.EngineUnavailable, loop.ReasonEngine
		}
		ev.Time += w.ms(60)
		w.schedule(ev)
	case loop.LoadWeights, loop.SwitchWeights:
		ev.Kind, ev.Version = loop.WeightsLoaded, a.Version
		if a.Kind == loop.SwitchWeights {
			ev.Kind = loop.WeightsSwitched
		}
		if w.hit(w.faults.SyncFails) {
			ev.Kind, ev.Reason = loop.SyncFailed, loop.ReasonTimeout
		}
		ev.Time += w.ms(w.plan.SyncTicks)
		w.schedule(ev)
	}
}

// misfortune lets something go wrong between two events.
func (w *World) misfortune() {
	f := w.faults
	switch {
	case w.hit(f.EngineLost):
		e := w.rng.IntN(len(w.lost))
		w.schedule(loop.Event{Time: w.now, Kind: loop.EngineLost, Engine: int32(e), Reason: loop.ReasonEngine})
		resumes := w.plan.Config.ResumeLost // then each rollout says with what it has let go of the engine
		w.drop(func(ev loop.Event) bool {
			return ev.Engine == int32(e) && (isRollout(ev.Kind) && !resumes || isSync(ev.Kind))
		})
	case w.plan.Config.ResumeRestart && w.hit(f.CellRestarts):
		w.restartCell(w.plan.Config.EngineCells[w.rng.IntN(len(w.lost))])
	case w.hit(f.Restarts):
		w.restart()
	case w.hit(f.Stops):
		w.schedule(loop.Event{Time: w.now, Kind: loop.StopRequested})
	case w.hit(f.Restores):
		w.schedule(loop.Event{Time: w.now, Kind: loop.TrainerRestored, Version: w.Checker.Version() + 1})
		w.drop(func(ev loop.Event) bool { return isTraining(ev.Kind) })
	case w.plan.Config.Control != nil && w.hit(f.Requests):
		w.request()
	case w.hit(f.Garbage):
		w.schedule(w.garbage())
	}
}

// request has somebody ask for another value of a setting that may move, perhaps out of its range.
func (w *World) request() {
	set := loop.Setting(w.rng.IntN(settings))
	r := w.plan.Config.Control.Ranges[set]
	wide := r.Most - r.Least
	w.schedule(loop.Request(set, r.Least+wide*(1.2*w.rng.Float64()-0.1), w.now))
}

// restart ends the process and begins the run again.
func (w *World) restart() {
	w.drop(func(ev loop.Event) bool { // other cells go on
		return ev.Kind != loop.RunStarted && !(uint(ev.Engine) < uint(len(w.lost)) && w.Checker.elsewhere(ev.Engine) && (isRollout(ev.Kind) || isSync(ev.Kind) || ev.Kind == loop.EngineLost))
	})
	for i := range w.lost {
		w.lost[i] = false
	}
	w.asks = false
	w.schedule(loop.Event{Time: w.now, Kind: loop.Recovered})
}

// restartCell ends the process of a cell, in whose place another says hello.
func (w *World) restartCell(cell int) {
	for i := range w.lost {
		if w.Checker.cellOf(int32(i)) == cell && cell > 0 {
			w.schedule(loop.Event{Time: w.now, Kind: loop.EngineLost, Engine: int32(i), Reason: loop.ReasonRestart})
			w.drop(func(ev loop.Event) bool { return ev.Engine == int32(i) && (isRollout(ev.Kind) || isSync(ev.Kind)) })
		}
	}
}

// ask has a trainer that may ask for a batch do so after a while.
func (w *World) ask() {
	if w.Checker.mayAsk() && !w.asks {
		w.asks = true
		w.schedule(loop.Event{Time: w.now + w.ms(w.plan.AskTicks), Kind: loop.TrainerReady})
	}
}

// rejoin has engines that the loop counts as lost come back after a while.
func (w *World) rejoin() {
	for i, e := range w.Checker.engines {
		if e.state != gone || e.pool != owned {
			w.lost[i] = false
		} else if !w.lost[i] {
			w.lost[i] = true
			w.schedule(loop.Event{Time: w.now + w.ms(60), Kind: loop.EngineJoined, Engine: int32(i)})
		}
	}
}

// garbage is an event that names something at random, seldom anything there is.
func (w *World) garbage() loop.Event {
	pick := func(n int) int32 { return int32(w.rng.IntN(n+2) - 1) }
	version := w.Checker.Version()
	ev := loop.Event{
		Time: w.now, Kind: loop.EventKind(w.rng.IntN(26)), Engine: pick(len(w.lost)), Slot: pick(w.plan.Config.Concurrency()),
		Sample: pick(w.plan.Config.GroupSize + w.plan.Config.Redundancy), Attempt: pick(3), Reward: 1,
		Tokens: pick(2), Mark: loop.Mark(w.rng.IntN(5)), Drift: []float32{0, 0.1, -1, float32(math.NaN()), float32(math.Inf(1))}[w.rng.IntN(5)],
		Setting: loop.Setting(w.rng.IntN(8)),
		Group:   loop.GroupID(w.rng.IntN(int(w.Checker.lastGroup) + 2)),
		Lease:   loop.LeaseID(w.rng.IntN(int(w.Checker.lastLease) + 2)),
		Version: version + loop.Version(pick(3)),
	}
	switch ev.Kind {
	case loop.RunStarted, loop.Recovered, loop.StopRequested, loop.EngineLost, loop.EngineJoined:
		ev.Kind = loop.Tick
	}
	return ev
}

// drop takes events off the agenda, except that some completions are under way already.
func (w *World) drop(which func(loop.Event) bool) {
	w.agenda = slices.DeleteFunc(w.agenda, func(e entry) bool { return which(e.Event) && !w.hit(w.faults.LateStays) })
	heap.Init(&w.agenda)
}

func (w *World) schedule(ev loop.Event) {
	w.seq++
	heap.Push(&w.agenda, entry{ev, w.seq})
}

// hit reports whether a chance comes true.
func (w *World) hit(chance float64) bool { return chance > 0 && w.rng.Float64() < chance }

// ms returns a duration of 0 to n milliseconds.
func (w *World) ms(n int) int64 { return w.rng.Int64N(int64(n)+1) * millisecond }

func isRollout(k loop.EventKind) bool { return k >= loop.FirstToken && k <= loop.RolloutInterrupted }

func isSync(k loop.EventKind) bool { return k >= loop.WeightsLoaded && k <= loop.SyncFailed }

func isTraining(k loop.EventKind) bool { return k >= loop.TrainStepEnded && k <= loop.LeaseReturned }

func isCompletion(k loop.EventKind) bool {
	return isRollout(k) || isSync(k) || isTraining(k)
}

func sameAttempt(a, b loop.Event) bool {
	return a.Slot == b.Slot && a.Group == b.Group && a.Sample == b.Sample && a.Attempt == b.Attempt
}

type entry struct {
	loop.Event
	seq int
}

// agenda is a heap of events in the order of their delivery.
type agenda []entry

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if a[i].Before(a[j].Event) != a[j].Before(a[i].Event) {
		return a[i].Before(a[j].Event)
	}
	return a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(entry)) }
func (a *agenda) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}
