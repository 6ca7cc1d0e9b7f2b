package sim

import (
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Result is what a simulation measured.
type Result struct {
	// Summary of the measured window.
	Summary metrics.Summary
	// Series has one point a train step, warm-up included.
	Series []metrics.Step
	// Ledger at the end of the run.
	Ledger loop.Ledger
	// Events counts rollout completions and train-step ends, warm-up included.
	Events int64
	// EndNS is the virtual time of the end.
	EndNS int64
	// PrefillTokens is how many tokens were put into a cache again, to resume rollouts.
	PrefillTokens int64
}

// Run simulates until Warmup+Measured train steps are done. It returns an error
// that wraps ErrStalled if nothing more can happen, or if rollouts go on without
// ever filling a batch.
func Run(cfg Config) (Result, error) {
	cfg.Loop.TrainSteps = loop.Version(cfg.Warmup + cfg.Measured)
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	r, err := newRunner(cfg)
	if err != nil {
		return Result{}, err
	}
	if err := r.run(); err != nil {
		return Result{}, err
	}
	if r.finished != loop.ReasonSteps {
		return Result{}, r.endedEarly(r.finished)
	}
	result := Result{Summary: r.rec.Summary(), Series: r.rec.Steps, Ledger: r.l.Ledger(), Events: r.events, EndNS: r.now, PrefillTokens: r.prefillTokens}
	if w := r.agents; w != nil && w.asked > 0 {
		result.Summary.Services.PrefixHit = float64(w.found) / float64(w.asked)
	}
	return result, nil
}

type runner struct {
	cfg     Config
	l       *loop.Loop
	rec     *metrics.Recorder
	now     int64
	slots   []slot
	engines []engine
	// env holds the ends of environment times, of all engines' rollouts.
	env tree
	// merged runs the rollouts where their ends are known from the start, in place of
	// slots, engines and env; else it is nil.
	merged *merged
	// pending are scheduled events, the next one last once they are sorted.
	pending  []loop.Event
	unsorted bool
	backlog  backlog
	drift    drift
	tick     int64
	busy     bool // a train step is running
	// leaseRollouts and leaseTokens are those of the batch just named.
	leaseRollouts int64
	leaseTokens   int64
	done          bool
	events        int64
	// sinceStep counts rollouts since the last train step, ended the groups.
	sinceStep  int64
	ended      []ending
	stallAfter int64
	// prefillTokens of resumed rollouts.
	prefillTokens int64
	// parts are those of the rollout being scored, without agents.
	parts metrics.Parts
	// agents are the rollouts under Config.Agents, else nil.
	agents     *agents
	faults     faults
	validation validation
	// doing counts engines by what they do.
	doing    [doesCount]int
	finished loop.Reason
}

func newRunner(cfg Config) (*runner, error) {
	cfg.TokenVersions = cfg.TokenVersions || cfg.countsTokens()
	cfg.Loop.EngineCells = nil // a simulation is one process
	l, err := loop.New(cfg.Loop)
	if err != nil {
		return nil, err
	}
	cfg.Loop = l.Config()
	c := cfg.Loop.Concurrency()
	r := &runner{cfg: cfg, l: l, rec: metrics.NewRecorder(cfg.Loop), tick: loop.NoTick}
	r.ended = make([]ending, 0, 8)
	r.pending = make([]loop.Event, 0, c+2*len(cfg.Loop.EngineSlots)+2)
	r.drift = newDrift(&r.cfg)
	r.validation.next = loop.Version(cfg.Validation.Every)
	r.rec.Beside = cfg.Beside
	r.rec.Warmup, r.rec.CapTokens = loop.Version(cfg.Warmup), cfg.CapTokens
	r.rec.Grow(cfg.Warmup + cfg.Measured)
	r.stallAfter = 1000 * int64(c+(cfg.Loop.QueueGroups+cfg.Loop.BatchGroups+cfg.Loop.ExtraGroups)*(cfg.Loop.GroupSize+cfg.Loop.Redundancy))
	if cfg.merged() {
		r.merged = newMerged(&r.cfg)
		r.merged.keepers = []keeper{r.l, r.rec}
		if k, ok := cfg.Beside.(keeper); ok {
			r.merged.keepers = append(r.merged.keepers, k)
		}
		return r, nil
	}
	r.slots, r.env = make([]slot, c), newTree(0, c)
	first := int32(0)
	for i, n := range cfg.Loop.EngineSlots {
		r.engines = append(r.engines, engine{running: newTree(first, n), speed: r.cfg.relative(i), relative: r.cfg.relative(i), slots: r.slots[first : int(first)+n]})
		for k := range r.engines[i].slots {
			r.engines[i].slots[k].engine = int32(i)
		}
		first += int32(n)
	}
	if cfg.Agents != nil {
		r.agents = newAgents(cfg.Agents, len(r.engines))
	}
	r.faults = newFaults(&r.cfg)
	r.doing[generates] = len(r.engines)
	return r, nil
}

func (r *runner) run() error {
	if r.merged != nil {
		return r.runMerged()
	}
	r.faults.plan(r)
	r.deliver(loop.Event{Kind: loop.RunStarted}, 0, metrics.Measured{})
	r.startSteering()
	r.ask()
	for !r.done {
		if err := r.cfg.stopped(); err != nil {
			return err
		}
		at, slot := r.nextRollout()
		next := r.nextTimer(at, slot)
		if next != nil {
			at = next.at
		}
		switch {
		case len(r.pending) == 0 && r.tick == loop.NoTick && slot < 0 && next == nil && r.validation.untilNS == 0:
			return r.stalled(true)
		case r.validationEnds(at):
			r.now = max(r.now, r.validation.untilNS)
			r.validated()
		case r.pendingFirst(at):
			r.deliverPending()
		case r.tick <= at:
			r.now = max(r.now, r.tick)
			r.deliver(loop.Event{Time: r.now, Kind: loop.Tick}, 0, metrics.Measured{})
		case next != nil:
			r.now = at
			a := next.agent
			r.agents.timers.pop()
			r.timeUp(a)
		default:
			r.now = at
			r.endPhase(slot)
		}
		if r.sinceStep > r.stallAfter {
			return r.stalled(false)
		}
	}
	return nil
}

// validationEnds reports whether the end of a validation comes before everything else,
// a rollout's end at the given time included.
func (r *runner) validationEnds(at int64) bool {
	until := r.validation.untilNS
	if until == 0 || until > at || until > r.tick {
		return false
	}
	p := r.nextPending()
	return p == nil || until <= p.Time
}

// nextTimer returns the timer that comes before a rollout's end at the given time in
// a slot, -1 for none; nil if there is none such.
func (r *runner) nextTimer(at int64, slot int32) *timer {
	if r.agents == nil {
		return nil
	}
	t := r.agents.timers.next()
	if t == nil || slot >= 0 && (t.at > at || t.at == at && !t.beforeSlot(&r.slots[slot])) {
		return nil
	}
	return t
}

// nextRollout returns when the next rollout ends a phase, generation or
// environment, and its slot; -1 if none runs.
func (r *runner) nextRollout() (at int64, slot int32) {
	at, slot = math.MaxInt64, -1
	for i := range r.engines {
		e := &r.engines[i]
		top, ok := e.running.top()
		if !ok || e.held != 0 {
			continue
		}
		t := max(e.timeOf(top.key), r.now)
		if t < at || t == at && r.slots[top.slot].before(&r.slots[slot]) {
			at, slot = t, int32(top.slot)
		}
	}
	if top, ok := r.env.top(); ok {
		t := int64(valueOf(top.key))
		if t < at || t == at && r.slots[top.slot].before(&r.slots[slot]) {
			at, slot = t, int32(top.slot)
		}
	}
	return at, slot
}

// pendingFirst reports whether the next scheduled event comes before a tick and
// before a rollout's end at the given time.
func (r *runner) pendingFirst(at int64) bool {
	p := r.nextPending()
	if p == nil || p.Time > at || p.Time == at && p.Kind >= loop.RolloutScored && at != math.MaxInt64 {
		return false
	}
	return r.tick > p.Time || r.tick == p.Time && p.Kind <= loop.Tick
}

// nextPending returns the next scheduled event, nil if there is none.
func (r *runner) nextPending() *loop.Event {
	if len(r.pending) == 0 {
		return nil
	}
	if r.unsorted {
		slices.SortFunc(r.pending, func(a, b loop.Event) int {
			if a.Before(b) {
				return 1
			}
			return -1
		})
		r.unsorted = false
	}
	return &r.pending[len(r.pending)-1]
}

func (r *runner) deliverPending() {
	last := len(r.pending) - 1
	ev := r.pending[last]
	r.pending = r.pending[:last]
	r.now = max(r.now, ev.Time)
	switch ev.Kind {
	case loop.SettingRequested:
		r.sinceStep += max(r.stallAfter/faultsMost, 1) // polls alone are no progress
		r.steer(true)
		r.schedulePoll()
		return
	case loop.TrainStepEnded:
		r.drift.deliver(r)
		r.setBusy(false)
		r.events++
		r.sinceStep, r.ended = 0, r.ended[:0]
	case loop.TrainStepFailed:
		r.drift.groups = r.drift.groups[:0]
		r.setBusy(false)
	case loop.WeightsLoaded, loop.WeightsSwitched:
		if r.merged != nil {
			if ev.Kind == loop.WeightsSwitched {
				r.switchMerged(ev.Engine, ev.Version)
			}
		} else if !r.engineReports(&ev) {
			return
		}
	case loop.RolloutInterrupted:
		if !r.interrupted(&ev) {
			return
		}
	case loop.EngineLost:
		if !r.loseEngine(&ev) {
			return
		}
	case loop.EngineJoined:
		if ev.Attempt > 0 && !r.fleetJoins(&ev) || ev.Attempt == 0 && !r.joinEngine(&ev) {
			return
		}
	}
	r.deliver(ev, 0, metrics.Measured{})
	if ev.Kind == loop.TrainStepEnded {
		r.faults.stepped(r, ev.Version)
		r.steer(false)
		r.ask()
		if r.cfg.Stepped != nil {
			r.cfg.Stepped(ev.Version)
		}
	}
}

// ask has a trainer that asks for its batches ask for the next.
func (r *runner) ask() {
	if r.cfg.Loop.TrainerAsks {
		at := r.now + r.cfg.AskNS
		if r.now == 0 {
			at += r.cfg.LateNS
		}
		r.schedule(loop.Event{Time: at, Kind: loop.TrainerReady})
	}
}

// schedule has an event delivered at its time. A sync schedules one for every
// rollout at once, so that sorting waits until the next one is looked for.
func (r *runner) schedule(ev loop.Event) {
	r.pending = append(r.pending, ev)
	r.unsorted = true
}

// deliver steps the loop and executes what follows.
func (r *runner) deliver(ev loop.Event, generateNS int64, m metrics.Measured) {
	actions, tick := r.l.Step(ev)
	r.tick = tick
	m.QueueGroups = r.l.QueueGroups()
	m.Control = metrics.ControlOf(r.l, ev.Kind)
	r.rec.Observe(ev, m, actions)
	if r.cfg.Observe != nil {
		r.cfg.Observe(ev, generateNS, m.EnvironmentNS, actions)
	}
	for i := range actions {
		r.execute(&actions[i])
	}
}

func (r *runner) execute(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		if r.merged != nil {
			r.startMerged(a)
		} else {
			r.startRollout(a)
		}
	case loop.ResumeRollout:
		r.resumeRollout(a)
	case loop.InterruptRollout:
		r.interruptRollout(a)
	case loop.AbortRollout:
		if r.merged != nil {
			r.abortMerged(a)
		} else {
			r.abortRollout(a)
		}
	case loop.GroupEnded:
		r.groupEnded(a)
	case loop.GroupLeased:
		r.leaseRollouts += int64(a.Count)
		r.leaseTokens += r.rec.GroupTokens(a.Group)
		r.drift.leased(a)
	case loop.StartTrainStep:
		r.startStep(a)
	case loop.SyncCompleted:
		r.validateEngines(a.Version)
	case loop.LoadWeights:
		if r.merged == nil {
			r.engines[a.Engine].attempt = a.Attempt
		}
		loadNS, syncNS := r.cfg.syncTimes(a.Version)
		ev := loop.Event{Time: r.now + loadNS, Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}
		if r.cfg.Loop.Sync == loop.SyncInFlight {
			ev.Time += syncNS
		}
		r.schedule(ev)
	case loop.SwitchWeights:
		ev := loop.Event{Time: r.now, Kind: loop.WeightsSwitched, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}
		if r.cfg.Loop.Sync != loop.SyncInFlight {
			_, syncNS := r.cfg.syncTimes(a.Version)
			ev.Time += syncNS
			if r.merged == nil {
				r.holdEngine(a.Engine, heldBySync, true)
			}
		} else if r.cfg.Lockstep && r.engines[a.Engine].active > 0 {
			ev.Time = r.engines[a.Engine].stepEnd(r.now, r.cfg.NSPerToken)
		}
		r.schedule(ev)
	case loop.AcquireEngine:
		r.acquire(a)
	case loop.FinishRun:
		r.done, r.finished = true, a.Reason
	}
}

func (r *runner) setActive(e *engine, active int) {
	e.active = active
	if r.cfg.Speed != nil {
		e.settle(r.now)
		e.speed = max(r.cfg.Speed(active, r.busy)*e.relative, 1e-9)
	}
}

func (r *runner) setBusy(busy bool) {
	r.busy = busy
	if r.cfg.Speed == nil {
		return
	}
	for i := range r.engines {
		r.setActive(&r.engines[i], r.engines[i].active)
	}
}
