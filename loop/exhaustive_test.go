package loop_test

import (
	"os"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// explorer enumerates every order in which the effects of two groups and two
// versions can end. Rollouts of later groups never end by themselves, so that the tree is finite.
type explorer struct {
	t      *testing.T
	cfg    loop.Config
	orders int
	steps  int
	path   []loop.Event
}

// world is a loop with its checker and what is under way.
type world struct {
	loop    *loop.Loop
	checker *looptest.Checker
	effects []loop.Action
	lost    []int32
	asked   bool // the trainer has, since its last step began
	done    bool
}

// replay brings a new loop to the end of the path.
func (x *explorer) replay() *world {
	l, err := loop.New(x.cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	w := &world{loop: l, checker: looptest.NewChecker(x.cfg)}
	x.deliver(w, loop.Event{Kind: loop.RunStarted})
	for _, ev := range x.path {
		x.deliver(w, ev)
	}
	return w
}

func (x *explorer) deliver(w *world, ev loop.Event) {
	x.steps++
	actions, tick := w.loop.Step(ev)
	if err := w.checker.Observe(ev, actions, tick); err != nil {
		x.t.Fatalf("after %v: %v", x.path, err)
	}
	keep := w.effects[:0]
	for _, a := range w.effects {
		if !ends(ev, a) {
			keep = append(keep, a)
		}
	}
	w.effects = keep
	switch ev.Kind {
	case loop.EngineLost:
		w.lost = append(w.lost, ev.Engine)
	case loop.EngineJoined:
		w.lost = slices.DeleteFunc(w.lost, func(e int32) bool { return e == ev.Engine })
	case loop.Recovered:
		w.lost, w.asked = nil, false
	case loop.TrainerReady:
		w.asked = true
	}
	for _, a := range actions {
		if a.Kind == loop.StartTrainStep {
			w.asked = false
		}
		if a.Kind == loop.FinishRun {
			w.done = true
		} else if a.Kind.IsEffect() && a.Slot >= 0 { // nobody ends what stood interrupted
			w.effects = append(w.effects, a)
		}
	}
	if tick != loop.NoTick {
		x.deliver(w, loop.Event{Time: tick, Kind: loop.Tick})
	}
}

// ends reports whether the event ends the effect.
func ends(ev loop.Event, a loop.Action) bool {
	switch {
	case ev.Kind == loop.Recovered:
		return true
	case ev.Kind == loop.TrainerRestored:
		return a.Kind == loop.StartTrainStep
	case ev.Kind == loop.EngineLost:
		return a.Kind != loop.StartTrainStep && a.Engine == ev.Engine
	case a.Kind == loop.StartTrainStep:
		return ev.Kind >= loop.TrainStepEnded && ev.Kind <= loop.LeaseReturned
	case a.Kind == loop.LoadWeights, a.Kind == loop.SwitchWeights:
		return ev.Kind >= loop.WeightsLoaded && ev.Kind <= loop.SyncFailed && ev.Engine == a.Engine
	}
	return ev.Kind >= loop.RolloutScored && ev.Slot == a.Slot
}

// endings returns the events that can end an effect, the good one first.
func endings(a loop.Action) []loop.Event {
	ev := loop.Event{Engine: a.Engine, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Lease: a.Lease, Version: a.Version}
	as := func(kinds ...loop.EventKind) []loop.Event {
		var found []loop.Event
		for _, k := range kinds {
			e := ev
			e.Kind = k
			if k == loop.TrainStepEnded {
				e.Version++
			}
			if k == loop.RolloutScored {
				e.Reward = float32(a.Sample)
			}
			found = append(found, e)
		}
		return found
	}
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		return as(loop.RolloutScored, loop.RolloutFailed)
	case loop.InterruptRollout:
		return as(loop.RolloutInterrupted)
	case loop.AbortRollout:
		return as(loop.RolloutAborted)
	case loop.StartTrainStep:
		return as(loop.TrainStepEnded, loop.TrainStepFailed, loop.LeaseReturned)
	case loop.LoadWeights:
		return as(loop.WeightsLoaded, loop.SyncFailed)
	case loop.SwitchWeights:
		return as(loop.WeightsSwitched, loop.SyncFailed)
	}
	return nil
}

// option is one thing that can happen next, and how many faults may after it.
type option struct {
	ev     loop.Event
	faults int
}

// explore goes through everything that can happen next to a world at the end of
// the path. The last possibility is given that world, the others one of their own.
func (x *explorer) explore(w *world, faults int) {
	if w.done {
		x.orders++
		return
	}
	if len(x.path) > 60 {
		x.t.Fatalf("no end after %v", x.path)
	}
	next := x.next(w, faults)
	if len(next) == 0 {
		x.t.Fatalf("deadlock after %v: %s", x.path, w.checker.Blocker())
	}
	for i, o := range next {
		to := w
		if i < len(next)-1 {
			to = x.replay()
		}
		o.ev.Time = int64(len(x.path) + 1)
		x.path = append(x.path, o.ev)
		x.deliver(to, o.ev)
		x.explore(to, o.faults)
		x.path = x.path[:len(x.path)-1]
	}
}

// next returns every end of what is under way, and every fault that is left.
func (x *explorer) next(w *world, faults int) []option {
	var next []option
	for _, e := range w.lost {
		next = append(next, option{loop.Event{Kind: loop.EngineJoined, Engine: e}, faults})
	}
	if x.cfg.TrainerAsks && !w.asked {
		next = append(next, option{loop.Event{Kind: loop.TrainerReady}, faults})
	}
	for _, a := range w.effects {
		if (a.Kind == loop.StartRollout || a.Kind == loop.ResumeRollout) && a.Group > x.last() {
			continue
		}
		for i, ev := range endings(a) {
			if i == 0 {
				next = append(next, option{ev, faults})
			} else if faults > 0 {
				next = append(next, option{ev, faults - 1})
			}
		}
	}
	if faults == 0 || len(next) == 0 {
		return next
	}
	next = append(next, option{loop.Event{Kind: loop.Recovered}, faults - 1},
		option{loop.Event{Kind: loop.TrainerRestored, Version: w.checker.Version() + 1}, faults - 1})
	for e := range x.cfg.EngineSlots {
		next = append(next, option{loop.Event{Kind: loop.EngineLost, Engine: int32(e)}, faults - 1})
	}
	return next
}

// last is the last group whose rollouts end: the second that can be trained on.
func (x *explorer) last() loop.GroupID {
	return loop.GroupID(2 + 2*x.cfg.ExtraGroups) // each version ends with its surplus
}

// TestInterleavings enumerates, for two groups and two versions, all orders of
// rollout ends, train step ends and sync ends, and with one fault anywhere (two,
// in some cases, with HEADWAY_LONG). Each order must satisfy the checker after every step and
// end with two versions. With -v it prints how many orders there are.
func TestInterleavings(t *testing.T) {
	cases := []struct {
		name   string
		faults int
		long   int // faults with HEADWAY_LONG
		change func(*loop.Config)
	}{
		{"drop", 0, 0, func(c *loop.Config) {}},
		{"drop rolling, two engines", 0, 0, func(c *loop.Config) { c.EngineSlots, c.RollingSwitch = []int{2, 2}, true }},
		{"drop, two engines", 0, 0, func(c *loop.Config) { c.EngineSlots = []int{2, 2} }},
		{"cache aware, two engines", 0, 0, func(c *loop.Config) { c.Placement, c.EngineSlots = loop.PlaceCacheAware, []int{2, 2} }},
		{"cache aware, bounded, two engines", 0, 0, func(c *loop.Config) {
			c.Placement, c.Policy, c.EngineSlots, c.InterruptAtBatch = loop.PlaceCacheAware, loop.PolicyBounded, []int{1, 2}, true
		}},
		{"cache aware, faults", 0, 1, func(c *loop.Config) { c.Placement, c.EngineSlots = loop.PlaceCacheAware, []int{1, 1} }},
		{"drain rolling, two engines", 0, 0, func(c *loop.Config) {
			c.EngineSlots, c.RollingSwitch, c.Sync = []int{2, 2}, true, loop.SyncDrain
		}},
		{"pause gang blocked", 0, 0, func(c *loop.Config) { c.Sync, c.Start, c.TrainerBlocked = loop.SyncPause, loop.StartGang, true }},
		{"max abort", 0, 0, func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 1, true }},
		{"block newest", 0, 0, func(c *loop.Config) { c.Policy, c.QueueGroups, c.Select = loop.PolicyBlock, 1, loop.SelectNewest }},
		{"synchronous, two engines", 0, 0, func(c *loop.Config) {
			c.Policy, c.QueueGroups, c.EngineSlots = loop.PolicySynchronous, 1, []int{2, 2}
		}},
		{"restart", 0, 0, func(c *loop.Config) { c.Sync, c.GroupSize = loop.SyncRestart, 1 }},
		{"restart, two engines", 0, 0, func(c *loop.Config) {
			c.EngineSlots, c.GroupSize, c.Sync, c.MaxSpans = []int{1, 1}, 1, loop.SyncRestart, 1
		}},
		{"restart rolling, two engines", 0, 0, func(c *loop.Config) {
			c.EngineSlots, c.GroupSize, c.Sync, c.RollingSwitch = []int{1, 2}, 1, loop.SyncRestart, true
		}},
		{"bounded, interrupts at a batch", 0, 0, func(c *loop.Config) {
			c.Policy, c.Eta, c.EngineSlots, c.InterruptAtBatch = loop.PolicyBounded, 1, []int{3}, true
		}},
		{"threshold, restart", 0, 0, func(c *loop.Config) {
			c.Policy, c.StalenessThreshold, c.EngineSlots, c.Sync = loop.PolicyThreshold, 1, []int{3}, loop.SyncRestart
		}},
		{"replay", 0, 0, func(c *loop.Config) { c.Policy, c.MaxUses, c.EngineSlots = loop.PolicyReplay, 2, []int{3} }},
		{"redundancy", 0, 0, func(c *loop.Config) { c.Redundancy, c.EngineSlots = 1, []int{3} }},
		{"synchronous, extra group", 0, 0, func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.EngineSlots = loop.PolicySynchronous, 1, []int{3}
		}},
		{"synchronous, extra group interrupted", 0, 0, func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.EngineSlots, c.InterruptAtBatch = loop.PolicySynchronous, 1, []int{2}, true
		}},
		{"restart, faults", 1, 2, func(c *loop.Config) {
			c.GroupSize, c.EngineSlots, c.Sync = 1, []int{2}, loop.SyncRestart
		}},
		{"restart rolling, faults", 0, 1, func(c *loop.Config) {
			c.GroupSize, c.EngineSlots, c.Sync, c.RollingSwitch = 1, []int{1, 1}, loop.SyncRestart, true
		}},
		{"drop, faults", 1, 1, func(c *loop.Config) { c.GroupSize, c.EngineSlots = 1, []int{1, 1} }},
		{"drain rolling, faults", 1, 2, func(c *loop.Config) {
			c.GroupSize, c.EngineSlots, c.Sync, c.RollingSwitch = 1, []int{1, 1}, loop.SyncDrain, true
		}},
		{"block, blocked trainer, faults", 1, 1, func(c *loop.Config) {
			c.Policy, c.GroupSize, c.EngineSlots, c.TrainerBlocked = loop.PolicyBlock, 1, []int{1, 1}, true
		}},
		{"trainer that asks", 0, 0, func(c *loop.Config) { c.TrainerAsks, c.GroupSize, c.EngineSlots = true, 1, []int{2} }},
		{"trainer that asks, faults", 1, 2, func(c *loop.Config) {
			c.TrainerAsks, c.GroupSize, c.EngineSlots = true, 1, []int{1}
		}},
		{"synchronous, faults", 1, 2, func(c *loop.Config) {
			c.Policy, c.QueueGroups, c.GroupSize, c.EngineSlots = loop.PolicySynchronous, 1, 1, []int{1, 1}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := &explorer{t: t, cfg: loop.Config{GroupSize: 2, BatchGroups: 1, QueueGroups: 2, EngineSlots: []int{4}, TrainSteps: 2}}
			c.change(&x.cfg)
			faults := c.faults
			if os.Getenv("HEADWAY_LONG") != "" {
				faults = max(c.faults, c.long)
			}
			x.explore(x.replay(), faults)
			if x.orders < 10 {
				t.Errorf("only %d orders, the tree is too small to mean anything", x.orders)
			}
			t.Logf("%d orders, %d steps", x.orders, x.steps)
		})
	}
}
