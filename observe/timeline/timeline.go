package timeline

import (
	"errors"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// Options says what is drawn.
type Options struct {
	// Rules are those of the run: its engines' slots and the queue's policy count.
	Rules loop.Config
	// Title names the run in the file; "" for none.
	Title string
	// From is the version at whose publication drawing begins, 0 for the start of the
	// run. To is the version at whose publication it ends, 0 for the run's end.
	From, To loop.Version
	// Parts are what an attempt's environment was at, in the order of time; nil where only its whole
	// time is known.
	Parts func(Attempt) []Part
	// Arrows says from which rollouts arrows lead to train steps.
	Arrows Arrows
}

// Totals is what the drawn spans add up to. Over the window that metrics measure, RolloutNS is the
// slots' time less the time they held no rollout. TrainNS is the time less the trainer's idle time.
type Totals struct {
	// FromNS and ToNS are the ends of the drawn window, in nanoseconds since the run began.
	FromNS, ToNS int64
	// RolloutNS is the time rollouts spent in slots, summed over slots; TrainNS the
	// time of train steps, failed ones included.
	RolloutNS, TrainNS int64
	// Rollouts and TrainSteps count their spans, Events everything that is drawn.
	Rollouts, TrainSteps, Events int64
	// Arrows count the joints: an arrow through three spans has two. ArrowsLeftOut are those into train
	// steps that had a thousand.
	Arrows, ArrowsLeftOut int64
}

// ErrEmpty is returned by Close where the run, or its recorded part, ends before the window begins.
var ErrEmpty = errors.New("timeline: the run ends before the first version that is to be drawn")

// Drawing draws a run as it is observed. Its cost and memory do not grow with the run, and its
// output grows only with the window.
type Drawing struct {
	out    *encoder
	opt    Options
	window phase
	totals Totals
	now    int64

	run    track.Run
	fleet  track.Sync // which loads of engines that join begin too
	step   step
	next   step // whose groups are being named
	queue  queue
	level  [gaugeCount]int64 // what every gauge shows
	shown  bool
	ahead  loop.Version // the trainer's version
	arrows arrows
}

// phase is where the events are against the window.
type phase uint8

const (
	before phase = iota
	inside
	after
)

// rollout is what runs in a slot, or did.
type rollout struct {
	group           loop.GroupID
	from            int64
	version         loop.Version
	sample, attempt int32
	resumed         bool
	unwanted        bool // to be aborted: a score that comes all the same does not count
}

// step is what a train step consumes.
type step struct {
	// Sums over its groups, and the stalest of them.
	groups, rollouts, staleness, pqs, iqs int64
	stalenessMax                          loop.Version
	batch                                 []loop.GroupID
}

// New begins a drawing on w. Every event of the run must be observed, from the first
// on and in order; then Close ends it.
func New(w io.Writer, opt Options) *Drawing {
	d := &Drawing{out: newEncoder(w), opt: opt, run: track.New(opt.Rules)}
	d.arrows.tails = map[loop.GroupID][]tail{}
	d.queue = queue{replay: opt.Rules.Policy == loop.PolicyReplay, ready: map[loop.GroupID]struct{}{}}
	d.out.begin(opt.Title)
	d.nameTracks()
	if opt.From == 0 {
		d.window = inside
	}
	return d
}

// Observe takes one event with what followed from it. environmentNS is the part of a
// scored rollout's time that its environment took.
func (d *Drawing) Observe(ev loop.Event, environmentNS int64, actions []loop.Action) {
	if d.window == after {
		return
	}
	d.now = max(d.now, ev.Time)
	d.ends(&ev, environmentNS)
	if ev.Kind == loop.TrainStepEnded {
		d.ahead = max(d.ahead, ev.Version)
		d.turn()
	}
	if d.window == after {
		return
	}
	d.queue.event(&ev)
	for i := range actions {
		a := &actions[i]
		left := d.run.Action(a)
		d.act(a)
		for _, slot := range left {
			d.endRollout(slot, outcome{end: "lost"})
		}
	}
	for _, slot := range d.run.Done(&ev) {
		d.endRollout(slot, outcome{end: "lost"})
	}
	if d.window == inside {
		d.gauges()
	}
}

// turn opens and closes the window at a new version.
func (d *Drawing) turn() {
	if d.window == before && d.ahead >= d.opt.From {
		d.window = inside
		d.totals.FromNS = d.now
	}
	if d.window == inside && d.opt.To > 0 && d.ahead >= d.opt.To {
		d.cut()
	}
}

// cut ends the window: what still runs is drawn up to here.
func (d *Drawing) cut() {
	d.totals.ToNS = d.now
	for i := range d.run.Slots {
		if d.run.Slots[i].Runs {
			d.endRollout(int32(i), outcome{end: running})
		}
	}
	if d.run.Lease.Runs {
		d.endStep(running)
	}
	for e := range d.run.Engines {
		d.drawSync(int32(e), running)
	}
	d.endFleet(running)
	d.window = after
}

// Totals returns what was drawn so far.
func (d *Drawing) Totals() Totals {
	t := d.totals
	t.Events = d.out.events
	t.Arrows, t.ArrowsLeftOut = d.arrows.drawn, d.arrows.left
	return t
}

// Close ends the drawing, and returns the first error of writing, or [ErrEmpty].
func (d *Drawing) Close() error {
	empty := d.window == before
	if d.window == inside {
		d.cut()
	}
	if err := d.out.end(); err != nil {
		return err
	}
	if empty {
		return ErrEmpty
	}
	return nil
}

// ends takes an event, and closes the spans that it ends.
func (d *Drawing) ends(ev *loop.Event, environmentNS int64) {
	switch ev.Kind {
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed:
		if d.run.Reports(ev) != nil {
			d.drawSync(ev.Engine, map[bool]string{true: "failed"}[ev.Kind == loop.SyncFailed])
		}
	case loop.EngineLost, loop.Recovered:
		for e, goOn := range d.run.Loses(ev) {
			d.loseEngine(e, goOn)
		}
	}
	trains := d.run.Lease.Runs
	left := d.run.Event(ev)
	if ev.Kind == loop.Recovered && !d.run.Sync.Runs {
		d.endFleet("recovered")
	}
	switch ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted, loop.RolloutInterrupted:
		for _, slot := range left {
			d.endRollout(slot, outcomeOf(ev, environmentNS))
		}
	}
	if trains && !d.run.Lease.Runs {
		d.endStep(endOfStep(ev))
	}
}

// outcomeOf says how a rollout left its slot by an event.
func outcomeOf(ev *loop.Event, environmentNS int64) outcome {
	o := outcome{tokens: ev.Tokens}
	switch ev.Kind {
	case loop.RolloutScored:
		o.end, o.reward, o.scored, o.environmentNS = "scored", ev.Reward, true, environmentNS
	case loop.RolloutFailed:
		o.end = "failed: " + ev.Reason.String()
	case loop.RolloutAborted:
		o.end = "aborted"
	default:
		o.end = interrupted
	}
	return o
}

// endOfStep says how a train step ended by an event.
func endOfStep(ev *loop.Event) string {
	switch ev.Kind {
	case loop.TrainStepEnded:
		return trained
	case loop.TrainStepFailed:
		return "failed: " + ev.Reason.String()
	case loop.LeaseReturned:
		return "returned"
	}
	return "returned: the trainer went back to an earlier state"
}

// loseEngine draws what ends with an engine that is about to be lost. Its rollouts end by events of their
// own where goOn says so.
func (d *Drawing) loseEngine(engine int32, goOn bool) {
	slots, first := d.run.On(&d.run.Engines[engine])
	for i := range slots {
		if slots[i].Runs && !goOn {
			d.endRollout(first+int32(i), outcome{end: "lost"})
		}
	}
	d.drawSync(engine, "lost")
}

// act begins the spans that an action begins, and marks what it ends.
func (d *Drawing) act(a *loop.Action) {
	switch a.Kind {
	case loop.GroupLeased:
		total, pqs, iqs := a.Staleness()
		n := &d.next
		n.groups++
		n.rollouts += int64(a.Count)
		n.staleness += int64(total)
		n.pqs += int64(pqs)
		n.iqs += int64(iqs)
		n.stalenessMax = max(n.stalenessMax, total)
		n.batch = append(n.batch, a.Group)
	case loop.StartTrainStep:
		d.step, d.next = d.next, step{}
		d.drawStaleness()
	case loop.LoadWeights:
		if !d.fleet.Runs {
			d.fleet = track.Sync{Runs: true, Version: a.Version, SinceNS: d.now}
		}
	case loop.SyncCompleted:
		d.endFleet("")
	case loop.AbortRollout:
		if a.Slot < 0 {
			d.arrows.drop(a.Group, a.Sample, a.Attempt) // it stands interrupted
		}
	case loop.GroupTrained:
		if !d.queue.replay {
			delete(d.arrows.tails, a.Group)
		}
	case loop.GroupEnded:
		delete(d.arrows.tails, a.Group)
		if d.window == inside {
			d.drawEnd(a)
		}
	case loop.SettingChanged:
		if d.window == inside {
			d.drawMove(a)
		}
	case loop.ControlChanged:
		if d.window == inside {
			d.drawControl(a)
		}
	}
	d.queue.action(a)
}
