package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/trace"
)

// Options is everything a runtime is made of. All fields are needed unless they say otherwise.
type Options struct {
	// Header begins the trace; its Loop holds the rules. Ignored when Resume is set.
	Header trace.Header
	// Engines in the order of Header.Loop.EngineSlots, each with that many slots.
	Engines     []Engine
	Environment Environment
	Trainer     Trainer
	Weights     Weights
	Store       Store
	// Clock returns nanoseconds since the run started, never falling.
	Clock func() int64
	// Notes are appended after the header, before the first event.
	Notes []Note
	// Resume goes on with a run; nil starts one.
	Resume *Resume
	// OnStep, if not nil, is called by the goroutine that owns the loop after every train step. It must not block.
	OnStep func(StepDone)
	// OnBatch, if not nil, is called with every batch before it is trained on, by the
	// goroutine that trains. It must not change the batch.
	OnBatch func(Batch)
	// Logf, if not nil, is told of failures that the run survives.
	Logf func(format string, args ...any)
	// OnBroken, if not nil, is given a bundle (JSON: the error, the last events, the
	// loop's state) when an invariant of the loop is broken and the run has stopped itself.
	OnBroken func(bundle []byte)
	// KeepVersions is how many versions before the newest served one stay on disk; 0 means 3.
	KeepVersions int
	// SnapshotSteps is the number of train steps between snapshots of the loop; 0 means 50.
	SnapshotSteps int
	// OnDiskFull, if not nil, is told when the run begins to wait for room in its store, and
	// when it no longer does. Any goroutine may call it, one at a time; it must not block.
	OnDiskFull func(full bool)
	// RejoinAfter is how long after the loop has lost an engine it is tried again: it then loads
	// the newest version in full. The pause doubles, up to 60 times this, until the engine
	// serves. 0 leaves a lost engine out for good.
	RejoinAfter time.Duration
	// Patient says that a run which makes no progress waits for somebody outside who may still come
	// (an environment's workers, an engine, a trainer), and does not end as stalled. It is
	// implied by Config.TrainerAsks.
	Patient bool
	// Timer starts a timer that sends once after d, and returns what stops it. It must
	// go by the same time as Clock. Nil means time.NewTimer.
	Timer func(d time.Duration) (fired <-chan time.Time, stop func() bool)
}

// Note is a named value in the trace.
type Note struct {
	Name string
	Data any
}

// Resume is the state of an interrupted run, rebuilt from its trace.
type Resume struct {
	Loop     *loop.Loop
	Recorder *metrics.Recorder
	Encoder  *trace.Encoder
	// Counted has observed every event of the trace.
	Counted *Counted
}

// NoteDiscarded is the note, with a RolloutID, that a rollout's payload counts for
// nothing: its score came after the loop had given the attempt up.
const NoteDiscarded = "discarded"

// StepDone is what is known after a train step.
type StepDone struct {
	// Point is the step in the series, Report the trainer's words, Status the loop's state.
	Point  metrics.Step
	Report StepReport
	Status loop.Status
}

// Result is what a run ended with.
type Result struct {
	// Reason the loop finished by.
	Reason loop.Reason
	// Status and Summary at the end; Series has one point a step.
	Status  loop.Status
	Summary metrics.Summary
	Series  []metrics.Step
}

// ErrStalled is wrapped by the error of a run in which train steps have ceased.
var ErrStalled = errors.New("the run has stalled")

// ErrTrainer is wrapped by the error of a run whose train step failed its last attempt.
var ErrTrainer = errors.New("the train step failed every attempt")

// completion is an event on its way to the loop with what was measured of it.
type completion struct {
	event      loop.Event
	measured   metrics.Measured
	generateNS int64
	step       *trace.Step
	report     StepReport
	err        error // for the log
	// returned: Play returned without an error, and somebody may wait to hear of it.
	returned bool
	fatal    error // ends the run
}

// Runtime is one run. Use it once.
type Runtime struct {
	opt    Options
	cfg    loop.Config
	l      *loop.Loop
	rec    *metrics.Recorder
	enc    *trace.Encoder
	inbox  chan completion
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
	// groups are those with rollouts started by this process that have not ended.
	groups map[loop.GroupID]liveGroup
	// counted are the attempts that the groups to train on are made of.
	counted *Counted
	time    runClock
	// outside is what others say of the run.
	outside outside
	// lease collects the groups that GroupLeased names before StartTrainStep.
	lease []Group
	// lines hold executed actions until the next append; due are actions to execute.
	lines    []byte
	due      []dueAction
	now      int64
	finished bool
	reason   loop.Reason
	// tick is the instant at which the loop wants a Tick.
	tick int64
	// outstanding counts effects under way.
	outstanding int
	// ends counts what ended since the last train step, against a stall.
	ends       endCounts
	training   bool
	failure    error // of the last train step
	snapshotAt loop.Version
	// snapshotDue: one is to be taken once the actions that are due have been executed.
	snapshotDue bool
	stallAfter  int64
	// running ends with Run's context.
	running context.Context
	disk    disk
	engines []quarantine
	view    viewer
	// began: RunStarted or Recovered has been delivered. engineOf is the engine of each slot.
	began    bool
	engineOf []int32
	pending  []completion
	stopOnce sync.Once
	stop     chan struct{}
	last     []loop.Event // the newest events, for a bundle
	// acks is the environment if it wants word of logged ends, which logged collects.
	acks   Acknowledger
	logged []loggedEnd
}

// loggedEnd is the end of an attempt that is acknowledged once it is in the log.
type loggedEnd struct {
	id      RolloutID
	counted bool
	// returned: Play returned without an error.
	returned bool
}

// idOf names the attempt that an event is about.
func idOf(ev loop.Event) RolloutID {
	return RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
}

type dueAction struct {
	seq    int64
	action loop.Action
}

// New checks the options and returns a runtime that has not started anything.
func New(opt Options) (*Runtime, error) {
	switch {
	case opt.Environment == nil, opt.Trainer == nil, opt.Weights == nil, opt.Store == nil, opt.Clock == nil:
		return nil, errors.New("live: Environment, Trainer, Weights, Store and Clock are all needed")
	}
	if opt.KeepVersions == 0 {
		opt.KeepVersions = 3
	}
	if opt.SnapshotSteps == 0 {
		opt.SnapshotSteps = 50
	}
	if opt.Timer == nil {
		opt.Timer = func(d time.Duration) (<-chan time.Time, func() bool) {
			t := time.NewTimer(d)
			return t.C, t.Stop
		}
	}
	r := &Runtime{opt: opt, enc: &trace.Encoder{}, stop: make(chan struct{}), tick: loop.NoTick}
	r.outside.signal = make(chan struct{}, 1)
	if from := opt.Resume; from != nil {
		if from.Loop == nil || from.Recorder == nil || from.Encoder == nil || from.Counted == nil {
			return nil, errors.New("live: Loop, Recorder, Encoder and Counted of Resume are all needed")
		}
		r.l, r.rec, r.enc, r.counted = from.Loop, from.Recorder, from.Encoder, from.Counted
	} else {
		l, err := loop.New(opt.Header.Loop)
		if err != nil {
			return nil, err
		}
		r.l, r.rec = l, metrics.NewRecorder(l.Config())
		r.rec.Warmup = opt.Header.Warmup
		r.counted = NewCounted(l.Config().Policy)
	}
	r.cfg = r.l.Config()
	r.opt.Patient = opt.Patient || r.cfg.TrainerAsks
	r.acks, _ = opt.Environment.(Acknowledger)
	if len(opt.Engines) != len(r.cfg.EngineSlots) {
		return nil, fmt.Errorf("live: %d engines for %d in the loop's config", len(opt.Engines), len(r.cfg.EngineSlots))
	}
	for i, e := range opt.Engines {
		if e.Slots() < r.cfg.EngineSlots[i] {
			return nil, fmt.Errorf("live: engine %s has %d slots, the loop's config gives it %d", e.Name(), e.Slots(), r.cfg.EngineSlots[i])
		}
	}
	for i, n := range r.cfg.EngineSlots {
		r.engines = append(r.engines, quarantine{due: loop.NoTick})
		r.engineOf = append(r.engineOf, slices.Repeat([]int32{int32(i)}, n)...)
	}
	c := r.cfg.Concurrency()
	r.groups = make(map[loop.GroupID]liveGroup)
	r.publish()
	r.inbox = make(chan completion, 2*c+len(opt.Engines)+4)
	r.stallAfter = 200 * int64(c+(r.cfg.QueueGroups+r.cfg.BatchGroups+r.cfg.ExtraGroups)*(r.cfg.GroupSize+r.cfg.Redundancy))
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Stop asks to finish after the running train step. It may be called from any
// goroutine, any number of times.
func (r *Runtime) Stop() { r.stopOnce.Do(func() { close(r.stop) }) }

// Run runs to the end: the configured steps, a Stop, or an error. When ctx ends
// it stops at once; what was under way is issued again by a resume.
func (r *Runtime) Run(ctx context.Context) (res Result, err error) {
	defer func() {
		r.cancel()
		r.wg.Wait()
		if p := recover(); p != nil {
			broken, ok := p.(*loop.InvariantError)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("live: the run stopped itself, %w; last events: %v", broken, r.last)
			r.bundle(broken)
		}
		if err == nil {
			err = r.close()
		}
		r.publish()
		res.Reason, res.Status, res.Summary, res.Series = r.reason, r.l.Status(), r.rec.Summary(), r.rec.Steps
	}()
	r.running = ctx
	if err := r.begin(ctx); err != nil {
		return res, err
	}
	if err := r.serve(ctx); err != nil {
		return res, errors.Join(err, r.endStalled(err))
	}
	if r.reason == loop.ReasonTrainer {
		err := r.close()
		return res, errors.Join(fmt.Errorf("live: %w at version %d: %w", ErrTrainer, r.l.Version(), r.failure), err)
	}
	return res, nil
}

// serve takes what arrives, one turn after the other, until the loop has finished.
func (r *Runtime) serve(ctx context.Context) error {
	stop, one := r.stop, [1]completion{}
	for !r.finished {
		first := one[:0]
		due, disarm := r.armTick()
		select {
		case c := <-r.inbox:
			r.outstanding -= outstandingOf(c.event.Kind)
			first = append(first, c)
		case <-due:
		case <-r.outside.signal:
		case <-r.view.timer:
			r.view.timer = nil
			disarm()
			r.publish()
			continue
		case <-stop:
			stop = nil
			first = append(first, completion{event: loop.Event{Time: r.clock(), Kind: loop.StopRequested}})
		case <-ctx.Done():
			disarm()
			return fmt.Errorf("live: stopped at once: %w", context.Cause(ctx))
		}
		disarm()
		if err := r.turn(first...); err != nil {
			return err
		}
	}
	return nil
}

// armTick starts a timer for the instant at which the loop wants a Tick, or a lost
// engine is to be tried again.
func (r *Runtime) armTick() (due <-chan time.Time, disarm func()) {
	at := min(r.tick, r.rejoinDue())
	if at == loop.NoTick {
		return nil, func() {}
	}
	due, stop := r.opt.Timer(time.Duration(max(at-r.clock(), 0)))
	return due, func() { stop() }
}

// endStalled gives the trace of a stalled run its end, so that it can be read and replayed like any other.
func (r *Runtime) endStalled(err error) error {
	if !errors.Is(err, ErrStalled) || r.finished {
		return nil
	}
	r.step(&completion{event: loop.Event{Time: r.clock(), Kind: loop.StopRequested}})
	if !r.finished {
		return nil // the trainer holds a batch; a resume issues its step again
	}
	for i := range r.due {
		r.lines = r.enc.AppendAction(r.lines, r.due[i].seq, r.due[i].action)
	}
	r.due = r.due[:0]
	return r.close()
}

// bundle hands out what is needed to understand a broken invariant.
func (r *Runtime) bundle(broken *loop.InvariantError) {
	if r.opt.OnBroken == nil {
		return
	}
	events := make([]string, len(r.last))
	for i, ev := range r.last {
		events[i] = ev.String()
	}
	state, err := r.l.Snapshot()
	if err != nil {
		state = []byte("null")
	}
	text, err := json.MarshalIndent(struct {
		Error  string          `json:"error"`
		Seq    int64           `json:"seq"`
		Events []string        `json:"last_events"`
		State  json.RawMessage `json:"state"`
	}{broken.Error(), r.enc.Seq(), events, state}, "", " ")
	if err == nil {
		r.opt.OnBroken(text)
	}
}

// outstandingOf returns how many effects an event of this kind ends.
func outstandingOf(k loop.EventKind) int {
	if k == loop.FirstToken || k == loop.StopRequested {
		return 0
	}
	return 1
}

// begin brings trainer and engines to the version the loop starts from, and delivers the first event.
func (r *Runtime) begin(ctx context.Context) error {
	if r.opt.Resume == nil {
		if err := r.writeHeader(); err != nil {
			return err
		}
	}
	_, there, err := r.opt.Weights.Committed(0)
	if err != nil {
		return err
	}
	if r.l.Version() == 0 && !there {
		if stopped, err := r.initialize(ctx); stopped || err != nil {
			return err
		}
	} else if err := r.opt.Trainer.Restore(ctx, r.l.Version()); err != nil {
		return fmt.Errorf("live: taking the trainer to version %d: %w", r.l.Version(), err)
	}
	r.now = r.l.Status().TimeNS
	if r.enc.Seq() > 0 {
		if err := r.findRestored(); err != nil {
			return err
		}
		return r.turn(completion{event: loop.Event{Time: r.now, Kind: loop.Recovered}})
	}
	for _, e := range r.opt.Engines {
		if err := e.Load(ctx, 0); err != nil {
			return fmt.Errorf("live: engine %s: loading version 0: %w", e.Name(), err)
		}
		if err := e.Switch(ctx, 0, false); err != nil {
			return fmt.Errorf("live: engine %s: switching to version 0: %w", e.Name(), err)
		}
	}
	r.startClock()
	return r.turn(completion{event: loop.Event{Time: r.now, Kind: loop.RunStarted}})
}

// initialize has the trainer make version 0, or waits until one from elsewhere has
// published it, which may take as long as it likes: the loop has not begun. It
// reports whether a Stop came first, which ends the run.
func (r *Runtime) initialize(ctx context.Context) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		select {
		case <-r.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	err = r.opt.Trainer.Initialize(ctx)
	cancel()
	select {
	case <-r.stop:
		if err != nil {
			r.finished, r.reason = true, loop.ReasonStopped
			return true, nil
		}
	default:
	}
	if err != nil {
		return false, fmt.Errorf("live: making version 0: %w", err)
	}
	return false, nil
}

func (r *Runtime) writeHeader() error {
	h := r.opt.Header
	h.Format, h.Source, h.Loop = trace.Format, "live", r.cfg
	lines, err := r.enc.AppendNote(nil, trace.NoteHeader, h)
	if err != nil {
		return err
	}
	for _, n := range r.opt.Notes {
		if lines, err = r.enc.AppendNote(lines, n.Name, n.Data); err != nil {
			return err
		}
	}
	r.lines = lines
	return r.appendLog()
}

// turn takes what has arrived through the loop: events to the log first, then the
// actions. A Tick is delivered before what came after its instant, and not before
// that instant has come.
func (r *Runtime) turn(first ...completion) error {
	r.pending = append(r.pending[:0], first...)
drain:
	for {
		select {
		case c := <-r.inbox:
			r.outstanding -= outstandingOf(c.event.Kind)
			r.pending = append(r.pending, c)
		default:
			break drain
		}
	}
	slices.SortStableFunc(r.pending, func(a, b completion) int {
		switch {
		case a.event.Before(b.event):
			return -1
		case b.event.Before(a.event):
			return 1
		}
		return 0
	})
	for i := range r.pending {
		c := &r.pending[i]
		if c.fatal != nil {
			return c.fatal
		}
		if c.err != nil {
			r.logf("%v: %v", c.event, c.err)
		}
		if !r.deliver(c) {
			break
		}
	}
	r.hear()
	r.rejoin()
	for now := max(r.clock(), r.now); !r.finished && r.tick <= now; {
		r.step(&completion{event: r.tickEvent()})
	}
	if err := r.appendLog(); err != nil {
		return err
	}
	r.acknowledge()
	return r.release()
}

// acknowledge tells the environment which attempts' ends are in the log now, and
// ends their contexts.
func (r *Runtime) acknowledge() {
	for _, a := range r.logged {
		if r.acks != nil && a.returned {
			r.acks.Logged(a.id, a.counted)
		}
		if p := r.attempt(a.id.Group, a.id.Sample, a.id.Attempt); p != nil {
			p.cancel()
		}
	}
	r.logged = r.logged[:0]
}

// deliver gives the loop one event, the Ticks before it first. It reports whether
// the loop goes on: what arrives after its end is dropped.
func (r *Runtime) deliver(c *completion) bool {
	for !r.finished && r.tickEvent().Before(c.event) {
		r.step(&completion{event: r.tickEvent()})
	}
	if r.finished {
		return false
	}
	r.measureGroups(c)
	r.step(c)
	return true
}

// tickEvent is the Tick that the loop wants next.
func (r *Runtime) tickEvent() loop.Event { return loop.Event{Time: r.tick, Kind: loop.Tick} }

// measureGroups tells a loop that keeps trained groups how far each group of the
// batch had drifted, right before the end of the step that found it.
func (r *Runtime) measureGroups(c *completion) {
	if r.cfg.Policy != loop.PolicyReplay || c.event.Kind != loop.TrainStepEnded {
		return
	}
	for _, d := range c.report.Drifts {
		r.step(&completion{event: loop.Event{Time: c.event.Time, Kind: loop.GroupMeasured, Group: d.Group, Drift: float32(d.Drift)}})
	}
}

// step gives the loop one event and queues the actions that follow.
func (r *Runtime) step(c *completion) {
	c.event.Time = max(c.event.Time, r.now)
	r.now = c.event.Time
	r.began = true
	r.remember(c.event)
	r.noteStep(c)
	m := &c.measured
	r.lines = r.enc.AppendEvent(r.lines, trace.Event{Event: c.event, GenerateNS: c.generateNS, EnvironmentNS: m.EnvironmentNS, VersionTokens: m.VersionTokens,
		Spans: m.Spans, Resumed: m.Resumed, StateLag: m.StateLag})
	actions, tick := r.l.Step(c.event)
	r.tick = tick
	c.measured.QueueGroups = r.l.QueueGroups()
	r.rec.Observe(c.event, c.measured, actions)
	counts := r.counted.Observe(c.event, r.l.Ledger(), actions)
	if c.event.Kind == loop.RolloutScored && c.event.Verdict != loop.VerdictPruned && !counts {
		r.discard(c.event)
	}
	if k := c.event.Kind; k >= loop.RolloutScored && k <= loop.RolloutAborted {
		r.logged = append(r.logged, loggedEnd{idOf(c.event), counts, c.returned})
	}
	for _, a := range actions {
		r.due = append(r.due, dueAction{r.enc.Seq(), a})
		switch a.Kind {
		case loop.FinishRun:
			r.finished, r.reason = true, a.Reason
		case loop.GroupEnded:
			r.ends.group(a)
		}
	}
	r.watchEngine(c)
	r.watchProgress(c.event, actions)
	r.afterEvent(c)
}

// discard drops the payload of an attempt that had been aborted or given up before
// its score arrived, and says so in the log, so that a resumed run drops it too.
func (r *Runtime) discard(ev loop.Event) {
	id := idOf(ev)
	r.note(NoteDiscarded, id)
	if err := r.opt.Store.Discard(id); err != nil {
		r.logf("discarding the payload of %v: %v", id, err)
	}
}

// lastEvents is how many events a bundle shows.
const lastEvents = 16

func (r *Runtime) remember(ev loop.Event) {
	if len(r.last) == lastEvents {
		copy(r.last, r.last[1:])
		r.last = r.last[:lastEvents-1]
	}
	r.last = append(r.last, ev)
}

// noteStep puts what the trainer and the engines measured before the event of the step's end.
func (r *Runtime) noteStep(c *completion) {
	switch c.event.Kind {
	case loop.TrainStepEnded, loop.TrainStepFailed, loop.LeaseReturned:
		r.setBusy(false)
	}
	if c.step == nil {
		return
	}
	r.note(trace.NoteStep, c.step)
	for i, e := range r.opt.Engines {
		if timed, ok := e.(Timed); ok {
			if cells := timed.TakeDecodeTimes(); len(cells) > 0 {
				r.note(trace.NoteService, trace.Service{Engine: i, Cells: cells})
			}
		}
	}
}

func (r *Runtime) note(name string, data any) {
	var err error
	if r.lines, err = r.enc.AppendNote(r.lines, name, data); err != nil {
		r.logf("%v", err)
	}
}

// afterEvent tells those who look, and drops payloads that nobody will ask for.
func (r *Runtime) afterEvent(c *completion) {
	ev := c.event
	switch ev.Kind {
	case loop.TrainStepEnded:
		r.training = false
		r.ends.reset()
		if n := len(r.rec.Steps); n > 0 && r.opt.OnStep != nil {
			r.opt.OnStep(StepDone{Point: r.rec.Steps[n-1], Report: c.report, Status: r.l.Status()})
		}
	case loop.TrainStepFailed, loop.LeaseReturned:
		r.training, r.failure = false, c.err
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		if !r.training { // a long step starves nobody
			r.ends.rollouts++
		}
		if _, lives := r.groups[ev.Group]; !lives {
			r.forget(ev.Group) // it was scored before the abort reached it
		}
	}
}

func (r *Runtime) forget(g loop.GroupID) {
	if err := r.opt.Store.Forget(g); err != nil {
		r.logf("forgetting the payloads of group %d: %v", g, err)
	}
}

func (r *Runtime) logf(format string, args ...any) {
	if r.opt.Logf != nil {
		r.opt.Logf(format, args...)
	}
}

// close writes the end of the trace.
func (r *Runtime) close() error {
	st := r.l.Status()
	r.note(trace.NoteEnd, struct {
		Reason string      `json:"reason"`
		Status loop.Status `json:"status"`
	}{r.reason.String(), st})
	if err := r.appendLog(); err != nil {
		return err
	}
	return r.snapshot()
}

// snapshotIfDue takes a snapshot that is due, with every line rendered so far in the
// log before it. A run survives that it cannot be kept, not that the log cannot.
func (r *Runtime) snapshotIfDue() error {
	if !r.snapshotDue {
		return nil
	}
	r.snapshotDue = false
	if err := r.appendLog(); err != nil {
		return err
	}
	if err := r.snapshot(); err != nil {
		r.logf("snapshot: %v", err)
	}
	return nil
}

func (r *Runtime) snapshot() error {
	state, err := r.l.Snapshot()
	if err != nil {
		return err
	}
	return r.opt.Store.Snapshot(r.enc.Position().Line, state)
}
