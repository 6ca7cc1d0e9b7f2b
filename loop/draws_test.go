package loop_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// buffer returns a loop under PolicyReplay whose buffer holds groups with the
// given stamps, except those that are left out, and nothing but train steps to go
// on with. Groups are asked for with their prompt.
func buffer(t *testing.T, cfg loop.Config, groups int, leaveOut func(g loop.GroupID, prompt int64) bool) *loop.Loop {
	t.Helper()
	cfg.Policy, cfg.GroupSize, cfg.BatchGroups, cfg.MaxUses = loop.PolicyReplay, 1, 1, math.MaxInt32
	cfg.EngineSlots, cfg.QueueGroups = []int{groups}, groups
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	actions, _ := l.Step(loop.Event{Kind: loop.RunStarted})
	var scored []loop.Event
	for _, a := range actions {
		ev := loop.Event{Kind: loop.RolloutScored, Slot: a.Slot, Group: a.Group, Attempt: a.Attempt, Reward: 1}
		if leaveOut(a.Group, a.Prompt) {
			ev.Mark = loop.MarkReject
		}
		scored = append(scored, ev)
	}
	for _, ev := range scored {
		l.Step(ev)
	}
	return l
}

// trainOn ends train steps and counts which groups the next ones are made of.
func trainOn(l *loop.Loop, steps int) map[loop.GroupID]int {
	leased := map[loop.GroupID]int{}
	lease := loop.LeaseID(l.Status().Lease)
	for range steps {
		actions, _ := l.Step(loop.Event{Kind: loop.TrainStepEnded, Lease: lease, Attempt: 1, Version: l.Version() + 1})
		for _, a := range actions {
			if a.Kind == loop.GroupLeased {
				leased[a.Group]++
				lease = a.Lease
			}
		}
	}
	return leased
}

// within reports whether a count of a binomial is within five deviations of its mean.
func within(count, n int, p float64) bool {
	return math.Abs(float64(count)-float64(n)*p) < 5*math.Sqrt(float64(n)*p*(1-p))
}

// TestReplaySamplesEvenly requires that all groups of one age are drawn equally
// often, and with Balance all prompts.
func TestReplaySamplesEvenly(t *testing.T) {
	const steps = 6000
	none := func(loop.GroupID, int64) bool { return false }
	for _, seed := range []uint64{0, 1, 2} {
		for id, n := range trainOn(buffer(t, loop.Config{Seed: seed}, 5, none), steps) {
			if !within(n, steps, 1.0/5) {
				t.Errorf("seed %d: g%d was drawn %d times of %d, want a fifth", seed, id, n, steps)
			}
		}
		// Of three groups of prompt 2 the last alone is kept: it is drawn as often as all three of prompt 1.
		prompts, left := map[loop.GroupID]int64{}, 0
		out := func(g loop.GroupID, prompt int64) bool {
			prompts[g] = prompt
			if prompt != 2 || left == 2 {
				return false
			}
			left++
			return true
		}
		drawn := trainOn(buffer(t, loop.Config{Seed: seed, Prompts: 2, Balance: true}, 6, out), steps)
		if len(drawn) != 4 {
			t.Errorf("seed %d, balanced: %d groups were drawn, want 4", seed, len(drawn))
		}
		for id, n := range drawn {
			p := 1.0 / 6
			if prompts[id] == 2 {
				p = 1.0 / 2
			}
			if !within(n, steps, p) {
				t.Errorf("seed %d, balanced: g%d of prompt %d was drawn %d times of %d, want a share of %.3f", seed, id, prompts[id], n, steps, p)
			}
		}
	}
}

// TestReplaySamplesByAge requires that a group one version older is drawn Gamma times as often.
func TestReplaySamplesByAge(t *testing.T) {
	const gamma, runs = 0.5, 3000
	cfg := loop.Config{Policy: loop.PolicyReplay, GroupSize: 1, BatchGroups: 1, QueueGroups: 2, EngineSlots: []int{1}, MaxUses: 9, Gamma: gamma}
	scored := func(g loop.GroupID, v loop.Mark) loop.Event {
		return loop.Event{Kind: loop.RolloutScored, Group: g, Attempt: 1, Mark: v}
	}
	// g1 and g2 are stamped v0, g3 v1; g2 is filtered. The second train step ends with g1 and g3 in the buffer.
	events := []loop.Event{
		{Kind: loop.RunStarted},
		scored(1, loop.MarkNone),
		{Kind: loop.TrainStepEnded, Lease: 1, Attempt: 1, Version: 1},
		{Kind: loop.WeightsLoaded, Version: 1, Attempt: 1},
		{Kind: loop.WeightsSwitched, Version: 1, Attempt: 1},
		scored(2, loop.MarkReject),
		scored(3, loop.MarkNone),
		{Kind: loop.TrainStepEnded, Lease: 2, Attempt: 1, Version: 2},
	}
	drawn := map[loop.GroupID]int{}
	for seed := range uint64(runs) {
		cfg.Seed = seed
		l, err := loop.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, ev := range events {
			actions, _ := l.Step(ev)
			for _, a := range actions {
				if i == len(events)-1 && a.Kind == loop.GroupLeased {
					drawn[a.Group]++
				}
			}
		}
	}
	if !within(drawn[3], runs, 1/(1+gamma)) || drawn[1]+drawn[3] != runs {
		t.Errorf("of %d seeds %v drew each group, want %.3f of them to draw g3", runs, drawn, 1/(1+gamma))
	}
}

// TestCurriculumFollowsTheBand plays levels whose solve rates fall from level to
// level: most groups must come from the level within the band, and from the next
// one when the policy has become better.
func TestCurriculumFollowsTheBand(t *testing.T) {
	cfg := loop.Config{GroupSize: 8, BatchGroups: 1, QueueGroups: 1, EngineSlots: []int{8}, Levels: 5, Explore: 0.1,
		SolveLow: 0.35, SolveHigh: 0.65, Seed: 4}
	rates := []float64{0.97, 0.8, 0.5, 0.2, 0.03}
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	running := map[int32]loop.Action{}
	begin := func(actions []loop.Action) {
		for _, a := range actions {
			if a.Kind == loop.StartRollout {
				running[a.Slot] = a
			}
		}
	}
	actions, _ := l.Step(loop.Event{Kind: loop.RunStarted})
	begin(actions)
	play := func(rollouts int, shift int32) map[int32]int {
		levels := map[int32]int{}
		for i := range rollouts {
			a := running[int32(i%8)]
			ev := loop.Event{Kind: loop.RolloutScored, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Reward: 1}
			if at := max(0, a.Level-1-shift); r.Float64() < rates[at] {
				ev.Mark = loop.MarkSolved
			}
			actions, _ := l.Step(ev)
			begin(actions)
			levels[a.Level]++
		}
		return levels
	}
	play(1600, 0)
	before := play(8000, 0)
	play(1600, 1)
	after := play(8000, 1)
	if before[3] < 5600 || after[4] < 5600 {
		t.Errorf("of 8000 rollouts %v were at each level, and %v after the policy had become better; want most at 3, then at 4", before, after)
	}
	for level := int32(1); level <= 5; level++ {
		if before[level] == 0 {
			t.Errorf("level %d was never explored: %v", level, before)
		}
	}
}

// TestFreshSamplesEvenly requires that every group that became ready while a step
// ran is trained equally often, whether or not the queue could hold them all.
func TestFreshSamplesEvenly(t *testing.T) {
	const runs, arrivals, batch = 4000, 9, 2
	for _, capacity := range []int{2, 4, 9} {
		trained := make([]int, arrivals)
		for seed := range uint64(runs) {
			cfg := loop.Config{GroupSize: 1, BatchGroups: batch, QueueGroups: capacity, EngineSlots: []int{batch + arrivals}, Select: loop.SelectFresh, Seed: seed}
			l, err := loop.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			actions, _ := l.Step(loop.Event{Kind: loop.RunStarted})
			var ready []loop.Event
			for _, a := range actions {
				ready = append(ready, loop.Event{Kind: loop.RolloutScored, Slot: a.Slot, Group: a.Group, Attempt: a.Attempt})
			}
			for _, ev := range ready { // the first two are the running step's batch
				l.Step(ev)
			}
			actions, _ = l.Step(loop.Event{Kind: loop.TrainStepEnded, Lease: 1, Attempt: 1, Version: 1})
			for _, a := range actions {
				if a.Kind == loop.GroupLeased {
					trained[a.Group-batch-1]++
				}
			}
		}
		for i, n := range trained {
			if !within(n, runs, float64(batch)/arrivals) {
				t.Errorf("capacity %d: arrival %d of %d was trained %d times in %d, want a share of %.3f", capacity, i+1, arrivals, n, runs, float64(batch)/arrivals)
			}
		}
	}
}
