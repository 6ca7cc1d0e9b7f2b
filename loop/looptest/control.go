package looptest

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

// poolState says whose an engine is.
type poolState int

const (
	owned poolState = iota
	leaving
	pooled
	starting
)

// settings is the number of settings there are.
const settings = int(loop.SettingEngines) + 1

// controlModel is where the settings of a controller stand, and what it says of itself.
type controlModel struct {
	// goal: there is something to keep; without it only requests move.
	goal   bool
	ranges [settings]loop.Range
	at     [settings]float64
	// movedAt is the version at which the controller itself moved each last, NoVersion if it never did.
	movedAt [settings]loop.Version
	state   loop.ControlState
	moves   int64
	begun   bool
	// slots, live and engines are what those of their names amount to; without a controller no limit.
	slots, engines int
	live           float64
	// steps are what train steps measured of filters, now is the one under way, and passes the share that passes them.
	steps  []passModel
	now    passModel
	passes float64
	// batch is what the newest batch was trained on.
	batch tokenModel
	// request is the setting that an event asks to be moved, -1 for none, and refused the version at which
	// the pool could give no engine.
	request int
	// quietAt is when a train step ended last, or the run was recovered or the trainer restored.
	quietAt int64
	refused loop.Version
}

// steers reports whether an action of this kind is the controller's word.
func steers(k loop.ActionKind) bool { return k == loop.SettingChanged || k == loop.ControlChanged }

func newControl(cfg loop.Config) controlModel {
	b := controlModel{slots: cfg.Concurrency(), live: math.Inf(1), engines: len(cfg.EngineSlots), request: -1, refused: loop.NoVersion, passes: 1}
	if cfg.EnginesStart > 0 {
		b.engines = cfg.EnginesStart
	}
	for i := range b.movedAt {
		b.movedAt[i] = loop.NoVersion
	}
	if ctl := cfg.Control; ctl != nil {
		b.goal = ctl.Mean > 0 || ctl.Share > 0
		b.ranges = ctl.Ranges
		if r := ctl.Ranges[loop.SettingEngines]; r.Moves() {
			b.engines = int(min(max(float64(b.engines), r.Least), r.Most))
		}
	}
	return b
}

// moves books what the controller did in a step, and what must follow from it.
func (c *Checker) moves(ev loop.Event, actions []loop.Action) error {
	b := &c.control
	moved := [settings]bool{}
	for _, a := range actions {
		switch {
		case a.Kind == loop.ControlChanged:
			if err := c.stateChanged(ev, a); err != nil {
				return err
			}
		case a.Kind == loop.SettingChanged && a.Setting == loop.SettingHold && c.hold.cost.most > 0:
			if err := c.holdMoved(a); err != nil {
				return err
			}
		case a.Kind == loop.SettingChanged:
			if int(a.Setting) >= settings || moved[a.Setting] {
				return fmt.Errorf("%v: no such setting, or a second move in one step", a)
			}
			moved[a.Setting] = true
			if err := c.mayMove(ev, a); err != nil {
				return err
			}
			c.settingMoved(a)
		}
	}
	if c.hold.cost.moves {
		return fmt.Errorf("an adaptive hold goes to %g and does not say so", c.cfg.Hold)
	}
	if ev.Kind == loop.RunStarted && !b.begun {
		b.begun = true
		for set, r := range b.ranges {
			if r.Moves() != moved[set] {
				return fmt.Errorf("at the start %s is said to stand somewhere: %t, though it may move: %t", loop.Setting(set), moved[set], r.Moves())
			}
		}
	}
	if b.request >= 0 && !moved[b.request] {
		if r := b.ranges[b.request]; b.at[b.request] != asked(loop.Setting(b.request), r, ev.Value()) {
			return fmt.Errorf("%s stays at %g though %g is asked for", loop.Setting(b.request), b.at[b.request], ev.Value())
		}
	}
	again := b.request == int(loop.SettingEngines) // though the number may be what it was
	b.request = -1
	if again || ev.Kind == loop.TrainStepEnded && !c.finished && b.ranges[loop.SettingEngines].Moves() {
		c.fitFleet()
	}
	return nil
}

// counts reports whether a setting is a whole number.
func counts(set loop.Setting) bool { return set != loop.SettingHold && set != loop.SettingLive }

// liveMost is the number of groups that may be live: a fraction of SettingLive is kept in the mean of versions.
func (c *Checker) liveMost() int {
	v := float64(c.lowestServed())
	k := int(math.Floor((v+1)*c.control.live) - math.Floor(v*c.control.live))
	k = max(k, (c.cfg.SyncEvery-1)*c.cfg.BatchGroups)
	return k + c.cfg.BatchGroups - int(c.version-c.lowestServed())*c.cfg.BatchGroups
}

// asked is what a request makes of a setting.
func asked(set loop.Setting, r loop.Range, v float64) float64 {
	if counts(set) {
		v = math.Floor(v + 0.5)
	}
	return math.Min(math.Max(v, r.Least), r.Most)
}

// mayMove checks a move against its range, its reason and its occasion.
func (c *Checker) mayMove(ev loop.Event, a loop.Action) error {
	b := &c.control
	r := b.ranges[a.Setting]
	want := loop.Action{Kind: a.Kind, Setting: a.Setting, Value: a.Value, Reason: a.Reason, Version: c.version}
	switch {
	case a != want:
		return fmt.Errorf("%v carries fields that are not a move's: %+v", a, fields(a))
	case !r.Moves() || !(a.Value >= r.Least && a.Value <= r.Most):
		return fmt.Errorf("%v is outside its range, %g to %g", a, r.Least, r.Most)
	case counts(a.Setting) && a.Value != math.Trunc(a.Value):
		return fmt.Errorf("%v is no whole number", a)
	case a.Reason == loop.ReasonStart:
		if ev.Kind != loop.RunStarted || b.begun {
			return fmt.Errorf("%v, though the run goes on", a)
		}
		return nil
	case a.Value == b.at[a.Setting]:
		return fmt.Errorf("%v moves nothing", a)
	case a.Reason == loop.ReasonRequested:
		if b.request != int(a.Setting) || a.Value != asked(a.Setting, r, ev.Value()) {
			return fmt.Errorf("%v was not asked for", a)
		}
		return nil
	case !b.goal:
		return fmt.Errorf("%v, though there is no goal", a)
	case ev.Kind != loop.TrainStepEnded:
		return fmt.Errorf("%v, though no train step ended", a)
	}
	return c.rate(a)
}

// rate checks that a move of the controller's own goes the way its reason says, not too far and not too soon. A
// setting that counts may always go by one.
func (c *Checker) rate(a loop.Action) error {
	b := &c.control
	at, lowers := b.at[a.Setting], a.Value < b.at[a.Setting]
	if a.Setting == loop.SettingHold || a.Setting == loop.SettingRedundancy {
		lowers = !lowers // more of these lowers staleness
	}
	most := map[loop.Setting]float64{
		loop.SettingLive: max(0.25*at, 1.0/8), loop.SettingSlots: max(0.25*at, 1), loop.SettingQueue: max(0.25*float64(c.cfg.BatchGroups), 1),
		loop.SettingHold: 0.1, loop.SettingSyncEvery: 1, loop.SettingRedundancy: 1, loop.SettingEngines: 1,
	}[a.Setting]
	if a.Reason == loop.ReasonRoom && a.Setting == loop.SettingLive {
		most = max(0.08*at, 1.0/8)
	}
	if a.Reason == loop.ReasonRoom && a.Setting == loop.SettingSlots {
		most = max(0.08*at, 1)
	}
	const rounding = 1.0/8 + 1e-9 // values are rounded down to an eighth of a group, or to a whole number
	round := rounding
	if counts(a.Setting) {
		round = 1
	}
	if a.Setting == loop.SettingLive { // fewer than between two syncs change nothing
		most = max(most, float64((c.cfg.SyncEvery-1)*c.cfg.BatchGroups)-at)
	}
	if a.Setting == loop.SettingQueue && a.Reason == loop.ReasonAbove {
		most = float64(c.cfg.QueueGroups) // all that is too much, at once
	}
	rest := loop.Version(4)
	if a.Setting != loop.SettingLive && a.Setting != loop.SettingSlots {
		rest = loop.Version(max(c.cfg.Control.Window/2, 1))
	}
	switch {
	case a.Reason == loop.ReasonAbove && !lowers, a.Reason == loop.ReasonRoom && lowers:
		return fmt.Errorf("%v goes the other way than its reason, from %g", a, at)
	case math.Abs(a.Value-at) > most+round:
		return fmt.Errorf("%v goes further from %g than %g at once", a, at, most)
	case b.movedAt[a.Setting] != loop.NoVersion && c.version-b.movedAt[a.Setting] < rest:
		return fmt.Errorf("%v, though it moved at v%d and rests for %d versions", a, b.movedAt[a.Setting], rest)
	}
	return nil
}

// settingMoved books a move and what follows from it.
func (c *Checker) settingMoved(a loop.Action) {
	b := &c.control
	b.at[a.Setting] = a.Value
	if a.Reason != loop.ReasonRequested && a.Reason != loop.ReasonStart {
		b.movedAt[a.Setting] = c.version
	}
	if a.Reason != loop.ReasonStart {
		b.moves++
	}
	n := int(a.Value)
	switch a.Setting {
	case loop.SettingSlots:
		b.slots = n
	case loop.SettingLive:
		b.live = a.Value
	case loop.SettingHold:
		c.cfg.Hold = a.Value
		if a.Value == 0 {
			c.hold.since, c.hold.spent = never, false
		}
	case loop.SettingQueue:
		c.cfg.QueueGroups = n
		c.fitQueue()
	case loop.SettingRedundancy:
		c.cfg.Redundancy = n
	case loop.SettingSyncEvery:
		c.cfg.SyncEvery = n
	case loop.SettingEngines:
		b.engines = n
		c.fitFleet()
	}
}

// fitQueue books what a capacity that has changed drops or lets in.
func (c *Checker) fitQueue() {
	for len(c.queue) > c.cfg.QueueGroups {
		last := len(c.queue) - 1
		switch {
		case c.cfg.Policy == loop.PolicyBlock:
			id := c.queue[last]
			c.queue = c.queue[:last]
			c.groups[id].place = inHeld
			c.held = append([]loop.GroupID{id}, c.held...)
		case c.drawsFresh() && c.groups[c.queue[0]].turn >= c.freshFrom:
			x := int(loop.Draw(c.cfg.Seed, c.draws) % uint64(len(c.queue)))
			c.draws++
			c.endGroup(c.groups[c.queue[last-x]], loop.EndEvicted, loop.ReasonFull)
		default:
			c.makeRoom()
		}
	}
	for len(c.held) > 0 && len(c.queue) < c.cfg.QueueGroups {
		g := c.groups[c.held[0]]
		c.held = c.held[1:]
		c.enqueue(g)
	}
}

// fitFleet books what is asked of the pool: engines are wanted from the first one on.
func (c *Checker) fitFleet() {
	for i := range c.engines {
		e := &c.engines[i]
		wanted := i < c.control.engines
		switch {
		case wanted && e.pool == leaving && e.state == gone:
			e.pool = starting
			c.acquire(int32(i))
		case wanted && e.pool == leaving:
			e.pool = owned
		case !wanted && e.pool == owned:
			e.pool = leaving
		case wanted && e.pool == pooled && (c.control.refused == loop.NoVersion || c.version-c.control.refused >= 8):
			e.pool = starting
			c.acquire(int32(i))
		}
	}
}

func (c *Checker) acquire(i int32) {
	e := &c.engines[i]
	e.asked++
	c.expect(loop.Action{Kind: loop.AcquireEngine, Engine: i, Attempt: e.asked})
}

// depart books the engines that leave and are empty.
func (c *Checker) depart() {
	if c.finished {
		return
	}
	for i := range c.engines {
		e := &c.engines[i]
		if e.pool != leaving || c.busy(i) || e.stage == loading || e.stage == switching {
			continue
		}
		c.expect(loop.Action{Kind: loop.ReleaseEngine, Engine: int32(i)})
		before, cell := e.state, c.cellOf(int32(i))
		e.pool = pooled
		e.state, e.stage, e.served = gone, idle, loop.NoVersion
		if before != gone && c.cellOver(cell) {
			c.failCell(cell, loop.ReasonCapacity)
		}
		c.strand(cell)
	}
}

// strand books that what stands interrupted in a cell whose engines were all given back is tried again elsewhere.
func (c *Checker) strand(cell int) {
	for i, e := range c.engines {
		if c.cellOf(int32(i)) == cell && (e.pool == owned || e.pool == leaving) {
			return
		}
	}
	if c.cfg.StaysInCell {
		c.failWaiting(cell, loop.ReasonCapacity)
	}
}

// recoverPooled books what a restart makes of an engine that is not wholly the run's.
func (c *Checker) recoverPooled(i int32) {
	e := &c.engines[i]
	if e.pool == leaving && c.elsewhere(i) {
		return
	}
	e.state, e.stage, e.served = gone, idle, loop.NoVersion
	switch e.pool {
	case leaving:
		e.pool = pooled
		c.expect(loop.Action{Kind: loop.ReleaseEngine, Engine: i})
		c.strand(c.cellOf(i))
	case starting:
		c.acquire(i)
	}
}

// welcome reports whether an engine that was gone may join, and books it if it is not wanted.
func (c *Checker) welcome(ev loop.Event) bool {
	e := &c.engines[ev.Engine]
	switch {
	case e.pool == owned:
		return true
	case e.pool != starting || e.asked != ev.Attempt:
		c.counts.Late++
		return false
	case int(ev.Engine) >= c.control.engines:
		e.pool = pooled
		c.expect(loop.Action{Kind: loop.ReleaseEngine, Engine: ev.Engine})
		return false
	}
	e.pool = owned
	return true
}

func (c *Checker) engineUnavailable(ev loop.Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(c.engines) || c.engines[ev.Engine].pool != starting || c.engines[ev.Engine].asked != ev.Attempt {
		c.counts.Late++
		return
	}
	c.engines[ev.Engine].pool = pooled
	c.control.refused = c.version
}

func (c *Checker) settingRequested(ev loop.Event) {
	if int(ev.Setting) >= settings || !c.control.ranges[ev.Setting].Moves() || math.IsNaN(ev.Value()) {
		c.counts.Late++
		return
	}
	c.control.request = int(ev.Setting)
	if ev.Setting == loop.SettingEngines {
		c.control.refused = loop.NoVersion
	}
}

// stateChanged checks what the controller says of itself.
func (c *Checker) stateChanged(ev loop.Event, a loop.Action) error {
	b := &c.control
	switch {
	case !b.goal || a.Control == loop.ControlOff || a.Control > loop.ControlSilent || a.Control == b.state || a.Version != c.version:
		return fmt.Errorf("%v, though there is a goal: %t, and the controller was %s", a, b.goal, b.state)
	case a.Control == loop.ControlSilent:
	case ev.Kind != loop.TrainStepEnded && ev.Kind != loop.RunStarted:
		return fmt.Errorf("%v, though no train step ended", a)
	}
	b.state = a.Control
	return nil
}

// alarm is when the controller calls it silent if no train step ends, NoTick for never.
func (c *Checker) alarm() int64 {
	if !c.control.goal || c.control.state == loop.ControlSilent || c.hold.period == 0 {
		return loop.NoTick
	}
	return c.control.quietAt + 8*c.hold.period*int64(c.cfg.SyncEvery)
}

// silence checks that the controller says so as soon as nothing has been measured for long, and not before.
func (c *Checker) silence(actions []loop.Action) error {
	if c.finished {
		return nil
	}
	for _, a := range actions {
		if a.Kind == loop.ControlChanged && a.Control == loop.ControlSilent {
			was := c.control
			was.state = loop.ControlKeeping
			c.control, was = was, c.control
			at := c.alarm()
			c.control = was
			if c.now < at {
				return fmt.Errorf("%v, though it may wait for a train step's end until %d", a, at)
			}
		}
	}
	if at := c.alarm(); c.now >= at {
		return fmt.Errorf("no train step has ended since %d, and the controller does not say that it is silent", c.control.quietAt)
	}
	return nil
}

// compareControl checks a status of the controller against the models.
func (c *Checker) compareControl(st *loop.ControlStatus) error {
	b := &c.control
	if (st == nil) != (c.cfg.Control == nil) {
		return fmt.Errorf("status has a controller: %t", st != nil)
	}
	if st == nil || !b.begun {
		return nil
	}
	if st.Moves != b.moves || st.State != b.state.String() || st.HeldSteps > st.Steps || st.HeldBatches > st.Steps {
		return fmt.Errorf("status has the controller %+v, want %d moves, %s", *st, b.moves, b.state)
	}
	if share := b.batch.share(); c.cfg.Control.Tokens && st.LastShare != share {
		return fmt.Errorf("status has a share of %g of the newest batch, want %g: %+v", st.LastShare, share, b.batch)
	}
	n := 0
	for set, r := range b.ranges {
		if !r.Moves() {
			continue
		}
		if n >= len(st.Settings) || st.Settings[n].Name != loop.Setting(set).String() || st.Settings[n].Value != b.at[set] {
			return fmt.Errorf("status has the settings %+v, want %s at %g", st.Settings, loop.Setting(set), b.at[set])
		}
		n++
	}
	return nil
}
