package sim

import (
	"errors"
	"fmt"
	"math"

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

// slot is a rollout in a slot of an engine.
type slot struct {
	group         loop.GroupID // 0: the slot is free
	sample        int32
	attempt       int32
	tokens        int32
	generated     bool // waiting in its environment
	counted       int32
	versionTokens int64
	environmentNS int64
	start         int64
	endKey        float64
}

// engine advances all its rollouts at one speed, so that one clock of work done serves them all.
type engine struct {
	heap   heap
	first  int32 // its slots
	slots  int32
	served loop.Version
	clock  float64 // work done by the time at, in ns at speed 1
	at     int64
	speed  float64
	held   bool
	active int
}

type runner struct {
	cfg     Config
	l       *loop.Loop
	rec     *metrics.Recorder
	now     int64
	slots   []slot
	engines []engine
	env     heap
	pending []loop.Event
	tick    int64
	busy    bool // a train step is running
	// leaseRollouts and leaseTokens are those of the batch just named.
	leaseRollouts int64
	leaseTokens   int64
	// vacant is the engine whose heap's top has just been delivered; -1 if none.
	vacant     int
	done       bool
	events     int64
	sinceStep  int64
	stallAfter int64
}

func newRunner(cfg Config) (*runner, error) {
	l, err := loop.New(cfg.Loop)
	if err != nil {
		return nil, err
	}
	cfg.Loop = l.Config()
	c := cfg.Loop.Concurrency()
	r := &runner{cfg: cfg, l: l, rec: metrics.NewRecorder(cfg.Loop), slots: make([]slot, c), tick: loop.NoTick, vacant: -1}
	r.rec.Warmup = loop.Version(cfg.Warmup)
	r.rec.Grow(cfg.Warmup + cfg.Measured)
	first := int32(0)
	for _, n := range cfg.Loop.EngineSlots {
		e := engine{first: first, slots: int32(n), speed: 1}
		e.heap.items = make([]entry, 0, n+1)
		r.engines = append(r.engines, e)
		first += int32(n)
	}
	r.env.items = make([]entry, 0, c+1)
	r.stallAfter = 1000 * int64(c+(cfg.Loop.QueueGroups+cfg.Loop.BatchGroups)*cfg.Loop.GroupSize)
	return r, nil
}

func (r *runner) run() error {
	r.deliver(loop.Event{Kind: loop.RunStarted}, 0, 0, metrics.Measured{})
	for !r.done {
		at, source := r.nextRollout()
		i := r.nextPending()
		switch {
		case i < 0 && r.tick == loop.NoTick && source == nowhere:
			return r.stalled("nothing is left to happen")
		case r.pendingFirst(i, at, source):
			r.deliverPending(i)
		case r.tick <= at:
			r.now = max(r.now, r.tick)
			r.deliver(loop.Event{Time: r.now, Kind: loop.Tick}, 0, 0, metrics.Measured{})
		case source == environment:
			r.now = at
			top := r.env.items[0]
			r.env.pop()
			r.score(top.slot)
		default:
			r.now = at
			r.endGeneration(source)
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

// Sources of the next rollout's end that are no engine.
const (
	nowhere     = -1
	environment = -2
)

// nextRollout returns when the next rollout ends a phase, and where.
func (r *runner) nextRollout() (at int64, source int) {
	at, source = math.MaxInt64, nowhere
	var first *entry
	for i := range r.engines {
		e := &r.engines[i]
		top := r.top(&e.heap, false)
		if top == nil || e.held {
			continue
		}
		t := e.at + int64(math.Ceil((top.key-e.clock)/e.speed))
		t = max(t, r.now)
		if t < at || t == at && sooner(top, first) {
			at, source, first = t, i, top
		}
	}
	if top := r.top(&r.env, true); top != nil {
		t := int64(top.key)
		if t < at || t == at && sooner(top, first) {
			at, source = t, environment
		}
	}
	return at, source
}

// sooner orders two rollouts that end at one instant.
func sooner(a, b *entry) bool {
	return a.group < b.group || a.group == b.group && a.sample < b.sample
}

// top returns a heap's first entry that is still wanted; aborted ones are dropped here.
func (r *runner) top(h *heap, inEnvironment bool) *entry {
	for len(h.items) > 0 {
		top := &h.items[0]
		s := &r.slots[top.slot]
		if s.group == top.group && s.sample == top.sample && s.attempt == top.attempt && s.generated == inEnvironment {
			return top
		}
		h.pop()
	}
	return nil
}

// nextPending returns the index of the first scheduled event, -1 if there is none.
func (r *runner) nextPending() int {
	best := -1
	for i := range r.pending {
		if best < 0 || r.pending[i].Before(r.pending[best]) {
			best = i
		}
	}
	return best
}

// pendingFirst reports whether the scheduled event comes before a tick and the next rollout's end.
func (r *runner) pendingFirst(i int, at int64, source int) bool {
	if i < 0 {
		return false
	}
	p := &r.pending[i]
	if r.tick < p.Time || r.tick == p.Time && p.Kind > loop.Tick {
		return false
	}
	return source == nowhere || p.Time < at || p.Time == at && p.Kind < loop.RolloutScored
}

func (r *runner) deliverPending(i int) {
	ev := r.pending[i]
	last := len(r.pending) - 1
	r.pending[i] = r.pending[last]
	r.pending = r.pending[:last]
	r.now = max(r.now, ev.Time)
	switch ev.Kind {
	case loop.TrainStepEnded:
		r.setBusy(false)
		r.events++
		r.sinceStep = 0
	case loop.WeightsSwitched:
		r.switched(int(ev.Engine), ev.Version)
	}
	r.deliver(ev, 0, 0, metrics.Measured{})
}

// endGeneration ends the generation on top of an engine's heap.
func (r *runner) endGeneration(engineIndex int) {
	e := &r.engines[engineIndex]
	top := e.heap.items[0]
	s := &r.slots[top.slot]
	s.versionTokens += int64(e.served) * int64(s.tokens-s.counted)
	s.counted = s.tokens
	r.setActive(e, e.active-1)
	if s.environmentNS > 0 {
		s.generated = true
		e.heap.pop()
		top.key = float64(r.now + s.environmentNS)
		r.env.push(top)
		return
	}
	r.vacant = engineIndex
	r.score(top.slot)
	if r.vacant >= 0 {
		e.heap.pop()
		r.vacant = -1
	}
}

// score delivers the end of the rollout in a slot.
func (r *runner) score(slotIndex int32) {
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
	r.deliver(ev, generateNS, m.EnvironmentNS, m)
}

// deliver steps the loop and executes what follows.
func (r *runner) deliver(ev loop.Event, generateNS, environmentNS int64, m metrics.Measured) {
	actions, tick := r.l.Step(ev)
	r.tick = tick
	m.QueueGroups = r.l.QueueGroups()
	r.rec.Observe(ev, m, actions)
	if r.cfg.Observe != nil {
		r.cfg.Observe(ev, generateNS, environmentNS, actions)
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
		s := &r.slots[a.Slot]
		if s.group == a.Group && s.attempt == a.Attempt && s.sample == a.Sample {
			if !s.generated {
				e := &r.engines[a.Engine]
				r.setActive(e, e.active-1)
			}
			s.group = 0
			r.schedule(loop.Event{Time: r.now, Kind: loop.RolloutAborted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt})
		}
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
			r.hold(&r.engines[a.Engine], true)
		}
		r.schedule(ev)
	case loop.FinishRun:
		r.done = true
	}
}

func (r *runner) schedule(ev loop.Event) { r.pending = append(r.pending, ev) }

func (r *runner) startRollout(a *loop.Action) {
	tokens, environmentNS := r.cfg.Work.Rollout(a.Group, a.Sample, a.Attempt)
	e := &r.engines[a.Engine]
	r.setActive(e, e.active+1)
	key := e.workDone(r.now) + math.Round(float64(tokens)*r.cfg.NSPerToken)
	r.slots[a.Slot] = slot{group: a.Group, sample: a.Sample, attempt: a.Attempt, tokens: tokens,
		environmentNS: environmentNS, start: r.now, endKey: key}
	ent := entry{key: key, group: a.Group, sample: a.Sample, attempt: a.Attempt, slot: a.Slot}
	if r.vacant == int(a.Engine) {
		r.vacant = -1
		e.heap.replaceTop(ent)
		return
	}
	e.heap.push(ent)
}

// workDone returns the engine's clock at a time.
func (e *engine) workDone(now int64) float64 {
	if e.held {
		return e.clock
	}
	return e.clock + float64(now-e.at)*e.speed
}

// settle brings the clock up to now, so that the speed may change.
func (e *engine) settle(now int64) {
	e.clock = e.workDone(now)
	e.at = now
}

func (r *runner) hold(e *engine, held bool) {
	e.settle(r.now)
	e.held = held
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

// switched accounts for the tokens that running rollouts have made under the version before.
func (r *runner) switched(engineIndex int, v loop.Version) {
	e := &r.engines[engineIndex]
	r.hold(e, false)
	for i := e.first; i < e.first+e.slots; i++ {
		s := &r.slots[i]
		if s.group == 0 || s.generated {
			continue
		}
		made := s.tokens - int32(math.Ceil((s.endKey-e.clock)/r.cfg.NSPerToken))
		made = min(max(made, s.counted), s.tokens)
		s.versionTokens += int64(e.served) * int64(made-s.counted)
		s.counted = made
	}
	e.served = v
}
