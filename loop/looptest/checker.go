package looptest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Checker follows a loop from outside. After every step it recomputes stamps,
// queue, versions and ledger from its own models and compares. The zero value is
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
	restored  loop.Version // the newest that no batch made, 0 for none
	engines   []engineModel
	slots     []slotModel

	groups    map[loop.GroupID]*groupModel
	over      map[loop.GroupID]loop.End
	lastGroup loop.GroupID
	lastLease loop.LeaseID
	readied   int
	queue     []loop.GroupID
	held      []loop.GroupID
	// backlog are the interrupted rollouts, the first to be resumed first.
	backlog []retryModel
	retries []retryModel
	lease   leaseModel
	// asked: the trainer has asked for a batch since its last step began.
	asked bool
	// taken counts the groups leased since the last completed sync, as the threshold does.
	taken int

	prompts promptModel
	levels  []levelModel
	draws   uint64
	// freshFrom is the turn of the first group to become ready after the last selection, arrivals
	// counts those that came to the queue since.
	freshFrom int
	arrivals  int
	slope     slopeModel
	gamma     [64]uint64
	hold      holdModel
	control   controlModel

	admitted int64
	ends     map[loop.End]int64
	counts   loop.Counts

	// want are the decisions that must be among the actions of this step, starts and resumptions aside.
	want []loop.Action
}

type slotModel struct {
	engine int32
	// taken: the slot holds attempt of sample of group; unwanted: that attempt has ended already;
	// asked: the engine has been told to interrupt it.
	taken    bool
	unwanted bool
	asked    bool
	group    loop.GroupID
	sample   int32
	attempt  int32
}

// retryModel is a rollout that waits to be tried again, or to be resumed.
type retryModel struct {
	group  loop.GroupID
	sample int32
}

type leaseModel struct {
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
	interrupted
	retrying
	scored
	// lost by failure, pruned by a verdict, or cut because enough siblings were scored.
	lost
	pruned
	cut
)

type sampleModel struct {
	state    sampleState
	attempt  int32
	failures int
	spans    int
	tokens   int32 // when it was interrupted last
	slot     int32
	engine   int32 // of its latest attempt
	reward   float32
	solved   bool
}

type place int

const (
	generating place = iota
	inHeld
	inQueue
	inLease
)

type groupModel struct {
	id       loop.GroupID
	place    place
	samples  []sampleModel
	start    loop.Version
	ready    loop.Version
	turn     int
	token    bool
	rejected bool
	home     int32 // the engine at which the latest of its samples to be issued started
	prompt   int64
	level    int32
	uses     int
	drift    driftModel
	// tokens of its scored responses by version, where the goal counts them.
	tokens map[loop.Version]int64
}

// NewChecker returns a checker for a loop made with the same config that has
// seen no event yet. The config must be valid.
func NewChecker(cfg loop.Config) *Checker {
	cfg = cfg.WithDefaults()
	c := &Checker{
		cfg: cfg, target: loop.NoVersion,
		groups: map[loop.GroupID]*groupModel{}, over: map[loop.GroupID]loop.End{}, ends: map[loop.End]int64{},
	}
	c.levels = make([]levelModel, cfg.Levels)
	c.gamma = weights(cfg.Gamma)
	c.hold = newHold()
	c.control = newControl(cfg)
	if cfg.HoldAdaptive {
		c.cfg.Hold, c.hold.cost.most = 0, cfg.Hold
	}
	for i, n := range cfg.EngineSlots {
		c.engines = append(c.engines, engineModel{served: loop.NoVersion, loading: loop.NoVersion})
		for range n {
			c.slots = append(c.slots, slotModel{engine: int32(i)})
		}
		if i >= c.control.engines {
			c.engines[i].state, c.engines[i].pool = gone, pooled
		}
		if c.elsewhere(int32(i)) {
			c.engines[i].state = gone
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
	c.payHold(ev.Time)
	c.now = max(c.now, ev.Time)
	c.want = c.want[:0]
	asleep := c.finished || !c.started
	if asleep && ev.Kind != loop.RunStarted && ev.Kind != loop.Recovered {
		c.counts.Late++
		return c.quiet(actions, tick)
	}
	c.settling = c.apply(ev)
	c.settleSync() // nothing of this depends on where the settings go now
	if err := c.moves(ev, actions); err != nil {
		return err
	}
	c.settleSync()
	c.depart()
	c.settleSync()
	if err := c.silence(actions); err != nil {
		return err
	}
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
	if !c.finished {
		if end := c.holdTick(); end != never {
			want = end
		}
		want = min(want, c.alarm())
		if c.settling {
			want = c.now
		}
	}
	if tick != want {
		return fmt.Errorf("next tick is %d, want %d", tick, want)
	}
	return nil
}

// compareWanted compares all actions but starts and resumptions with what must follow from the
// event. Order counts within a kind where it means something: the order in which
// groups are queued, leased and trained.
func (c *Checker) compareWanted(actions []loop.Action) error {
	got := slices.DeleteFunc(slices.Clone(actions), func(a loop.Action) bool { return places(a.Kind) || steers(a.Kind) })
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
			return int(a.Group) - int(b.Group) // of one group in the order of its samples
		case loop.LoadWeights, loop.SwitchWeights, loop.AcquireEngine, loop.ReleaseEngine:
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
