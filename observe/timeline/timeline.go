package timeline

import (
	"errors"
	"io"

	"github.com/headway-rl/headway/loop"
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

	slots  []rollout // by slot
	engine []int32   // of every slot
	first  []int32   // the first slot of every engine
	sync   []load    // of every engine
	fleet  load
	served []loop.Version
	step   step
	next   step // whose groups are being named
	queue  queue
	level  [gaugeCount]int64 // what every gauge shows
	shown  bool
	active int64
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

// rollout is what runs in a slot; group 0 for nothing.
type rollout struct {
	group           loop.GroupID
	from            int64
	version         loop.Version
	sample, attempt int32
	resumed         bool
	unwanted        bool // to be aborted: a score that comes all the same is nobody's
}

// load is a weight sync, of an engine or of all.
type load struct {
	version loop.Version
	from    int64
	doing   syncPart
}

// syncPart is what a sync is at.
type syncPart uint8

const (
	idle syncPart = iota
	loading
	loaded
	switching
)

// step is a train step; lease 0 for none.
type step struct {
	lease   loop.LeaseID
	version loop.Version
	from    int64
	// Sums over its groups, and the stalest of them.
	groups, rollouts, staleness, pqs, iqs int64
	stalenessMax                          loop.Version
	batch                                 []loop.GroupID
}

// New begins a drawing on w. Every event of the run must be observed, from the first
// on and in order; then Close ends it.
func New(w io.Writer, opt Options) *Drawing {
	d := &Drawing{out: newEncoder(w), opt: opt}
	engines := opt.Rules.EngineSlots
	for e, n := range engines {
		d.first = append(d.first, int32(len(d.engine)))
		for range n {
			d.engine = append(d.engine, int32(e))
		}
	}
	d.slots = make([]rollout, len(d.engine))
	d.arrows.tails = map[loop.GroupID][]tail{}
	d.sync, d.served = make([]load, len(engines)), make([]loop.Version, len(engines))
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
		d.act(&actions[i])
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
	for i := range d.slots {
		d.endRollout(int32(i), outcome{end: running})
	}
	if d.step.lease != 0 {
		d.endStep(running)
	}
	for e := range d.sync {
		d.endSync(int32(e), running)
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

// ends closes the spans that an event ends.
func (d *Drawing) ends(ev *loop.Event, environmentNS int64) {
	switch ev.Kind {
	case loop.RolloutScored:
		d.endAttempt(ev, outcome{end: "scored", tokens: ev.Tokens, reward: ev.Reward, scored: true, environmentNS: environmentNS})
	case loop.RolloutFailed:
		d.endAttempt(ev, outcome{end: "failed: " + ev.Reason.String(), tokens: ev.Tokens})
	case loop.RolloutAborted:
		d.endAttempt(ev, outcome{end: "aborted", tokens: ev.Tokens})
	case loop.RolloutInterrupted:
		d.endAttempt(ev, outcome{end: interrupted, tokens: ev.Tokens})
	case loop.EngineLost:
		if d.opt.Rules.ResumeLost { // its rollouts are interrupted, each by an event of its own
			d.endSync(ev.Engine, "lost")
		} else {
			d.loseEngine(ev.Engine)
		}
	case loop.Recovered:
		for e := range d.sync {
			d.loseEngine(int32(e))
		}
		d.endFleet("recovered")
	case loop.TrainStepEnded:
		d.endLease(ev, trained)
	case loop.TrainStepFailed:
		d.endLease(ev, "failed: "+ev.Reason.String())
	case loop.LeaseReturned:
		d.endLease(ev, "returned")
	case loop.TrainerRestored:
		if d.step.lease != 0 && ev.Version == d.step.version+1 {
			d.endStep("returned: the trainer went back to an earlier state")
		}
	case loop.WeightsLoaded:
		if s := d.syncOf(ev); s != nil && s.doing == loading {
			d.drawSync(ev.Engine, "")
			s.doing = loaded
		}
	case loop.WeightsSwitched:
		if s := d.syncOf(ev); s != nil {
			d.endSync(ev.Engine, "")
			d.served[ev.Engine] = ev.Version
		}
	case loop.SyncFailed:
		if s := d.syncOf(ev); s != nil {
			d.endSync(ev.Engine, "failed")
		}
	}
}

// syncOf is the running sync that an event is about, nil for a late event.
func (d *Drawing) syncOf(ev *loop.Event) *load {
	if ev.Engine < 0 || int(ev.Engine) >= len(d.sync) {
		return nil
	}
	if s := &d.sync[ev.Engine]; s.doing != idle && s.version == ev.Version {
		return s
	}
	return nil
}

// endAttempt ends the rollout that an event names, if it runs in that slot.
func (d *Drawing) endAttempt(ev *loop.Event, o outcome) {
	if ev.Slot < 0 || int(ev.Slot) >= len(d.slots) {
		return
	}
	if r := &d.slots[ev.Slot]; r.group == ev.Group && r.sample == ev.Sample && r.attempt == ev.Attempt {
		d.endRollout(ev.Slot, o)
	}
}

func (d *Drawing) loseEngine(engine int32) {
	for i := range d.slots {
		if d.engine[i] == engine {
			d.endRollout(int32(i), outcome{end: "lost"})
		}
	}
	d.endSync(engine, "lost")
}

func (d *Drawing) endLease(ev *loop.Event, how string) {
	if d.step.lease != 0 && d.step.lease == ev.Lease {
		d.endStep(how)
	}
}

// unwanted marks a rollout that is to be aborted.
func (d *Drawing) unwanted(a *loop.Action) {
	if a.Slot < 0 || int(a.Slot) >= len(d.slots) {
		d.arrows.drop(a.Group, a.Sample, a.Attempt) // it stands interrupted
		return
	}
	if r := &d.slots[a.Slot]; r.group == a.Group && r.sample == a.Sample && r.attempt == a.Attempt {
		r.unwanted = true
	}
}

// act begins the spans that an action begins, and marks what it ends.
func (d *Drawing) act(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		d.slots[a.Slot] = rollout{group: a.Group, sample: a.Sample, attempt: a.Attempt, from: d.now, version: a.Version, resumed: a.Kind == loop.ResumeRollout}
		d.active++
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
		d.step.lease, d.step.version, d.step.from = a.Lease, a.Version, d.now
		d.drawStaleness()
	case loop.LoadWeights:
		d.sync[a.Engine] = load{version: a.Version, from: d.now, doing: loading}
		if d.fleet.doing == idle {
			d.fleet = load{version: a.Version, from: d.now, doing: loading}
		}
	case loop.SwitchWeights:
		d.sync[a.Engine] = load{version: a.Version, from: d.now, doing: switching}
	case loop.SyncCompleted:
		d.endFleet("")
	case loop.AbortRollout:
		d.unwanted(a)
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
