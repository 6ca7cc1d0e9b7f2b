package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
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
}

// ErrStalled is wrapped by the error of a simulation in which train steps have ceased.
var ErrStalled = errors.New("the simulated run has stalled")

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
	return Result{Summary: r.rec.Summary(), Series: r.rec.Steps, Ledger: r.l.Ledger(), Events: r.events, EndNS: r.now}, nil
}

type runner struct {
	cfg     Config
	l       *loop.Loop
	rec     *metrics.Recorder
	now     int64
	slots   []slot
	engines []engine
	// env holds the ends of environment times, of all engines' rollouts. With merged it
	// holds the ends of whole rollouts: where engines neither change speed nor stand
	// still, those are known from the start.
	env    tree
	merged bool
	// pending are scheduled events, the next one last.
	pending []loop.Event
	tick    int64
	busy    bool // a train step is running
	// leaseRollouts and leaseTokens are those of the batch just named.
	leaseRollouts int64
	leaseTokens   int64
	done          bool
	events        int64
	sinceStep     int64
	stallAfter    int64
}

func newRunner(cfg Config) (*runner, error) {
	l, err := loop.New(cfg.Loop)
	if err != nil {
		return nil, err
	}
	cfg.Loop = l.Config()
	c := cfg.Loop.Concurrency()
	r := &runner{cfg: cfg, l: l, rec: metrics.NewRecorder(cfg.Loop), slots: make([]slot, c), tick: loop.NoTick, env: newTree(0, c)}
	r.merged = cfg.Speed == nil && !cfg.Lockstep && cfg.StartNS == 0 && (cfg.Loop.Sync == loop.SyncInFlight || cfg.SyncNS == 0)
	r.rec.Warmup = loop.Version(cfg.Warmup)
	r.rec.Grow(cfg.Warmup + cfg.Measured)
	first := int32(0)
	for i, n := range cfg.Loop.EngineSlots {
		r.engines = append(r.engines, engine{running: newTree(first, n), speed: 1, slots: r.slots[first : int(first)+n]})
		for k := range r.engines[i].slots {
			r.engines[i].slots[k].engine = int32(i)
		}
		first += int32(n)
	}
	r.stallAfter = 1000 * int64(c+(cfg.Loop.QueueGroups+cfg.Loop.BatchGroups)*cfg.Loop.GroupSize)
	return r, nil
}

func (r *runner) run() error {
	r.deliver(loop.Event{Kind: loop.RunStarted}, 0, metrics.Measured{})
	for !r.done {
		at, slot := r.nextRollout()
		switch {
		case len(r.pending) == 0 && r.tick == loop.NoTick && slot < 0:
			return r.stalled("nothing is left to happen")
		case r.pendingFirst(at):
			r.deliverPending()
		case r.tick <= at:
			r.now = max(r.now, r.tick)
			r.deliver(loop.Event{Time: r.now, Kind: loop.Tick}, 0, metrics.Measured{})
		default:
			r.now = at
			r.endPhase(slot)
		}
		if r.sinceStep > r.stallAfter {
			return r.stalled(fmt.Sprintf("%d rollouts ended since the last train step and no batch is full", r.sinceStep))
		}
	}
	return nil
}

func (r *runner) stalled(why string) error {
	st := r.l.Status()
	return fmt.Errorf("sim: %w after %d of %d train steps: %s; queue %d of %d groups, %d live, ledger %+v: check the staleness budget, the filter and the queue against the batch",
		ErrStalled, st.Version, r.cfg.Loop.TrainSteps, why, st.QueueGroups, st.QueueCapacityGroups, st.LiveGroups, st.Ledger)
}

// nextRollout returns when the next rollout ends a phase, generation or
// environment, and its slot; -1 if none runs.
func (r *runner) nextRollout() (at int64, slot int32) {
	at, slot = math.MaxInt64, -1
	if r.merged {
		if top, ok := r.env.top(); ok {
			at, slot = int64(valueOf(top.key)), int32(top.slot)
		}
		return at, slot
	}
	for i := range r.engines {
		e := &r.engines[i]
		top, ok := e.running.top()
		if !ok || e.held {
			continue
		}
		t := e.timeOf(top.key)
		if t < r.now {
			t = r.now
		}
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
	if len(r.pending) == 0 {
		return false
	}
	p := &r.pending[len(r.pending)-1]
	if p.Time > at || p.Time == at && p.Kind >= loop.RolloutScored && at != math.MaxInt64 {
		return false
	}
	return r.tick > p.Time || r.tick == p.Time && p.Kind <= loop.Tick
}

func (r *runner) deliverPending() {
	last := len(r.pending) - 1
	ev := r.pending[last]
	r.pending = r.pending[:last]
	r.now = max(r.now, ev.Time)
	switch ev.Kind {
	case loop.TrainStepEnded:
		r.setBusy(false)
		r.events++
		r.sinceStep = 0
	case loop.WeightsSwitched:
		r.engines[ev.Engine].switched(r.now, ev.Version, r.cfg.NSPerToken)
	}
	r.deliver(ev, 0, metrics.Measured{})
}

// schedule keeps the pending events in order, the next one last.
func (r *runner) schedule(ev loop.Event) {
	i := len(r.pending)
	for i > 0 && r.pending[i-1].Before(ev) {
		i--
	}
	r.pending = slices.Insert(r.pending, i, ev)
}

// endPhase ends the phase of the rollout in a slot, and with the last one the rollout.
func (r *runner) endPhase(slotIndex int32) {
	s := &r.slots[slotIndex]
	switch s.phase {
	case outside:
		r.score(slotIndex, &r.env)
	case starting:
		r.env.set(slotIndex, never, r.slots)
		r.takeUp(slotIndex)
	case prefilling:
		r.firstToken(slotIndex)
	default:
		r.endGeneration(slotIndex)
	}
}

func (r *runner) endGeneration(slotIndex int32) {
	s := &r.slots[slotIndex]
	e := &r.engines[s.engine]
	s.versionTokens += int64(e.served) * int64(s.tokens-s.counted)
	s.counted = s.tokens
	r.setActive(e, e.active-1)
	switch {
	case r.merged:
		r.score(slotIndex, &r.env)
	case s.environmentNS == 0:
		r.score(slotIndex, &e.running)
	default:
		s.phase = outside
		e.running.set(slotIndex, never, r.slots)
		r.env.set(slotIndex, keyOf(float64(r.now+s.environmentNS)), r.slots)
	}
}

// firstToken reports the first token of the rollout in a slot.
func (r *runner) firstToken(slotIndex int32) {
	s := &r.slots[slotIndex]
	e := &r.engines[s.engine]
	s.phase = generating
	e.running.set(slotIndex, keyOf(s.endKey), r.slots)
	v := s.firstVersion
	if v == loop.NoVersion {
		v = e.served
	}
	r.deliver(loop.Event{Time: r.now, Kind: loop.FirstToken, Slot: slotIndex, Group: s.group, Sample: s.sample, Attempt: s.attempt, Version: v}, 0, metrics.Measured{})
}

// endsIn returns the tree that holds the next end of what runs in a slot.
func (s *slot) endsIn(r *runner) *tree {
	if r.merged || s.phase == starting || s.phase == outside {
		return &r.env
	}
	return &r.engines[s.engine].running
}

// score delivers the end of the rollout in a slot, whose end is on top of the
// given tree; most often another takes its place there at once.
func (r *runner) score(slotIndex int32, ended *tree) {
	s := &r.slots[slotIndex]
	ev := loop.Event{Time: r.now, Kind: loop.RolloutScored, Slot: slotIndex, Group: s.group, Sample: s.sample, Attempt: s.attempt, Tokens: s.tokens}
	if r.cfg.Work.Reject(s.group) {
		ev.Verdict = loop.VerdictReject
	}
	m := metrics.Measured{VersionTokens: s.versionTokens, EnvironmentNS: s.environmentNS}
	generateNS := r.now - s.start - s.environmentNS
	s.group = 0
	r.events++
	r.sinceStep++
	r.deliver(ev, generateNS, m)
	if s.group == 0 || s.endsIn(r) != ended {
		ended.set(slotIndex, never, r.slots)
	}
}

// deliver steps the loop and executes what follows.
func (r *runner) deliver(ev loop.Event, generateNS int64, m metrics.Measured) {
	actions, tick := r.l.Step(ev)
	r.tick = tick
	m.QueueGroups = r.l.QueueGroups()
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
		r.startRollout(a)
	case loop.AbortRollout:
		r.abortRollout(a)
	case loop.GroupLeased:
		r.leaseRollouts += int64(a.Count)
		r.leaseTokens += r.rec.GroupTokens(a.Group)
	case loop.StartTrainStep:
		ns := max(r.cfg.Work.StepNS(a.Lease, r.leaseRollouts, r.leaseTokens), 1)
		r.leaseRollouts, r.leaseTokens = 0, 0
		r.setBusy(true)
		r.schedule(loop.Event{Time: r.now + ns, Kind: loop.TrainStepEnded, Lease: a.Lease, Attempt: a.Attempt, Version: a.Version + 1})
	case loop.LoadWeights:
		ev := loop.Event{Time: r.now + r.cfg.LoadNS, Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}
		if r.cfg.Loop.Sync == loop.SyncInFlight {
			ev.Time += r.cfg.SyncNS
		}
		r.schedule(ev)
	case loop.SwitchWeights:
		ev := loop.Event{Time: r.now, Kind: loop.WeightsSwitched, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}
		if r.cfg.Loop.Sync != loop.SyncInFlight {
			ev.Time += r.cfg.SyncNS
			r.engines[a.Engine].hold(r.now, true)
		} else if e := &r.engines[a.Engine]; r.cfg.Lockstep && e.active > 0 {
			ev.Time = e.timeOf(keyOf(e.origin + e.stepAfter(r.now, r.cfg.NSPerToken)*r.cfg.NSPerToken))
		}
		r.schedule(ev)
	case loop.FinishRun:
		r.done = true
	}
}

func (r *runner) startRollout(a *loop.Action) {
	s := &r.slots[a.Slot]
	s.group, s.sample, s.attempt, s.phase = a.Group, a.Sample, a.Attempt, generating
	s.tokens, s.environmentNS = r.cfg.Work.Rollout(a.Group, a.Sample, a.Attempt)
	s.counted, s.versionTokens, s.start = 0, 0, r.now
	if r.cfg.StartNS > 0 {
		s.phase = starting
		r.env.set(a.Slot, keyOf(float64(r.now+r.cfg.StartNS)), r.slots)
		return
	}
	r.takeUp(a.Slot)
}

// takeUp has the engine begin with the rollout in a slot.
func (r *runner) takeUp(slotIndex int32) {
	s := &r.slots[slotIndex]
	e := &r.engines[s.engine]
	if r.cfg.Lockstep {
		ns := r.cfg.NSPerToken
		step := e.stepAfter(r.now, ns)
		r.setActive(e, e.active+1)
		s.phase, s.firstVersion = prefilling, loop.NoVersion
		s.endKey = e.origin + (step+float64(s.tokens))*ns
		e.running.set(slotIndex, keyOf(e.origin+(step+1)*ns), r.slots)
		return
	}
	r.setActive(e, e.active+1)
	s.phase = generating
	s.endKey = e.workDone(r.now) + math.Round(float64(s.tokens)*r.cfg.NSPerToken)
	if r.merged {
		r.env.set(slotIndex, keyOf(s.endKey+float64(s.environmentNS)), r.slots)
		return
	}
	e.running.set(slotIndex, keyOf(s.endKey), r.slots)
}

// abortRollout stops a rollout at once.
func (r *runner) abortRollout(a *loop.Action) {
	s := &r.slots[a.Slot]
	if s.group != a.Group || s.attempt != a.Attempt || s.sample != a.Sample {
		return
	}
	s.endsIn(r).set(a.Slot, never, r.slots)
	if s.phase == generating || s.phase == prefilling {
		e := &r.engines[a.Engine]
		r.setActive(e, e.active-1)
	}
	s.group = 0
	r.schedule(loop.Event{Time: r.now, Kind: loop.RolloutAborted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt})
}

func (r *runner) setActive(e *engine, active int) {
	e.active = active
	if r.cfg.Speed != nil {
		e.settle(r.now)
		e.speed = max(r.cfg.Speed(active, r.busy), 1e-9)
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
