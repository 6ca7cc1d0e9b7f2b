package looptest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Checker follows a loop from outside. After every step it recomputes stamps,
// queue, versions and ledger from its own books and compares. The zero value is
// not usable; see NewChecker.
type Checker struct {
	cfg   loop.Config
	steps int
	now   int64

	started  bool
	stopping bool
	finished bool
	// settling: starts wait for the other events of this instant.
	settling bool

	version   loop.Version
	target    loop.Version
	completed loop.Version
	engines   []engineBook
	slots     []slotBook

	groups    map[loop.GroupID]*groupBook
	over      map[loop.GroupID]loop.End
	lastGroup loop.GroupID
	lastLease loop.LeaseID
	readied   int
	queue     []loop.GroupID
	held      []loop.GroupID
	retries   []retryBook
	lease     leaseBook

	admitted int64
	ends     map[loop.End]int64
	counts   loop.Counts

	// want are the decisions that must be among the actions of this step, starts aside.
	want []loop.Action
}

type slotBook struct {
	engine int32
	// taken: the slot holds attempt of sample of group; unwanted: that attempt has ended already.
	taken    bool
	unwanted bool
	group    loop.GroupID
	sample   int32
	attempt  int32
}

// retryBook is a rollout that waits to be tried again; the first to fail is the first to be.
type retryBook struct {
	group  loop.GroupID
	sample int32
}

type leaseBook struct {
	id       loop.LeaseID
	attempt  int32
	failures int
	version  loop.Version
	groups   []loop.GroupID
}

type sampleState int

const (
	unissued sampleState = iota
	running
	retrying
	scored
	lost
)

type sampleBook struct {
	state    sampleState
	attempt  int32
	failures int
	slot     int32
	reward   float32
}

type place int

const (
	generating place = iota
	inHeld
	inQueue
	inLease
)

type groupBook struct {
	id       loop.GroupID
	place    place
	samples  []sampleBook
	start    loop.Version
	ready    loop.Version
	turn     int
	token    bool
	rejected bool
}

// NewChecker returns a checker for a loop made with the same config that has
// seen no event yet. The config must be valid.
func NewChecker(cfg loop.Config) *Checker {
	cfg = cfg.WithDefaults()
	c := &Checker{
		cfg: cfg, target: loop.NoVersion,
		groups: map[loop.GroupID]*groupBook{}, over: map[loop.GroupID]loop.End{}, ends: map[loop.End]int64{},
	}
	for i, n := range cfg.EngineSlots {
		c.engines = append(c.engines, engineBook{served: loop.NoVersion, loading: loop.NoVersion})
		for range n {
			c.slots = append(c.slots, slotBook{engine: int32(i)})
		}
	}
	return c
}

// Observe takes one step of the loop: the event it was given, the actions and
// the next Tick it returned. The error names the first thing that is wrong;
// after an error the checker is of no more use.
func (c *Checker) Observe(ev loop.Event, actions []loop.Action, tick int64) error {
	c.steps++
	err := c.observe(ev, actions, tick)
	if err != nil {
		return fmt.Errorf("step %d, %v: %w", c.steps, ev, err)
	}
	return nil
}

func (c *Checker) observe(ev loop.Event, actions []loop.Action, tick int64) error {
	if ev.Time < c.now {
		c.counts.TimeReversed++
	}
	c.now = max(c.now, ev.Time)
	c.want = c.want[:0]
	asleep := c.finished || !c.started
	if asleep && ev.Kind != loop.RunStarted && ev.Kind != loop.Recovered {
		c.counts.Late++
		return c.quiet(actions, tick)
	}
	c.settling = c.apply(ev)
	c.settleSync()
	if err := c.compareWanted(actions); err != nil {
		return err
	}
	if err := c.starts(actions); err != nil {
		return err
	}
	if err := c.batches(actions); err != nil {
		return err
	}
	if err := c.idleWork(); err != nil {
		return err
	}
	if err := c.invariants(); err != nil {
		return err
	}
	return c.checkTick(tick)
}

func (c *Checker) quiet(actions []loop.Action, tick int64) error {
	if len(actions) > 0 {
		return fmt.Errorf("the loop acted though it does not run: %v", actions[0])
	}
	if tick != loop.NoTick {
		return fmt.Errorf("the loop wants a tick though it does not run")
	}
	return nil
}

func (c *Checker) checkTick(tick int64) error {
	want := loop.NoTick
	if c.settling && !c.finished {
		want = c.now
	}
	if tick != want {
		return fmt.Errorf("next tick is %d, want %d", tick, want)
	}
	return nil
}

// compareWanted compares all actions but starts with what must follow from the
// event. Order counts within a kind where it means something: the order in which
// groups are queued, leased and trained.
func (c *Checker) compareWanted(actions []loop.Action) error {
	got := slices.DeleteFunc(slices.Clone(actions), func(a loop.Action) bool { return a.Kind == loop.StartRollout })
	want := slices.Clone(c.want)
	arrange(got)
	arrange(want)
	if slices.Equal(got, want) {
		return nil
	}
	var errs []error
	for _, a := range want {
		if count(want, a) > count(got, a) {
			errs = append(errs, fmt.Errorf("missing action: %v %+v", a, fields(a)))
		}
	}
	for _, a := range got {
		if count(got, a) > count(want, a) {
			errs = append(errs, fmt.Errorf("unexpected action: %v %+v", a, fields(a)))
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("actions out of order: %v, want %v", got, want)
	}
	return errors.Join(errs...)
}

// fields prints every field of an action instead of its line.
type fields loop.Action

func count(actions []loop.Action, a loop.Action) int {
	n := 0
	for _, b := range actions {
		if a == b {
			n++
		}
	}
	return n
}

// arrange sorts actions by kind and, where the order has no meaning, by subject.
func arrange(actions []loop.Action) {
	slices.SortStableFunc(actions, func(a, b loop.Action) int {
		if a.Kind != b.Kind {
			return int(a.Kind) - int(b.Kind)
		}
		switch a.Kind {
		case loop.AbortRollout:
			return int(a.Slot) - int(b.Slot)
		case loop.LoadWeights, loop.SwitchWeights:
			return int(a.Engine) - int(b.Engine)
		case loop.GroupEnded:
			return int(a.Group) - int(b.Group)
		}
		return 0
	})
}

// batches checks that every train step is announced by the names of its groups.
func (c *Checker) batches(actions []loop.Action) error {
	named := 0
	for _, a := range actions {
		switch a.Kind {
		case loop.GroupLeased:
			named++
		case loop.StartTrainStep:
			if named != int(a.Count) || named != c.cfg.BatchGroups {
				return fmt.Errorf("%v follows the names of %d groups, want %d", a, named, c.cfg.BatchGroups)
			}
			named = 0
		default:
			if named > 0 {
				return fmt.Errorf("%v stands between the names of a batch and its train step", a)
			}
		}
	}
	if named > 0 {
		return fmt.Errorf("%d groups were leased without a train step", named)
	}
	return nil
}

// starts checks every start against what is free, owed and admitted, and books it.
func (c *Checker) starts(actions []loop.Action) error {
	for _, a := range actions {
		if a.Kind != loop.StartRollout {
			continue
		}
		if c.settling || c.stopping || c.finished {
			return fmt.Errorf("%v, though nothing may start now", a)
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
	if c.slots[a.Slot].taken {
		return fmt.Errorf("%v: the slot holds g%d/%d", a, c.slots[a.Slot].group, c.slots[a.Slot].sample)
	}
	if e := &c.engines[a.Engine]; !c.takesRollouts(e) || e.served != a.Version {
		return fmt.Errorf("%v: the engine serves v%d, takes rollouts: %t", a, e.served, c.takesRollouts(e))
	}
	return nil
}

// startSubject checks who starts: first what must be tried again, then the rest
// of the open group, then a new group if admission permits.
func (c *Checker) startSubject(a loop.Action) error {
	extra := a
	extra.Kind, extra.Engine, extra.Slot, extra.Sample, extra.Attempt, extra.Group, extra.Version, extra.StartVersion = 0, 0, 0, 0, 0, 0, 0, 0
	if extra != (loop.Action{}) {
		return fmt.Errorf("%v carries fields that are not a start's: %+v", a, fields(extra))
	}
	if len(c.retries) > 0 {
		first := c.retries[0]
		if a.Group != first.group || a.Sample != first.sample {
			return fmt.Errorf("%v, while g%d/%d waits to be tried again", a, first.group, first.sample)
		}
		if want := c.groups[a.Group].samples[a.Sample].attempt + 1; a.Attempt != want {
			return fmt.Errorf("%v is not attempt %d", a, want)
		}
		return nil
	}
	if a.Attempt != 1 {
		return fmt.Errorf("%v: the first attempt is 1", a)
	}
	if g := c.open(); g != nil {
		next := slices.IndexFunc(g.samples, func(s sampleBook) bool { return s.state == unissued })
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
	return nil
}

func (c *Checker) bookStart(a loop.Action) {
	g := c.groups[a.Group]
	if g == nil {
		g = &groupBook{id: a.Group, samples: make([]sampleBook, c.cfg.GroupSize), start: loop.NoVersion, ready: loop.NoVersion}
		c.groups[a.Group] = g
		c.lastGroup = a.Group
	}
	if g.start == loop.NoVersion || a.Version < g.start {
		g.start = a.Version
	}
	if len(c.retries) > 0 {
		c.retries = c.retries[1:]
	}
	s := &g.samples[a.Sample]
	s.state, s.attempt, s.slot = running, a.Attempt, a.Slot
	c.slots[a.Slot] = slotBook{engine: a.Engine, taken: true, group: a.Group, sample: a.Sample, attempt: a.Attempt}
	c.admitted++
}

// open returns the group whose rollouts are being issued, if any.
func (c *Checker) open() *groupBook {
	for _, g := range c.groups {
		for _, s := range g.samples {
			if s.state == unissued {
				return g
			}
		}
	}
	return nil
}

// closed says why no new group may be opened, empty if one may.
func (c *Checker) closed() string {
	switch c.cfg.Policy {
	case loop.PolicyBlock:
		if len(c.queue) >= c.cfg.QueueGroups || len(c.held) > 0 {
			return fmt.Sprintf("the queue is full (%d groups, %d held)", len(c.queue), len(c.held))
		}
	case loop.PolicySynchronous:
		if len(c.groups) >= c.cfg.BatchGroups {
			return "the batch of this version is open already"
		}
		for _, e := range c.engines {
			if e.state == serving && e.served != c.version {
				return fmt.Sprintf("an engine serves v%d, not v%d", e.served, c.version)
			}
		}
	}
	if free := c.room(); c.cfg.Start == loop.StartGang && free < c.cfg.GroupSize {
		return fmt.Sprintf("%d slots are free for a group of %d", free, c.cfg.GroupSize)
	}
	return ""
}

// room counts the slots that could take a rollout now.
func (c *Checker) room() int {
	n := 0
	for _, s := range c.slots {
		if !s.taken && c.takesRollouts(&c.engines[s.engine]) {
			n++
		}
	}
	return n
}

// idleWork reports work that waits though there is room and leave for it.
func (c *Checker) idleWork() error {
	if c.settling || c.stopping || c.finished || c.room() == 0 {
		return nil
	}
	switch {
	case len(c.retries) > 0:
		return fmt.Errorf("%d rollouts wait to be tried again, and %d slots are free", len(c.retries), c.room())
	case c.open() != nil:
		return fmt.Errorf("g%d waits for its remaining rollouts, and %d slots are free", c.open().id, c.room())
	case c.closed() == "":
		return fmt.Errorf("%d slots are free and a group may be opened", c.room())
	}
	return nil
}
