package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// completion is an event on its way to the loop with what was measured of it.
type completion struct {
	event      loop.Event
	measured   metrics.Measured
	generateNS int64
	// origin is that of an event that a cell has said.
	origin trace.Origin
	step   *trace.Step
	// report is the trainer's of a step; nil where it has none. It is much larger than all else here.
	report *port.StepReport
	err    error // for the log
	// hello is what a process of a cell has said of itself.
	hello *cell.Hello
	// returns: a lost engine is back, or its fleet could not bring it.
	returns bool
	// after, if not nil, is called once the loop has taken the event.
	after func()
	fatal error // ends the run
}

// Runtime is one run. Use it once.
type Runtime struct {
	opt    Options
	cfg    loop.Config
	l      *loop.Loop
	rec    *metrics.Recorder
	source *attribution.Observer
	enc    *trace.Encoder
	inbox  chan completion // of effects in this process
	words  chan completion // of cells in other processes
	// beyond is what the inbox had no room for, behind all that is in it.
	beyond struct {
		sync.Mutex
		all []completion
	}
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelCauseFunc
	cell   *cell.Cell
	// receipts are of what cells have said, cells is what the log shows of it.
	receipts receipts
	cells    cellOrigins
	// leases are those of cells in other processes, and were looked at last at lookedAt.
	leases   leases
	lookedAt int64
	// hearing is closed when the run has begun.
	hearing chan struct{}
	// counted are the attempts that the groups to train on are made of.
	counted *Counted
	ready   *ready
	time    runClock
	// outside is what others say of the run.
	outside outside
	fleet   fleet
	// lease collects the groups that GroupLeased names before StartTrainStep.
	lease []port.Group
	// lines are what the next append has. entries are the events in it, to be executed once they are in the log, with the
	// actions of all of them in decided.
	lines    []byte
	entries  []cell.Entry
	decided  []loop.Action
	now      int64
	finished bool
	reason   loop.Reason
	// tick is the instant at which the loop wants a Tick.
	tick int64
	// wordsAt is the instant before which words of cells do not begin a turn.
	wordsAt int64
	// outstanding counts effects under way.
	outstanding int
	// ends counts what ended since the last train step, against a stall.
	ends       endCounts
	training   bool
	failure    error // of the last train step
	snapshotAt loop.Version
	// snapshotDue: one is to be taken once the actions that are due have been executed.
	// snapshotSeq is the event of the newest one, which is written or has failed once snapshotKept is closed. restarts is how
	// often the run has been recovered.
	snapshotDue  bool
	snapshotSeq  int64
	snapshotKept chan struct{}
	restarts     int
	stallAfter   int64
	// running ends with Run's context.
	running context.Context
	space   cell.Space
	engines []quarantine
	// lossesAt is the time up to which planned losses have been made.
	lossesAt int64
	// syncs has every engine's newest load and switch, published when versions came.
	syncs     []engineSync
	published publications
	view      viewer
	// began: RunStarted or Recovered has been delivered.
	began    bool
	started  started
	pending  []completion
	stopOnce sync.Once
	logging  sync.Mutex // held while Logf is called
	stop     chan struct{}
	last     []loop.Event // the newest events, for a bundle
	// complaints keep rollouts that fail alike from filling the log.
	complaints complaints
}

// New checks the options and returns a runtime that has not started anything.
func New(opt Options) (*Runtime, error) {
	switch {
	case opt.Environment == nil, opt.Trainer == nil, opt.Weights == nil, opt.Store == nil, opt.Clock == nil:
		return nil, errors.New("live: Environment, Trainer, Weights, Store and Clock are all needed")
	}
	opt.KeepVersions = cmp.Or(opt.KeepVersions, 3)
	opt.SnapshotSteps = cmp.Or(opt.SnapshotSteps, SnapshotStepsDefault)
	opt.SnapshotEvents = cmp.Or(opt.SnapshotEvents, SnapshotEventsDefault)
	if opt.AcquireWithin <= 0 {
		opt.AcquireWithin = AcquireWithinDefault
	}
	if opt.ReleaseWithin <= 0 {
		opt.ReleaseWithin = ReleaseWithinDefault
	}
	if opt.Timer == nil {
		opt.Timer = cell.NewTimer
	}
	r := &Runtime{opt: opt, complaints: complaints{}, enc: &trace.Encoder{}, stop: make(chan struct{}), hearing: make(chan struct{}), tick: loop.NoTick, lossesAt: -1}
	r.outside.signal = make(chan struct{}, 1)
	if from := opt.Resume; from != nil {
		if from.Loop == nil || from.Recorder == nil || from.Encoder == nil || from.Counted == nil {
			return nil, errors.New("live: Loop, Recorder, Encoder and Counted of Resume are all needed")
		}
		r.l, r.rec, r.enc, r.counted = from.Loop, from.Recorder, from.Encoder, from.Counted
		r.source = from.attribution()
		r.snapshotSeq, r.restarts, r.cells = from.SnapshotEvent, from.Restarts, from.cells
	} else {
		l, err := loop.New(opt.Header.Loop)
		if err != nil {
			return nil, err
		}
		r.l, r.rec, r.source = l, newRecorder(l.Config(), opt.Header), newAttribution(l.Config(), opt.Header)
		r.counted = NewCounted(l.Config().Policy)
	}
	r.cfg, r.rec.Beside = r.l.Config(), r.source
	r.opt.Patient = opt.Patient || r.cfg.TrainerAsks || len(opt.Cells) > 0
	if err := r.checkCells(); err != nil {
		return nil, err
	}
	if len(opt.Engines) != len(r.cfg.EngineSlots) {
		return nil, fmt.Errorf("live: %d engines for %d in the loop's config", len(opt.Engines), len(r.cfg.EngineSlots))
	}
	for i, e := range opt.Engines {
		if e.Slots() < r.cfg.EngineSlots[i] {
			return nil, fmt.Errorf("live: engine %s has %d slots, the loop's config gives it %d", e.Name(), e.Slots(), r.cfg.EngineSlots[i])
		}
	}
	if c := r.cfg.Control; c != nil && opt.Fleet == nil && c.Ranges[loop.SettingEngines].Moves() {
		return nil, errors.New("live: the number of engines may move, and there is no Fleet to start and stop them")
	}
	r.fleet = newFleet(len(opt.Engines))
	for _, l := range opt.Losses {
		if err := l.check(len(opt.Engines)); err != nil {
			return nil, err
		}
	}
	for range opt.Engines {
		r.engines = append(r.engines, quarantine{due: loop.NoTick})
		r.syncs = append(r.syncs, engineSync{version: loop.NoVersion})
	}
	if r.cells == nil {
		r.cells = cellOrigins{}
	}
	if r.leases.present = opt.Present; opt.Present == nil {
		r.leases.present = r.clock
	}
	r.ready = newReady()
	r.ready.follow(r.l.ReadyGroups(), r.counted)
	r.receipts.taken, r.receipts.times = maps.Clone(r.cells), map[string]int64{}
	c := r.cfg.Concurrency()
	r.started = newStarted(r.cfg.EngineSlots)
	r.space = cell.Space{Clock: r.clock, Timer: opt.Timer, Changed: r.diskChanged}
	r.publish()
	r.inbox = make(chan completion, 2*c+3*len(opt.Engines)+4)
	r.words = make(chan completion, cap(r.inbox))
	r.stallAfter = 200 * int64(c+(r.cfg.QueueGroups+r.cfg.BatchGroups+r.cfg.ExtraGroups)*(r.cfg.GroupSize+r.cfg.Redundancy))
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	var err error
	if r.cell, err = r.newCell(); err != nil {
		return nil, err
	}
	return r, nil
}

// Stop asks to finish after the running train step. It may be called from any
// goroutine, any number of times.
func (r *Runtime) Stop() { r.stopOnce.Do(func() { close(r.stop) }) }

// Run runs to the end: the configured steps, a Stop, or an error. When ctx ends it
// stops at once; a resume issues unfinished actions again.
func (r *Runtime) Run(ctx context.Context) (res Result, err error) {
	ended := port.ErrEnded
	defer func() {
		r.cancel(ended)
		r.wg.Wait()
		r.cell.Wait()
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
		res.Attribution = r.source.Summary()
	}()
	r.running = ctx
	if err := r.begin(ctx); err != nil {
		return res, err
	}
	r.beginLeases()
	close(r.hearing)
	if err := r.serve(ctx); err != nil {
		return res, errors.Join(err, r.endStalled(err))
	}
	if r.reason == loop.ReasonTrainer {
		err := r.close()
		return res, errors.Join(fmt.Errorf("live: %w at version %d: %w", ErrTrainer, r.l.Version(), r.failure), err)
	}
	ended = nil
	return res, nil
}

// wordsApart is how old a turn is before words of cells begin the next one, in nanoseconds: each turn wakes the log, its mirror and
// those who follow it, which costs more than the words do.
const wordsApart = 20e6

// serve takes what arrives, one turn after the other, until the loop has finished.
func (r *Runtime) serve(ctx context.Context) error {
	stop, first := r.stop, []completion(nil)
	for !r.finished {
		words, at := r.words, int64(loop.NoTick)
		if len(first) > 0 { // a word waits for others
			words, at = nil, r.wordsAt
		}
		due, disarm := r.armTick(at)
		select {
		case c := <-r.inbox:
			first = append(first, r.ended(c))
		case c := <-words:
			first = append(first, r.ended(c))
			if r.clock() < r.wordsAt {
				disarm()
				continue
			}
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
		first = first[:0]
	}
	return nil
}

// armTick starts a timer for the instant at which the loop wants a Tick, a lost
// engine is to be tried again, or a cell may be lost, and for one beside these.
func (r *Runtime) armTick(at int64) (due <-chan time.Time, disarm func()) {
	at = min(at, r.tick, r.rejoinDue(), r.plannedDue(), r.lookDue())
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
	r.render()
	r.entries = r.entries[:0] // nothing follows from the end
	return r.close()
}

// post takes what has ended, from any goroutine. It never waits: the goroutine that owns the loop posts too, and nobody takes
// anything once the run has ended.
func (r *Runtime) post(c completion) {
	r.beyond.Lock()
	defer r.beyond.Unlock()
	if len(r.beyond.all) == 0 {
		select {
		case r.inbox <- c:
			return
		default:
		}
	}
	r.beyond.all = append(r.beyond.all, c)
	r.outside.wake()
}

// ended counts the effect that has ended with what arrives, if one has, and returns that.
func (r *Runtime) ended(c completion) completion {
	if c.event.Kind != loop.FirstToken {
		r.outstanding--
	}
	return c
}

// turn takes what has arrived through the loop: events to the log first, then the
// actions. A Tick is delivered before what came after its instant, and not before
// that instant has come.
func (r *Runtime) turn(first ...completion) error {
	r.wordsAt = r.clock() + wordsApart
	r.pending = append(r.pending[:0], first...)
drain:
	for {
		select {
		case c := <-r.inbox:
			r.pending = append(r.pending, r.ended(c))
		case c := <-r.words:
			r.pending = append(r.pending, r.ended(c))
		default:
			break drain
		}
	}
	r.beyond.Lock()
	for _, c := range r.beyond.all {
		r.pending = append(r.pending, r.ended(c))
	}
	r.beyond.all = nil
	r.beyond.Unlock()
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
		if c.returns && !r.returned(c) {
			continue
		}
		if c.err != nil && !errors.Is(c.err, port.ErrLeaseReturned) { // which whoever returned it has said
			r.complain(c)
		}
		if c.hello != nil {
			r.welcome(c)
			continue
		}
		if !r.deliver(c) {
			break
		}
		if c.after != nil {
			c.after()
		}
	}
	r.hear()
	r.loseSilent()
	r.loseAsPlanned()
	r.rejoin()
	for now := max(r.clock(), r.now); !r.finished && r.tick <= now; {
		r.step(&completion{event: r.tickEvent()})
	}
	r.render()
	if err := r.appendLog(); err != nil {
		return err
	}
	return r.release()
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
	if r.cfg.Policy != loop.PolicyReplay || c.event.Kind != loop.TrainStepEnded || c.report == nil {
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
	r.remember(c.event)
	r.noteStep(c)
	m := &c.measured
	r.lines = r.enc.AppendEvent(r.lines, trace.Event{Event: c.event, GenerateNS: c.generateNS, EnvironmentNS: m.EnvironmentNS, VersionTokens: m.VersionTokens,
		Spans: m.Spans, Resumed: m.Resumed, StateLag: m.StateLag, Origin: c.origin})
	r.cells.logged(c.origin)
	actions, tick := r.l.Step(c.event)
	r.tick = tick
	c.measured.QueueGroups = r.l.QueueGroups()
	c.measured.Control = metrics.ControlOf(r.l, c.event.Kind)
	r.rec.Observe(c.event, c.measured, actions)
	if r.opt.Observe != nil {
		r.opt.Observe(&c.event, &c.measured, actions)
	}
	counts := r.counted.Observe(c.event, r.l.Ledger(), actions)
	r.ready.follow(actions, r.counted)
	discarded := discards(c.event, counts)
	if discarded {
		r.note(trace.NoteDiscarded, idOf(c.event))
	}
	from := len(r.decided)
	r.decided = append(r.decided, actions...)
	r.entries = append(r.entries, cell.Entry{Seq: r.enc.Seq(), Event: c.event, Discarded: discarded, Origin: c.origin, Actions: r.decided[from:]})
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.FinishRun:
			r.finished, r.reason = true, a.Reason
		case loop.GroupEnded:
			r.ends.group(*a)
		}
	}
	r.watchEngine(c)
	r.watchSync(c.event, actions)
	r.began = true
	r.watchProgress(c.event, actions)
	r.afterEvent(c)
}

// afterEvent tells those who look.
func (r *Runtime) afterEvent(c *completion) {
	ev := c.event
	switch ev.Kind {
	case loop.TrainStepEnded:
		r.training = false
		r.ends.reset()
		if n := len(r.rec.Steps); n > 0 && r.opt.OnStep != nil {
			var report port.StepReport
			if c.report != nil {
				report = *c.report
			}
			r.opt.OnStep(StepDone{Point: r.rec.Steps[n-1], Attribution: r.source.Last(), Report: report, Found: c.report == nil, Status: r.l.Status(), Rates: r.view.rates.recent()})
		}
	case loop.TrainStepFailed, loop.LeaseReturned:
		r.training, r.failure = false, c.err
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		if !r.training { // a long step starves nobody
			r.ends.rollouts++
		}
	}
}
