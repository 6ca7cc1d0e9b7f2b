package looptest

import (
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// places reports whether an action of this kind gives a slot to a rollout.
func places(k loop.ActionKind) bool { return k == loop.StartRollout || k == loop.ResumeRollout }

// starts checks every start and resumption against what is free, owed and
// admitted, and books it.
func (c *Checker) starts(actions []loop.Action) error {
	for _, a := range actions {
		if !places(a.Kind) {
			continue
		}
		if c.settling || c.stopping || c.finished {
			return fmt.Errorf("%v, though nothing may start now", a)
		}
		if why := c.paused(); why != "" {
			return fmt.Errorf("%v, though %s", a, why)
		}
		if err := c.startPlace(a); err != nil {
			return err
		}
		if err := c.startSubject(a); err != nil {
			return err
		}
		c.bookStart(a)
		if g := c.groups[a.Group]; a.StartVersion != g.start {
			return fmt.Errorf("%v stamps its group v%d, want v%d", a, a.StartVersion, g.start)
		}
	}
	return nil
}

func (c *Checker) startPlace(a loop.Action) error {
	if a.Slot < 0 || int(a.Slot) >= len(c.slots) || c.slots[a.Slot].engine != a.Engine {
		return fmt.Errorf("%v: engine %d has no slot %d", a, a.Engine, a.Slot)
	}
	if c.room() == 0 {
		return fmt.Errorf("%v, though no more than %d rollouts may be in flight", a, c.control.slots)
	}
	if c.slots[a.Slot].taken {
		return fmt.Errorf("%v: the slot holds g%d/%d", a, c.slots[a.Slot].group, c.slots[a.Slot].sample)
	}
	if e := &c.engines[a.Engine]; !c.takesRollouts(e) || e.served != a.Version {
		return fmt.Errorf("%v: the engine serves v%d, takes rollouts: %t", a, e.served, c.takesRollouts(e))
	}
	return nil
}

// startSubject checks who starts: first what was interrupted, then what must be
// tried again, then the rest of the open group, then a new group if admission permits.
func (c *Checker) startSubject(a loop.Action) error {
	extra := a
	extra.Kind, extra.Engine, extra.Slot, extra.Sample, extra.Attempt, extra.Group, extra.Version, extra.StartVersion = 0, 0, 0, 0, 0, 0, 0, 0
	if a.Kind == loop.StartRollout {
		extra.Prompt, extra.Level = 0, 0 // compared with the group's
	}
	if extra != (loop.Action{}) {
		return fmt.Errorf("%v carries fields that are not a start's: %+v", a, fields(extra))
	}
	if c.nextResumed() >= 0 || a.Kind == loop.ResumeRollout {
		return c.resumes(a)
	}
	if err := c.startNext(a); err != nil {
		return err
	}
	if g := c.groups[a.Group]; a.Prompt != g.prompt || a.Level != g.level {
		return fmt.Errorf("%v has prompt %d, level %d, want %d, %d", a, a.Prompt, a.Level, g.prompt, g.level)
	}
	return nil
}

// resumes checks that an action resumes what was interrupted first.
func (c *Checker) resumes(a loop.Action) error {
	next := c.nextResumed()
	if next < 0 {
		return fmt.Errorf("%v, though nothing stands interrupted", a)
	}
	first := c.backlog[next]
	if a.Kind != loop.ResumeRollout || a.Group != first.group || a.Sample != first.sample {
		return fmt.Errorf("%v, while g%d/%d waits to be resumed", a, first.group, first.sample)
	}
	if want := c.groups[a.Group].samples[a.Sample].attempt; a.Attempt != want {
		return fmt.Errorf("%v resumes another attempt than %d", a, want)
	}
	return goesTo(a, c.resumesAt(c.groups[a.Group].samples[a.Sample]))
}

// startNext checks the subject of a rollout's start, and opens its group if it is the first.
func (c *Checker) startNext(a loop.Action) error {
	if len(c.retries) > 0 {
		first := c.retries[0]
		if a.Group != first.group || a.Sample != first.sample {
			return fmt.Errorf("%v, while g%d/%d waits to be tried again", a, first.group, first.sample)
		}
		if want := c.groups[a.Group].samples[a.Sample].attempt + 1; a.Attempt != want {
			return fmt.Errorf("%v is not attempt %d", a, want)
		}
		return goesTo(a, c.emptiest())
	}
	if a.Attempt != 1 {
		return fmt.Errorf("%v: the first attempt is 1", a)
	}
	g, at := c.startsNext()
	if err := goesTo(a, at); err != nil {
		return err
	}
	if g != nil {
		next := slices.IndexFunc(g.samples, func(s sampleModel) bool { return s.state == unissued })
		if a.Group != g.id || int(a.Sample) != next {
			return fmt.Errorf("%v, while g%d/%d is next", a, g.id, next)
		}
		return nil
	}
	if a.Group != c.lastGroup+1 || a.Sample != 0 {
		return fmt.Errorf("%v, while g%d/0 is next", a, c.lastGroup+1)
	}
	if why := c.closed(); why != "" {
		return fmt.Errorf("%v, though %s", a, why)
	}
	if c.holding() {
		return fmt.Errorf("%v, though the loop holds since %d for the next switch of weights", a, c.hold.since)
	}
	c.openGroup(a.Group)
	return nil
}

func (c *Checker) openGroup(id loop.GroupID) {
	g := &groupModel{id: id, samples: make([]sampleModel, c.issuedMost()), start: loop.NoVersion, ready: loop.NoVersion}
	g.prompt, g.level = c.nextPrompt()
	c.groups[id] = g
	c.lastGroup = id
}

// issuedMost is the number of samples a group may issue.
func (c *Checker) issuedMost() int { return c.cfg.GroupSize + c.cfg.Redundancy }

func (c *Checker) bookStart(a loop.Action) {
	g := c.groups[a.Group]
	if g.start == loop.NoVersion || a.Version < g.start {
		g.start = a.Version
	}
	s := &g.samples[a.Sample]
	if a.Kind == loop.ResumeRollout {
		c.backlog = slices.DeleteFunc(c.backlog, func(r retryModel) bool { return r == retryModel{a.Group, a.Sample} })
	} else {
		if len(c.retries) > 0 {
			c.retries = c.retries[1:]
		} else {
			g.home = a.Engine
		}
		c.admitted++
		s.spans, s.tokens = 0, 0
	}
	s.state, s.attempt, s.slot, s.engine = running, a.Attempt, a.Slot, a.Engine
	c.slots[a.Slot] = slotModel{engine: a.Engine, taken: true, group: a.Group, sample: a.Sample, attempt: a.Attempt}
}

// open returns the group whose rollouts are being issued, if any.
func (c *Checker) open() *groupModel {
	for _, g := range c.groups {
		for _, s := range g.samples {
			if s.state == unissued {
				return g
			}
		}
	}
	return nil
}

// paused says why nothing at all may start or be resumed, empty if something may.
func (c *Checker) paused() string {
	switch {
	case !c.cfg.InterruptAtBatch:
	case len(c.queue) >= c.cfg.BatchGroups:
		return fmt.Sprintf("a whole batch is ready (%d groups) and waits", len(c.queue))
	case c.cfg.Policy == loop.PolicySynchronous && c.lease.id != 0:
		return "the batch of this version is at the trainer"
	case c.cfg.Policy == loop.PolicySynchronous:
		return c.unevenFleet()
	}
	return ""
}

// unevenFleet names an engine that serves another version than the trainer's, empty if none does.
func (c *Checker) unevenFleet() string {
	for i, e := range c.engines {
		if e.state == serving && e.served != c.version {
			return fmt.Sprintf("engine %d serves v%d, not v%d", i, e.served, c.version)
		}
	}
	return ""
}

// closed says why no new group may be opened, the hold aside; empty if one may.
func (c *Checker) closed() string {
	if why := c.closedByPolicy(); why != "" {
		return why
	}
	if c.mayAsk() && len(c.queue) == c.cfg.QueueGroups {
		return fmt.Sprintf("the queue is full (%d groups) and the trainer has not asked", len(c.queue))
	}
	if c.cfg.PauseGroups > 0 && len(c.queue) >= c.cfg.PauseGroups {
		return fmt.Sprintf("the queue holds %d groups, and pauses at %d", len(c.queue), c.cfg.PauseGroups)
	}
	if free := c.room(); c.cfg.Start == loop.StartGang && free < c.issuedMost() {
		return fmt.Sprintf("%d slots are free for a group of %d", free, c.issuedMost())
	}
	return ""
}

func (c *Checker) closedByPolicy() string {
	if !math.IsInf(c.control.live, 0) && c.expected()+c.control.passes/2 > float64(c.liveMost()) {
		return fmt.Sprintf("%.2f groups are live and expected to be trained, and %d may be", c.expected(), c.liveMost())
	}
	switch c.cfg.Policy {
	case loop.PolicyBlock:
		if len(c.queue) >= c.cfg.QueueGroups || len(c.held) > 0 {
			return fmt.Sprintf("the queue is full (%d groups, %d held)", len(c.queue), len(c.held))
		}
	case loop.PolicySynchronous:
		switch {
		case c.lease.id != 0:
			return "the batch of this version is at the trainer"
		case len(c.groups) >= c.cfg.BatchGroups+c.cfg.ExtraGroups:
			return "the batch of this version is open already"
		}
		return c.unevenFleet()
	case loop.PolicyBounded:
		// What the engines serve counts: a slow sync must not add to the staleness.
		most := boundedGroups(c.cfg) - int(c.version-c.lowestServed())*c.cfg.BatchGroups
		if len(c.groups) >= most {
			return fmt.Sprintf("%d groups are live, the bound on staleness permits %d", len(c.groups), most)
		}
	case loop.PolicyThreshold:
		if used, most := c.used(), thresholdGroups(c.cfg); used >= most {
			return fmt.Sprintf("%d groups are used up until the next sync, the threshold permits %d", used, most)
		}
	}
	return ""
}

// used counts the groups that the threshold sets against its budget: those live
// outside the trainer, and those handed to it since the last completed sync.
func (c *Checker) used() int { return len(c.groups) - len(c.lease.groups) + c.taken }

// boundedGroups is the number of live groups that PolicyBounded permits.
func boundedGroups(cfg loop.Config) int {
	return int(math.Floor((cfg.Eta+1)*float64(cfg.BatchGroups) + 1e-9))
}

// thresholdGroups is the number of groups that PolicyThreshold permits from one sync to the next.
func thresholdGroups(cfg loop.Config) int {
	return int(math.Floor((1+cfg.StalenessThreshold)*float64(max(cfg.SyncEvery, 1)*cfg.BatchGroups) + 1e-9))
}

// room counts the slots that could take a rollout now.
func (c *Checker) room() int {
	n, taken := 0, 0
	for _, s := range c.slots {
		if s.taken {
			taken++
		} else if c.takesRollouts(&c.engines[s.engine]) {
			n++
		}
	}
	return max(min(n, c.control.slots-taken), 0)
}

// idleWork reports work that waits though there is room and leave for it.
func (c *Checker) idleWork() error {
	if c.settling || c.stopping || c.finished || c.room() == 0 || c.paused() != "" {
		return nil
	}
	switch {
	case c.nextResumed() >= 0:
		return fmt.Errorf("%d rollouts wait to be resumed, and %d slots are free", len(c.backlog), c.room())
	case len(c.retries) > 0:
		return fmt.Errorf("%d rollouts wait to be tried again, and %d slots are free", len(c.retries), c.room())
	case c.open() != nil:
		return fmt.Errorf("g%d waits for its remaining rollouts, and %d slots are free", c.open().id, c.room())
	case c.closed() != "":
		return nil
	}
	if !c.holding() {
		return fmt.Errorf("%d slots are free and a group may be opened", c.room())
	}
	return nil
}
