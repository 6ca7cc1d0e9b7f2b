package looptest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// record returns a run with faults, whose checker was content.
func record(t *testing.T, p Plan, events int) []Record {
	t.Helper()
	w, err := NewWorld(p)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(events); err != nil {
		t.Fatal(err)
	}
	return w.Log
}

// check feeds records to a new checker and returns what it finds.
func check(cfg loop.Config, records []Record) error {
	c := NewChecker(cfg)
	for _, r := range records {
		if err := c.Observe(r.Event, r.Actions, r.Tick); err != nil {
			return err
		}
	}
	return nil
}

// doctor returns the records with the actions of one step replaced.
func doctor(records []Record, step int, actions []loop.Action) []Record {
	doctored := slices.Clone(records)
	doctored[step].Actions = actions
	return doctored
}

// mutationPlans are runs whose every action is doctored: one of each policy.
func mutationPlans() map[string]Plan {
	base := Plan{Seed: 2, RolloutTicks: 20, TrainTicks: 12, SyncTicks: 4, InterruptTicks: 3, Solves: 0.6, Measures: 0.5, Faults: Faults{
		RolloutFails: 0.1, TrainFails: 0.1, LeaseReturns: 0.1, SyncFails: 0.2, EngineLost: 0.02, Restarts: 0.01, Rejects: 0.05,
		Preempts: 0.1, Prunes: 0.05, InterruptRaces: 0.5}}
	with := func(change func(*loop.Config)) Plan {
		p := base
		p.Config = loop.Config{GroupSize: 2, BatchGroups: 2, QueueGroups: 3, EngineSlots: []int{3, 4}, MaxAttempts: 2}
		change(&p.Config)
		return p
	}
	calm := func(p Plan, trainTicks int) Plan { // nothing fails
		p.Faults, p.TrainTicks = Faults{}, trainTicks
		return p
	}
	asks := func(p Plan) Plan { // of a trainer that comes and goes
		p.AskTicks, p.Faults.Restores = 10, 0.03
		return p
	}
	fleet := func(p Plan) Plan { // whose settings move
		p.Faults.Requests = 0.15
		return p
	}
	return map[string]Plan{
		"drop": with(func(c *loop.Config) {}),
		"max":  with(func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 1, true }),
		"block": calm(with(func(c *loop.Config) {
			c.Policy, c.Sync, c.OnFailure, c.QueueGroups = loop.PolicyBlock, loop.SyncDrain, loop.ShrinkGroup, 2
		}), 60), // the queue is full
		"synchronous": with(func(c *loop.Config) {
			c.Policy, c.QueueGroups, c.RollingSwitch = loop.PolicySynchronous, c.BatchGroups, true
		}),
		"newest": with(func(c *loop.Config) { c.Select, c.Start, c.TrainerBlocked = loop.SelectNewest, loop.StartGang, true }),
		"bounded": with(func(c *loop.Config) {
			c.Policy, c.Eta, c.QueueGroups, c.Sync, c.MaxSpans = loop.PolicyBounded, 1, 4, loop.SyncRestart, 2
		}),
		"threshold": with(func(c *loop.Config) {
			c.Policy, c.StalenessThreshold, c.SyncEvery, c.QueueGroups = loop.PolicyThreshold, 0.5, 2, 6
			c.Sync, c.RollingSwitch, c.Redundancy = loop.SyncRestart, true, 1
		}),
		"replay": with(func(c *loop.Config) {
			c.Policy, c.MaxUses, c.Gamma, c.Evict, c.Prompts, c.Balance = loop.PolicyReplay, 2, 0.9, loop.EvictDrift, 3, true
		}),
		"extra": with(func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.QueueGroups, c.Requeue, c.InterruptAtBatch = loop.PolicySynchronous, 1, 3, true, true
		}),
		"resume lost": with(func(c *loop.Config) { c.ResumeLost, c.MaxAttempts = true, 3 }),
		"hold":        calm(with(func(c *loop.Config) { c.Hold = 0.9 }), 12),
		"adaptive hold": calm(with(func(c *loop.Config) {
			c.Hold, c.HoldAdaptive, c.HoldCost, c.QueueGroups, c.Select = 0.9, true, 0.3, 2, loop.SelectFresh
		}), 12),
		"abort": with(func(c *loop.Config) {
			c.Policy, c.MaxStaleness, c.Abort, c.InterruptAtBatch = loop.PolicyMax, 1, true, true
		}),
		"surplus": with(func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.QueueGroups, c.Redundancy = loop.PolicySynchronous, 1, 3, 1
		}),
		"asks": asks(with(func(c *loop.Config) { c.TrainerAsks, c.InterruptAtBatch = true, true })),
		"asks synchronous": asks(with(func(c *loop.Config) {
			c.TrainerAsks, c.Policy, c.QueueGroups = true, loop.PolicySynchronous, 2
		})),
		"fleet": fleet(with(func(c *loop.Config) {
			c.EngineSlots, c.EnginesStart, c.Start = []int{2, 2, 2}, 2, loop.StartStream
			c.Control = &loop.Control{Ranges: [...]loop.Range{loop.SettingLive: {Least: 2, Most: 40}, loop.SettingEngines: {Least: 1, Most: 3}}}
		})),
		"cache aware": with(func(c *loop.Config) {
			c.Placement, c.GroupSize, c.InterruptAtBatch, c.EngineSlots = loop.PlaceCacheAware, 3, true, []int{2, 3, 3}
		}),
		"cache aware gang": with(func(c *loop.Config) {
			c.Placement, c.Start, c.Redundancy = loop.PlaceCacheAware, loop.StartGang, 1
		}),
		"curriculum": with(func(c *loop.Config) {
			c.PauseGroups, c.Levels, c.Explore, c.FilterZeroAdvantage = 3, 3, 0.3, true
			c.SolveLow, c.SolveHigh, c.FilterSolveRate, c.Requeue = 0.2, 0.9, true, true
		}),
	}
}

// TestCheckerRejectsEveryDoctoredAction changes every field of every action of
// recorded runs by one, drops every action and doubles every action. The checker
// must reject each of these runs.
func TestCheckerRejectsEveryDoctoredAction(t *testing.T) {
	all, backlog, holds := map[loop.ActionKind]bool{}, 0, 0
	for name, plan := range mutationPlans() {
		t.Run(name, func(t *testing.T) {
			records := record(t, plan, 300)
			cfg := plan.Config
			kinds := map[loop.ActionKind]bool{}
			tried := 0
			for i, r := range records[:120] {
				if r.Tick != loop.NoTick && r.Tick > r.Event.Time {
					holds++
				}
				for k, a := range r.Actions {
					kinds[a.Kind], all[a.Kind] = true, true
					if a.Slot < 0 {
						backlog++
					}
					for _, m := range mutations(r.Actions, k) {
						if places(a.Kind) && m.what == "change of Slot" && !answered(records[i+1:], a) {
							continue // a free slot of the same engine is as good, as long as nothing names it
						}
						tried++
						// A moved slot is legal until the rollout ends, so the rest of the run is fed, too.
						if err := check(cfg, doctor(records, i, m.actions)); err == nil {
							t.Errorf("not rejected: %s of %v at %v", m.what, a, r.Event)
						}
					}
				}
			}
			if len(kinds) < 8 || tried < 1000 {
				t.Errorf("only %d kinds of actions and %d mutations, the run is too tame", len(kinds), tried)
			}
			t.Logf("%d mutations of %d kinds of actions rejected", tried, len(kinds))
		})
	}
	for k := loop.StartRollout; k <= loop.SettingChanged; k++ {
		if !all[k] && k != loop.FinishRun {
			t.Errorf("no run has a %v to be doctored", k)
		}
	}
	if backlog == 0 || holds == 0 {
		t.Errorf("%d interrupted rollouts were aborted and %d steps held, the runs are too tame", backlog, holds)
	}
}

// answered reports whether an event ends the rollout that an action started.
func answered(records []Record, a loop.Action) bool {
	return slices.ContainsFunc(records, func(r Record) bool {
		ev := r.Event
		return ev.Kind >= loop.RolloutScored && ev.Slot == a.Slot && ev.Group == a.Group && ev.Sample == a.Sample && ev.Attempt == a.Attempt
	})
}

type mutation struct {
	what    string
	actions []loop.Action
}

// mutations returns what can be done to action k of a step.
func mutations(actions []loop.Action, k int) []mutation {
	found := []mutation{
		{"loss", slices.Delete(slices.Clone(actions), k, k+1)},
		{"doubling", slices.Insert(slices.Clone(actions), k, actions[k])},
	}
	fields := reflect.TypeFor[loop.Action]()
	for f := range fields.NumField() {
		changed := slices.Clone(actions)
		v := reflect.ValueOf(&changed[k]).Elem().Field(f)
		switch {
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.CanFloat():
			v.SetFloat(v.Float() + 1)
		default:
			v.SetUint(v.Uint() + 1)
		}
		found = append(found, mutation{"change of " + fields.Field(f).Name, changed})
	}
	return found
}

// TestCheckerRejectsLies feeds the checker decisions that a broken loop might
// take, each against one rule, and requires the words of that rule.
func TestCheckerRejectsLies(t *testing.T) {
	base := loop.Config{GroupSize: 1, BatchGroups: 1, QueueGroups: 2, EngineSlots: []int{4}}
	start := func(g loop.GroupID, slot int32) loop.Action {
		return loop.Action{Kind: loop.StartRollout, Slot: slot, Group: g, Attempt: 1}
	}
	queued := func(g loop.GroupID) loop.Action { return loop.Action{Kind: loop.GroupQueued, Group: g, Count: 1} }
	leased := func(g loop.GroupID, lease loop.LeaseID, v loop.Version) loop.Action {
		return loop.Action{Kind: loop.GroupLeased, Group: g, Count: 1, Lease: lease, Attempt: 1, Version: v}
	}
	step := func(lease loop.LeaseID, v loop.Version) loop.Action {
		return loop.Action{Kind: loop.StartTrainStep, Lease: lease, Attempt: 1, Count: 1, Version: v}
	}
	scored := func(g loop.GroupID, slot int32) loop.Event {
		return loop.Event{Kind: loop.RolloutScored, Slot: slot, Group: g, Attempt: 1, Reward: 1}
	}
	begin := Record{loop.Event{Kind: loop.RunStarted}, []loop.Action{start(1, 0), start(2, 1), start(3, 2), start(4, 3)}, loop.NoTick}
	first := Record{scored(1, 0), []loop.Action{queued(1), leased(1, 1, 0), step(1, 0), start(5, 0)}, loop.NoTick}
	second := Record{scored(2, 1), []loop.Action{queued(2), start(6, 1)}, loop.NoTick}
	cases := []struct {
		name    string
		records []Record
		want    string
	}{
		{"the honest run", []Record{begin, first, second}, ""},
		{"slot taken twice", []Record{{begin.Event, []loop.Action{start(1, 0), start(2, 0)}, loop.NoTick}}, "the slot holds g1/0"},
		{"slot of another engine", []Record{{begin.Event, []loop.Action{{Kind: loop.StartRollout, Engine: 1, Slot: 0, Group: 1, Attempt: 1}}, loop.NoTick}}, "has no slot"},
		{"idle slot", []Record{{begin.Event, begin.Actions[:3], loop.NoTick}}, "slots are free"},
		{"group skipped", []Record{{begin.Event, []loop.Action{start(2, 0)}, loop.NoTick}}, "g1/0 is next"},
		{"group leased twice", []Record{begin, first, {second.Event, []loop.Action{queued(2), leased(1, 2, 0), step(2, 0), start(6, 1)}, loop.NoTick}}, "unexpected action"},
		{"ready group lost", []Record{begin, first, {second.Event, []loop.Action{start(6, 1)}, loop.NoTick}}, "missing action"},
		{"trainer idle beside a full batch", []Record{begin, {first.Event, []loop.Action{queued(1), start(5, 0)}, loop.NoTick}}, "missing action"},
		{"step without its groups", []Record{begin, {first.Event, []loop.Action{queued(1), step(1, 0), leased(1, 1, 0), start(5, 0)}, loop.NoTick}}, "follows the names of 0 groups"},
		{"unknown stamp", []Record{{begin.Event, []loop.Action{{Kind: loop.StartRollout, Group: 1, Attempt: 1, StartVersion: loop.NoVersion}}, loop.NoTick}}, "stamps its group"},
		{"acting before the start", []Record{{loop.Event{Kind: loop.Tick}, []loop.Action{start(1, 0)}, loop.NoTick}}, "does not run"},
		{"tick out of nothing", []Record{{begin.Event, begin.Actions, 7}}, "next tick"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := check(base, c.records)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the checker says %v, want %q", err, c.want)
			}
		})
	}
}

// TestCompareRejects changes every number of a status.
func TestCompareRejects(t *testing.T) {
	plan := mutationPlans()["drop"]
	w, err := NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(100); err != nil {
		t.Fatal(err)
	}
	tried := 0
	var change func(v reflect.Value, path string)
	st := w.loop.Status()
	change = func(v reflect.Value, path string) {
		switch {
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				change(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
			return
		case v.Kind() == reflect.Pointer:
			if !v.IsNil() {
				change(v.Elem(), path)
			}
			return
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				change(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
			return
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch {
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.CanUint():
			v.SetUint(v.Uint() + 1)
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.CanFloat():
			v.SetFloat(v.Float() + 1)
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		}
		tried++
		if w.Checker.Compare(st) == nil {
			t.Errorf("a status with another %s is not rejected", path)
		}
		v.Set(old)
	}
	change(reflect.ValueOf(&st).Elem(), "Status")
	if err := w.Checker.Compare(st); err != nil || tried < 25 {
		t.Errorf("the unchanged status: %v (%d fields tried)", err, tried)
	}
}
