package metrics

import "github.com/headway-rl/headway/loop"

// settings is the number of settings a controller may move.
const settings = len(loop.Control{}.Ranges)

// reasonsKept bounds the reasons that moves are counted by.
const reasonsKept = 64

// MovesKept is how many of the newest moves of a controller are kept one by one.
const MovesKept = 16

// StepControl is a controller after a train step.
type StepControl struct {
	// State of the controller; ControlOff without a goal, and then all else is 0.
	State loop.ControlState
	// Mean and Share are the measured values of the goal over the window that ended with the step, -1
	// where they are not known. Batch and BatchShare are the same of the step's own batch alone.
	Mean, Share, Batch, BatchShare float64
	// Judged: the step counts. Held: the goal held over the window, BatchHeld of the step's own batch.
	Judged, Held, BatchHeld bool
	// Settings are where they stand after the step, by loop.Setting.
	Settings [settings]float64
}

// Move is one change of a setting.
type Move struct {
	// Step is the trainer's version at which it was made, TimeS when, in seconds since the run started.
	Step  loop.Version `json:"step"`
	TimeS float64      `json:"time_s"`
	// Setting by its name, From and To its values, Reason why.
	Setting string  `json:"setting"`
	From    float64 `json:"from"`
	To      float64 `json:"to"`
	Reason  string  `json:"reason"`
}

// Control says what a controller did in the measured window.
type Control struct {
	// State at its end: settling, keeping, correcting, unreachable or silent.
	State string `json:"state"`
	// TargetMean, TargetShare, Within and Of are the goal, Window the train steps it is measured over.
	TargetMean  float64      `json:"target_mean,omitempty"`
	TargetShare float64      `json:"target_share,omitempty"`
	Within      loop.Version `json:"within,omitempty"`
	Of          string       `json:"of,omitempty"`
	Window      int          `json:"window"`
	// MeasuredMean and MeasuredShare are over the last window, -1 while nothing is known.
	MeasuredMean  float64 `json:"measured_mean"`
	MeasuredShare float64 `json:"measured_share"`
	// Steps counts train steps that were judged, and HeldSteps those with the goal held over the window
	// that ended with them. HeldBatches counts those whose own batch met it, which is stricter.
	Steps       int64 `json:"steps"`
	HeldSteps   int64 `json:"held_steps"`
	HeldBatches int64 `json:"held_batches"`
	// UnreachableSteps counts those that ended with the goal out of reach, Silences how often no
	// measurement came.
	UnreachableSteps int64 `json:"unreachable_steps"`
	Silences         int64 `json:"silences"`
	// Nearest and Binding say what can be reached at best where the goal cannot, and what binds.
	Nearest float64 `json:"nearest,omitempty"`
	Binding string  `json:"binding,omitempty"`
	// Moves counts changes of settings, Reasons those by why, Last the newest of them in order.
	Moves   int64            `json:"moves"`
	Reasons map[string]int64 `json:"reasons"`
	Last    []Move           `json:"last"`
	// Settings are those that may move.
	Settings []ControlSetting `json:"settings"`
}

// ControlSetting is what became of one setting in the measured window.
type ControlSetting struct {
	Name string `json:"name"`
	// Start is where it stood as the window began, Value at its end, within Least and Most.
	Start float64 `json:"start"`
	Value float64 `json:"value"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	// Moves counts its changes, Why says why it was moved last; empty if it never was.
	Moves int64  `json:"moves"`
	Why   string `json:"why,omitempty"`
}

// control is what a recorder remembers of a controller.
type control struct {
	goal     loop.Control
	state    loop.ControlState
	silences int64
	// What the loop said of it after the last train step, and the counts as the window began.
	mean, share, nearest float64
	binding              string
	steps, held, batches int64
	from                 struct{ steps, held, batches int64 }
	unreachable          int64

	at, start [settings]float64
	known     [settings]bool
	moves     [settings]int64
	why       [settings]loop.Reason
	reasons   [reasonsKept]int64
	last      []moved
}

// moved is a Move in the loop's words.
type moved struct {
	step     loop.Version
	at       int64
	setting  loop.Setting
	why      loop.Reason
	from, to float64
}

// ControlOf returns a loop's word on its controller after an event of this kind, for Measured. It is
// nil unless that ended a train step, and without a goal.
func ControlOf(l *loop.Loop, kind loop.EventKind) *loop.ControlStatus {
	if kind != loop.TrainStepEnded {
		return nil
	}
	return l.ControlStatus()
}

func newControl(goal *loop.Control) *control {
	if goal == nil {
		return nil
	}
	return &control{goal: *goal, mean: -1, share: -1}
}

// controlled takes what the loop's controller did.
func (r *Recorder) controlled(a *loop.Action) {
	switch {
	case r.control == nil: // a log of other rules than it was recorded by
	case a.Kind == loop.SettingChanged:
		r.control.moved(a, r.run.NowNS)
	default:
		r.control.changed(a)
	}
}

// reset begins the measured window.
func (c *control) reset() {
	c.start, c.moves, c.reasons = c.at, [settings]int64{}, [reasonsKept]int64{}
	c.from.steps, c.from.held, c.from.batches = c.steps, c.held, c.batches
	c.unreachable, c.silences, c.last = 0, 0, c.last[:0]
}

// moved takes a move.
func (c *control) moved(a *loop.Action, now int64) {
	if int(a.Setting) >= settings {
		return
	}
	was := c.at[a.Setting]
	c.at[a.Setting] = a.Value
	if !c.known[a.Setting] { // the first word of it is where it stands
		c.known[a.Setting], c.start[a.Setting] = true, a.Value
		return
	}
	c.moves[a.Setting]++
	c.why[a.Setting] = a.Reason
	if int(a.Reason) < reasonsKept {
		c.reasons[a.Reason]++
	}
	if len(c.last) == MovesKept {
		c.last = append(c.last[:0], c.last[1:]...)
	}
	c.last = append(c.last, moved{a.Version, now, a.Setting, a.Reason, was, a.Value})
}

// changed takes a change of the controller's state.
func (c *control) changed(a *loop.Action) {
	c.state = a.Control
	if a.Control == loop.ControlSilent {
		c.silences++
	}
}

// stepped takes what the loop says of its controller after a train step; nil where the driver does not say.
func (c *control) stepped(s *loop.ControlStatus) StepControl {
	p := StepControl{State: c.state, Mean: -1, Share: -1, Batch: -1, BatchShare: -1, Settings: c.at}
	if s != nil {
		p.Mean, p.Share, p.Batch, p.BatchShare = s.MeasuredMean, s.MeasuredShare, s.LastMean, s.LastShare
		p.Judged, p.Held, p.BatchHeld = s.Steps > c.steps, s.HeldSteps > c.held, s.HeldBatches > c.batches
		c.mean, c.share, c.nearest, c.binding = s.MeasuredMean, s.MeasuredShare, s.Nearest, s.Binding
		c.steps, c.held, c.batches = s.Steps, s.HeldSteps, s.HeldBatches
	}
	if c.state == loop.ControlUnreachable {
		c.unreachable++
	}
	return p
}

// summary says what the controller did in the window.
func (c *control) summary() *Control {
	g := c.goal
	out := &Control{State: c.state.String(), TargetMean: g.Mean, TargetShare: g.Share, Within: g.Within, Window: g.Window,
		MeasuredMean: c.mean, MeasuredShare: c.share, Steps: c.steps - c.from.steps, HeldSteps: c.held - c.from.held, HeldBatches: c.batches - c.from.batches,
		UnreachableSteps: c.unreachable, Silences: c.silences, Nearest: c.nearest, Binding: c.binding,
		Reasons: map[string]int64{}, Last: []Move{}, Settings: []ControlSetting{}}
	if g.Share > 0 {
		out.Of = map[bool]string{false: "rollouts", true: "tokens"}[g.Tokens]
	}
	for reason, n := range c.reasons {
		if n > 0 {
			out.Reasons[loop.Reason(reason).String()] = n
		}
	}
	for _, m := range c.last {
		out.Last = append(out.Last, Move{m.step, float64(m.at) / 1e9, m.setting.String(), m.from, m.to, m.why.String()})
	}
	for i, r := range g.Ranges {
		out.Moves += c.moves[i]
		if !r.Moves() {
			continue
		}
		setting := ControlSetting{Name: loop.Setting(i).String(), Start: c.start[i], Value: c.at[i], Least: r.Least, Most: r.Most, Moves: c.moves[i]}
		if c.why[i] != loop.ReasonNone {
			setting.Why = c.why[i].String()
		}
		out.Settings = append(out.Settings, setting)
	}
	return out
}

// fields takes everything that the rules do not say.
func (c *control) fields(d *codec) {
	word(d, &c.state)
	whole(d, &c.silences, &c.steps, &c.held, &c.batches, &c.from.steps, &c.from.held, &c.from.batches, &c.unreachable)
	d.reals(&c.mean, &c.share, &c.nearest)
	binding := []byte(c.binding)
	list(d, &binding, func(b *byte) { word(d, b) })
	c.binding = string(binding)
	for i := range settings {
		d.reals(&c.at[i], &c.start[i])
		d.truths(&c.known[i])
		whole(d, &c.moves[i])
		word(d, &c.why[i])
	}
	for i := range c.reasons {
		whole(d, &c.reasons[i])
	}
	list(d, &c.last, func(m *moved) {
		whole(d, &m.step)
		whole(d, &m.at)
		word(d, &m.setting)
		word(d, &m.why)
		d.reals(&m.from, &m.to)
	})
}

func (p *StepControl) fields(d *codec) {
	word(d, &p.State)
	d.reals(&p.Mean, &p.Share, &p.Batch, &p.BatchShare)
	d.truths(&p.Judged, &p.Held, &p.BatchHeld)
	for i := range p.Settings {
		d.reals(&p.Settings[i])
	}
}

// word takes a name, which is a small number.
func word[T ~uint8](d *codec, field *T) {
	n := int64(*field)
	whole(d, &n)
	if *field = T(n); int64(*field) != n {
		d.fail()
	}
}
