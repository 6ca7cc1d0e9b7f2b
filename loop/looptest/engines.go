package looptest

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

type engineState int

const (
	serving engineState = iota
	joining
	gone
)

type engineStage int

const (
	idle engineStage = iota
	loading
	loaded
	// emptying: nothing starts until the interrupted rollouts have stopped and the engine has switched.
	emptying
	switching
)

// engineModel is what the checker knows of an engine.
type engineModel struct {
	state    engineState
	stage    engineStage
	served   loop.Version
	loading  loop.Version
	attempt  int32
	failures int
	// pool says whose the engine is, asked how often the pool was asked for it.
	pool  poolState
	asked int32
}

// elsewhere reports whether an engine is of a cell that is a process of its own.
func (c *Checker) elsewhere(engine int32) bool {
	return len(c.cfg.EngineCells) > 0 && c.cfg.EngineCells[engine] > 0
}

// takesRollouts reports whether the engine may be given rollouts now.
func (c *Checker) takesRollouts(e *engineModel) bool {
	if e.state != serving || e.pool != owned || c.hopeless(e.served) {
		return false
	}
	switch c.cfg.Sync {
	case loop.SyncPause:
		return e.stage != switching
	case loop.SyncDrain:
		return e.stage == idle
	case loop.SyncRestart:
		return e.stage != emptying && e.stage != switching
	}
	return true
}

// lowestServed is the lowest version of the fleet, NoVersion if no engine serves.
func (c *Checker) lowestServed() loop.Version {
	lowest := loop.NoVersion
	for _, e := range c.engines {
		if e.state == serving && (lowest == loop.NoVersion || e.served < lowest) {
			lowest = e.served
		}
	}
	return lowest
}

// busy reports whether a slot of the engine is taken.
func (c *Checker) busy(engine int) bool {
	for _, s := range c.slots {
		if int(s.engine) == engine && s.taken {
			return true
		}
	}
	return false
}

func (c *Checker) load(i int32, v loop.Version) {
	e := &c.engines[i]
	e.stage, e.loading = loading, v
	e.attempt++
	c.expect(loop.Action{Kind: loop.LoadWeights, Engine: i, Version: v, Attempt: e.attempt})
}

func (c *Checker) join(i int32, v loop.Version) {
	e := &c.engines[i]
	e.state, e.served, e.failures = joining, loop.NoVersion, 0
	c.load(i, v)
}

// newest is what an engine that joins is to serve: the newest version that any has been asked to
// serve, or what a sync would bring if none serves.
func (c *Checker) newest() loop.Version {
	if v := c.weights(); c.lowestServed() == loop.NoVersion && c.due(v) {
		return max(c.target, v)
	}
	return max(c.target, c.completed)
}

// due reports whether a sync to the newest version would begin, were none under way.
func (c *Checker) due(v loop.Version) bool {
	if c.cfg.TrainerAsks {
		return v > c.completed
	}
	return v-c.completed >= loop.Version(c.cfg.SyncEvery)
}

// startSync begins a sync that is due.
func (c *Checker) startSync() {
	v := c.weights()
	if c.target != loop.NoVersion || !c.due(v) || c.finished {
		return
	}
	c.bring(v)
}

// bring books that a sync to a version begins.
func (c *Checker) bring(v loop.Version) {
	for i := range c.engines {
		if c.engines[i].state == serving && c.engines[i].served < v {
			c.target = v
			c.hold.synced = c.now
			c.engines[i].failures = 0
			c.load(int32(i), v)
		}
	}
}

// weights is the newest version that has weights.
func (c *Checker) weights() loop.Version {
	if !c.cfg.TrainerAsks {
		return c.version
	}
	for v := c.version; v > c.restored; v-- {
		if int(v)%c.cfg.SyncEvery == 0 {
			return v
		}
	}
	return c.restored
}

// settleSync brings the sync as far as the state of the engines lets it. It is
// asked after every event, whatever it was: the loop must not miss the moment.
func (c *Checker) settleSync() {
	if c.finished {
		return
	}
	for again := true; again; {
		c.switchReady()
		again = c.completeSync()
		if !again && c.target == loop.NoVersion {
			c.startSync()
		}
	}
}

// switchReady has the engines switch that may: each that is ready in a rolling
// switch, else all that take part once all are ready.
func (c *Checker) switchReady() {
	if c.target == loop.NoVersion {
		return
	}
	c.emptyLoaded()
	ready, waiting := c.partition(c.maySwitch)
	if waiting > 0 && !c.cfg.RollingSwitch {
		return
	}
	for _, i := range ready {
		c.switchOne(i)
	}
}

// partition lists the engines of the sync, short of those that switch already,
// that are as asked, and counts the others.
func (c *Checker) partition(as func(i int) bool) (list []int, others int) {
	for i, e := range c.engines {
		if e.state != serving || e.stage == idle || e.stage == switching || e.pool == leaving && !c.busy(i) && e.stage != loading {
			continue // the last of these is given back, and switches to nothing any more
		}
		if as(i) {
			list = append(list, i)
		} else {
			others++
		}
	}
	return list, others
}

func (c *Checker) maySwitch(i int) bool {
	switch e := &c.engines[i]; c.cfg.Sync {
	case loop.SyncDrain:
		return e.stage == loaded && !c.busy(i)
	case loop.SyncRestart:
		return e.stage == emptying && !c.busy(i)
	default:
		return e.stage == loaded
	}
}

// emptyLoaded interrupts the rollouts of the engines that come to the point of
// switching: each when it has loaded, or all once the last has.
func (c *Checker) emptyLoaded() {
	if c.cfg.Sync != loop.SyncRestart {
		return
	}
	there, others := c.partition(func(i int) bool { return c.engines[i].stage != loading })
	if others > 0 && !c.cfg.RollingSwitch {
		return
	}
	for _, i := range there {
		if c.engines[i].stage != loaded {
			continue
		}
		c.engines[i].stage = emptying
		for k, s := range c.slots {
			if int(s.engine) == i {
				c.ask(k)
			}
		}
	}
}

func (c *Checker) switchOne(i int) {
	e := &c.engines[i]
	e.stage = switching
	c.expect(loop.Action{Kind: loop.SwitchWeights, Engine: int32(i), Version: e.loading, Attempt: e.attempt})
}

// completeSync ends the sync if every engine in it serves its version.
func (c *Checker) completeSync() bool {
	if c.target == loop.NoVersion {
		return false
	}
	for _, e := range c.engines {
		if e.state == serving && e.stage != idle {
			return false
		}
	}
	c.hold.syncEnded(c.now)
	c.synced(c.target)
	return true
}

func (c *Checker) synced(v loop.Version) {
	c.completed, c.target, c.taken = v, loop.NoVersion, 0
	c.hold.switched()
	c.expect(loop.Action{Kind: loop.SyncCompleted, Version: v})
	c.startSync()
	c.selectBatch()
}

// alone reports whether all engines that serve have v, which is newer than what the last sync brought:
// who has joined with it is all there is.
func (c *Checker) alone(v loop.Version) bool {
	for _, e := range c.engines {
		if e.state == serving && e.served != v {
			return false
		}
	}
	return c.target == loop.NoVersion && v > c.completed
}

// loadNamed returns the engine whose load an event names.
func (c *Checker) loadNamed(ev loop.Event, stages ...engineStage) *engineModel {
	if ev.Engine >= 0 && int(ev.Engine) < len(c.engines) {
		e := &c.engines[ev.Engine]
		for _, stage := range stages {
			if e.stage == stage && e.loading == ev.Version && e.attempt == ev.Attempt {
				return e
			}
		}
	}
	c.counts.Late++
	return nil
}

// behind reports whether a joining engine may not serve v.
func (c *Checker) behind(v loop.Version) bool { return v < c.lowestServed() || v < c.completed }

func (c *Checker) weightsLoaded(ev loop.Event) {
	e := c.loadNamed(ev, loading)
	switch {
	case e == nil:
	case e.state == serving:
		e.stage = loaded
	case c.behind(ev.Version):
		c.load(ev.Engine, c.newest())
	default:
		c.switchOne(int(ev.Engine))
	}
}

func (c *Checker) weightsSwitched(ev loop.Event) {
	e := c.loadNamed(ev, switching)
	if e == nil {
		return
	}
	if e.state == joining && c.behind(ev.Version) {
		c.load(ev.Engine, c.newest())
		return
	}
	joined := e.state == joining
	e.state, e.stage, e.served, e.failures = serving, idle, ev.Version, 0
	switch {
	case joined && c.target > ev.Version:
		c.load(ev.Engine, c.target)
	case joined && c.alone(ev.Version):
		c.synced(ev.Version)
	case joined && c.target == loop.NoVersion && ev.Version > c.completed:
		v := ev.Version
		if w := c.weights(); c.due(w) {
			v = w
		}
		c.bring(v)
	}
}

func (c *Checker) syncFailed(ev loop.Event) {
	e := c.loadNamed(ev, loading, switching)
	if e == nil {
		return
	}
	e.failures++
	if e.failures >= c.cfg.MaxAttempts {
		c.lose(ev.Engine, loop.ReasonSync)
		return
	}
	if e.stage == switching {
		e.stage = idle
		if c.cfg.ResumeLost {
			for k, s := range c.slots {
				if s.engine == ev.Engine {
					c.ask(k)
				}
			}
		} else {
			c.failRollouts(ev.Engine, loop.ReasonSync)
		}
		e.state, e.served = joining, loop.NoVersion
	}
	c.load(ev.Engine, c.newest())
}

// interruptLost books that every rollout on a lost engine is asked to go on elsewhere, but for
// those that have failed too often.
func (c *Checker) interruptLost(engine int32, why loop.Reason) {
	for i := range c.slots {
		s := c.slots[i]
		if s.engine != engine || !s.taken || s.unwanted {
			continue
		}
		if smp := &c.groups[s.group].samples[s.sample]; smp.failures+1 < c.cfg.MaxAttempts {
			smp.failures++
			c.ask(i)
			continue
		}
		c.unwant(int32(i), why)
		c.failSample(c.groups[s.group], s.sample, why)
	}
}

// failRollouts books that every rollout on an engine has failed. The slots of an
// engine that lives on stay taken until it says that they are free.
func (c *Checker) failRollouts(engine int32, why loop.Reason) {
	for i := range c.slots {
		s := c.slots[i]
		if s.engine != engine || !s.taken {
			continue
		}
		if c.engines[engine].state == gone {
			c.slots[i] = slotModel{engine: engine}
		} else if !s.unwanted {
			c.unwant(int32(i), why)
		}
		if !s.unwanted {
			c.failSample(c.groups[s.group], s.sample, why)
		}
	}
}

func (c *Checker) engineLost(ev loop.Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(c.engines) || c.engines[ev.Engine].state == gone {
		c.counts.Late++
		return
	}
	if c.cfg.ResumeRestart && ev.Reason == loop.ReasonRestart && c.elsewhere(ev.Engine) {
		c.replace(ev.Engine)
		return
	}
	c.lose(ev.Engine, loop.ReasonEngine)
}

// replace books that another process takes the place of the one that had an engine. With the last engine of a cell it is
// told which attempts stand interrupted there.
func (c *Checker) replace(engine int32) {
	e, cell := &c.engines[engine], c.cellOf(engine)
	e.state, e.stage, e.served = gone, idle, loop.NoVersion
	over := c.cellOver(cell)
	for i, s := range c.slots {
		if s.engine != engine && !(over && c.cellOf(s.engine) == cell) {
			continue
		}
		c.slots[i] = slotModel{engine: s.engine}
		if s.taken && !s.unwanted {
			c.stands(s)
		}
	}
	if !over {
		return
	}
	for _, r := range c.backlog {
		g := c.groups[r.group]
		if g == nil || g.samples[r.sample].state != interrupted || c.cellOf(g.samples[r.sample].engine) != cell {
			continue
		}
		c.expect(loop.Action{Kind: loop.InterruptRollout, Engine: engine, Slot: -1, Group: g.id, Sample: r.sample, Attempt: g.samples[r.sample].attempt, StartVersion: g.start, Prompt: g.prompt, Level: g.level})
	}
}

func (c *Checker) lose(engine int32, why loop.Reason) {
	e := &c.engines[engine]
	e.state, e.stage, e.served = gone, idle, loop.NoVersion
	switch {
	case c.cellOver(c.cellOf(engine)):
		c.failCell(c.cellOf(engine), why)
	case c.cfg.ResumeLost:
		c.interruptLost(engine, why)
	default:
		c.failRollouts(engine, why)
	}
}

// cellOver reports whether nothing is left of a cell whose rollouts cannot leave it.
func (c *Checker) cellOver(cell int) bool {
	if !c.cfg.StaysInCell || cell == 0 {
		return false
	}
	for i, e := range c.engines {
		if c.cellOf(int32(i)) == cell && e.state != gone {
			return false
		}
	}
	return true
}

// failCell books that all rollouts of a cell have failed, in slots and interrupted.
func (c *Checker) failCell(cell int, why loop.Reason) {
	for i := range c.engines {
		if c.cellOf(int32(i)) == cell {
			c.failRollouts(int32(i), why)
		}
	}
	c.failWaiting(cell, why)
}

// failWaiting books that what stands interrupted in a cell has failed.
func (c *Checker) failWaiting(cell int, why loop.Reason) {
	for _, r := range slices.Clone(c.backlog) {
		g := c.groups[r.group]
		if g == nil || g.samples[r.sample].state != interrupted || c.cellOf(g.samples[r.sample].engine) != cell {
			continue
		}
		c.backlog = slices.DeleteFunc(c.backlog, func(o retryModel) bool { return o == r })
		c.failSample(g, r.sample, why)
	}
}

func (c *Checker) cellOf(engine int32) int {
	if len(c.cfg.EngineCells) == 0 {
		return 0
	}
	return c.cfg.EngineCells[engine]
}

func (c *Checker) engineJoined(ev loop.Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(c.engines) || c.engines[ev.Engine].state != gone {
		c.counts.Late++
		return
	}
	if !c.welcome(ev) {
		return
	}
	c.join(ev.Engine, c.newest())
}
