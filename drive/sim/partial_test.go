package sim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// TestFreeRestartIsInFlight: rollouts that are interrupted and resumed at once, at
// no cost, end when they would have.
func TestFreeRestartIsInFlight(t *testing.T) {
	for _, engines := range [][]int{{48}, {16, 16, 16}} {
		for _, policy := range []loop.Policy{loop.PolicyDrop, loop.PolicyBlock, loop.PolicyBounded} {
			result := func(mode loop.SyncMode) sim.Result {
				s := setup{c: 48, s: 4, b: 16, q: 3, rho: 1.2, tailness: 70, warmup: 5, steps: 300, envS: 6}
				s.rules = func(c *loop.Config) { c.Policy, c.Eta, c.Sync, c.EngineSlots = policy, 2, mode, engines }
				return run(t, s.config(t))
			}
			restart, flight := result(loop.SyncRestart), result(loop.SyncInFlight)
			if !slices.Equal(restart.Summary.Staleness.Histogram, flight.Summary.Staleness.Histogram) || restart.Ledger != flight.Ledger || restart.EndNS != flight.EndNS {
				t.Errorf("policy %d: restarted %v until %d, in flight %v until %d", policy, restart.Summary.Staleness.Histogram, restart.EndNS, flight.Summary.Staleness.Histogram, flight.EndNS)
			}
			if a, b := restart.Summary.TokenStaleness.Mean, flight.Summary.TokenStaleness.Mean; math.Abs(a-b) > 1e-9 {
				t.Errorf("policy %d: token staleness %v restarted, %v in flight", policy, a, b)
			}
			if restart.PrefillTokens == 0 || flight.PrefillTokens != 0 {
				t.Errorf("%d tokens prefilled restarted, %d in flight", restart.PrefillTokens, flight.PrefillTokens)
			}
		}
	}
}

// span is one stretch of a rollout in a slot.
type span struct {
	version loop.Version
	tokens  int32 // so far, at its end
}

// spans follows what every rollout is made of, from events and actions alone.
type spans struct {
	t       *testing.T
	running map[loop.GroupID]map[int32][]span // of live groups, by sample
	trained int64                             // Σ over trained tokens of their staleness
	tokens  int64
	most    int // spans of one rollout
	// Of scored rollouts: how many, their spans with tokens; of those resumed with tokens: how many,
	// Σ of the versions from their oldest token before the last resume to it.
	scored, filled, resumed, lag int64
}

func (o *spans) observe(ev loop.Event, _, _ int64, actions []loop.Action) {
	if ev.Kind == loop.RolloutInterrupted || ev.Kind == loop.RolloutScored {
		made := o.running[ev.Group][ev.Sample]
		if len(made) > 1 && ev.Tokens < made[len(made)-2].tokens {
			o.t.Errorf("%v: it had %d tokens before", ev, made[len(made)-2].tokens)
		}
		made[len(made)-1].tokens = ev.Tokens
		if ev.Kind == loop.RolloutScored {
			o.count(made)
		}
	}
	for _, a := range actions {
		switch a.Kind {
		case loop.StartRollout:
			if o.running[a.Group] == nil {
				o.running[a.Group] = map[int32][]span{}
			}
			o.running[a.Group][a.Sample] = []span{{version: a.Version}}
		case loop.ResumeRollout:
			o.running[a.Group][a.Sample] = append(o.running[a.Group][a.Sample], span{version: a.Version})
		case loop.GroupEnded:
			delete(o.running, a.Group)
		case loop.GroupTrained:
			for _, made := range o.running[a.Group] {
				o.most = max(o.most, len(made))
				before := int32(0)
				for _, s := range made {
					o.trained += int64(a.Version-s.version) * int64(s.tokens-before)
					before = s.tokens
				}
				o.tokens += int64(before)
			}
			delete(o.running, a.Group)
		}
	}
}

// count takes what a scored rollout is made of.
func (o *spans) count(made []span) {
	o.scored++
	before, oldest := int32(0), loop.NoVersion
	for i, s := range made {
		if i == len(made)-1 && oldest != loop.NoVersion {
			o.resumed++
			o.lag += int64(s.version - oldest)
		}
		if s.tokens > before {
			o.filled++
			if oldest == loop.NoVersion || s.version < oldest {
				oldest = s.version
			}
		}
		before = s.tokens
	}
}

// TestVersionsAreExactOverSpans: every token counts with the version of the span
// that made it, over any number of interruptions, in common decode steps or not.
func TestVersionsAreExactOverSpans(t *testing.T) {
	for _, lockstep := range []bool{false, true} {
		for _, envS := range []float64{0, 30} {
			o := &spans{t: t, running: map[loop.GroupID]map[int32][]span{}}
			s := setup{c: 48, s: 4, b: 16, q: 2, rho: 0.3, tailness: 70, steps: 400, envS: envS}
			s.rules = func(c *loop.Config) {
				c.Sync, c.EngineSlots, c.Policy = loop.SyncRestart, []int{16, 32}, loop.PolicyBlock
			}
			s.sim = func(c *sim.Config) {
				c.Lockstep, c.SyncNS, c.PrefillNSPerToken, c.Observe = lockstep, 2e9, 2e5, o.observe
			}
			res, err := checked(t, s.config(t))
			if err != nil {
				t.Fatal(err)
			}
			run(t, s.config(t))
			if want := float64(o.trained) / float64(o.tokens); math.Abs(res.Summary.TokenStaleness.Mean-want) > 1e-9 {
				t.Errorf("lockstep %v: token staleness %v, spans add up to %v", lockstep, res.Summary.TokenStaleness.Mean, want)
			}
			partial := res.Summary.Partial
			if want := float64(o.filled) / float64(o.scored); math.Abs(partial.VersionSpansMean-want) > 1e-9 {
				t.Errorf("lockstep %v: %v spans a rollout, want %v", lockstep, partial.VersionSpansMean, want)
			}
			if want := float64(o.lag) / float64(o.resumed); math.Abs(partial.StateLagMean-want) > 1e-9 {
				t.Errorf("lockstep %v: the environment's state lags by %v versions, want %v", lockstep, partial.StateLagMean, want)
			}
			if o.most < 3 {
				t.Errorf("rollouts have at most %d spans: nothing was tested", o.most)
			}
		}
	}
}

// oneRollout is a workload of rollouts that are all alike.
type oneRollout struct {
	tokens        int32
	environmentNS int64
	stepNS        int64
}

func (o oneRollout) Rollout(sim.Rollout) sim.Response {
	return sim.Response{Tokens: o.tokens, EnvironmentNS: o.environmentNS}
}

func (o oneRollout) StepNS(loop.LeaseID, int64, int64) int64 { return o.stepNS }

// TestInterruptedRolloutsInTime follows a rollout through a restart, token by token.
func TestInterruptedRolloutsInTime(t *testing.T) {
	for _, c := range []struct {
		name    string
		prefill float64
		ends    int64
	}{
		// A step lasts from 10 to 35. Rollout 2 starts at 10 and has 25 tokens of 40 at 35, when the
		// engine stands still for 7; it goes on at 42 for the remaining 15.
		{name: "free", ends: 57},
		{name: "prefilled", prefill: 0.2, ends: 62},
	} {
		t.Run(c.name, func(t *testing.T) {
			var scored []loop.Event
			var interrupted []loop.Event
			cfg := sim.Config{
				Loop:       loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1, Sync: loop.SyncRestart},
				Work:       lengthsOf{10, 40},
				NSPerToken: 1, SyncNS: 7, Measured: 2, PrefillNSPerToken: c.prefill,
				Observe: func(ev loop.Event, generateNS, _ int64, _ []loop.Action) {
					switch ev.Kind {
					case loop.RolloutScored:
						if generateNS != ev.Time && ev.Group == 1 {
							t.Errorf("%v: generated for %d ns", ev, generateNS)
						}
						if want := ev.Time - 10 - 7; ev.Group == 2 && generateNS != want {
							t.Errorf("%v: generated for %d ns, want %d", ev, generateNS, want)
						}
						scored = append(scored, ev)
					case loop.RolloutInterrupted:
						interrupted = append(interrupted, ev)
					}
				},
			}
			run(t, cfg)
			if len(interrupted) == 0 || interrupted[0].Time != 35 || interrupted[0].Tokens != 25 {
				t.Fatalf("interrupted %v, want at 35 with 25 tokens", interrupted)
			}
			if scored[1].Time != c.ends || scored[1].Tokens != 40 {
				t.Errorf("the second rollout ends with %v, want 40 tokens at %d", scored[1], c.ends)
			}
		})
	}
}

// lengthsOf gives group i the i-th length, and later ones the last; a step takes 25.
type lengthsOf []int32

func (l lengthsOf) Rollout(r sim.Rollout) sim.Response {
	return sim.Response{Tokens: l[min(int(r.Group)-1, len(l)-1)]}
}

func (lengthsOf) StepNS(loop.LeaseID, int64, int64) int64 { return 25 }

// TestRestartWaitsForNoEnvironment: a sync that empties its engines is over when
// load and switch are, however long tools take; and what an environment needs is
// not lengthened by an interruption.
func TestRestartWaitsForNoEnvironment(t *testing.T) {
	const loadNS, syncNS, environmentNS = 30, 50, 10_000
	began, inEnvironment := int64(-1), 0
	started := map[loop.GroupID]int64{}
	cfg := sim.Config{
		Loop:       loop.Config{GroupSize: 1, BatchGroups: 2, EngineSlots: []int{40}, QueueGroups: 4, Sync: loop.SyncRestart},
		Work:       oneRollout{tokens: 100, environmentNS: environmentNS, stepNS: 301},
		NSPerToken: 1, LoadNS: loadNS, SyncNS: syncNS, Measured: 100, PrefillNSPerToken: 1,
	}
	cfg.Observe = func(ev loop.Event, generateNS, _ int64, actions []loop.Action) {
		if ev.Kind == loop.RolloutInterrupted && ev.Tokens == 100 {
			inEnvironment++
		}
		for _, a := range actions {
			switch a.Kind {
			case loop.StartRollout:
				started[a.Group] = ev.Time
			case loop.LoadWeights:
				began = ev.Time
			case loop.SyncCompleted:
				if ev.Time-began != loadNS+syncNS {
					t.Errorf("a sync took %d ns, want %d", ev.Time-began, loadNS+syncNS)
				}
			}
		}
		if ev.Kind == loop.RolloutScored && generateNS == 100 { // generated in one go
			if took := ev.Time - started[ev.Group]; took > 100+environmentNS+syncNS {
				t.Errorf("%v took %d ns, want %d and at most a switch more", ev, took, 100+environmentNS)
			}
		}
	}
	run(t, cfg)
	if inEnvironment == 0 {
		t.Error("no rollout was interrupted in its environment")
	}
}

// TestInterruptAtBatch: when a batch is complete its stragglers stop, and finish
// in a later batch; none is lost.
func TestInterruptAtBatch(t *testing.T) {
	for _, lockstep := range []bool{false, true} {
		s := setup{c: 64, s: 4, b: 32, q: 1, rho: 0.8, tailness: 90, steps: 200}
		s.rules = func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.InterruptAtBatch, c.QueueGroups = loop.PolicySynchronous, 8, true, c.BatchGroups+8
		}
		interrupted := 0
		s.sim = func(c *sim.Config) {
			c.Lockstep = lockstep
			c.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
				if ev.Kind == loop.RolloutInterrupted {
					interrupted++
				}
				for _, a := range actions {
					if a.Kind == loop.AbortRollout || a.Kind == loop.GroupEnded {
						t.Errorf("%v: a straggler was given up", a)
					}
				}
			}
		}
		if _, err := checked(t, s.config(t)); err != nil {
			t.Fatal(err)
		}
		res := run(t, s.config(t))
		if interrupted < 200 {
			t.Errorf("%d interruptions", interrupted)
		}
		plain := setup{c: 64, s: 4, b: 32, q: 1, rho: 0.8, tailness: 90, steps: 200}
		plain.rules = func(c *loop.Config) { c.Policy = loop.PolicySynchronous }
		if barrier := run(t, plain.config(t)); res.Summary.PeriodS.Mean > 0.8*barrier.Summary.PeriodS.Mean {
			t.Errorf("a step takes %.1f s, %.1f s without: stragglers are still waited for", res.Summary.PeriodS.Mean, barrier.Summary.PeriodS.Mean)
		}
	}
}

// TestPrunedRollouts: none is longer than the cap, and groups go on without them.
func TestPrunedRollouts(t *testing.T) {
	s := setup{c: 32, s: 4, b: 16, q: 2, rho: 0.9, tailness: 80, steps: 300}
	pruned := int64(0)
	s.sim = func(c *sim.Config) {
		c.PruneTokens = 3000
		c.Observe = func(ev loop.Event, _, _ int64, _ []loop.Action) {
			switch {
			case ev.Kind != loop.RolloutScored:
			case ev.Tokens > 3000 || (ev.Mark == loop.MarkPruned) && ev.Tokens != 3000:
				t.Errorf("%v with a cap of 3000 tokens", ev)
			case ev.Mark == loop.MarkPruned:
				pruned++
			}
		}
	}
	res := run(t, s.config(t))
	if pruned == 0 || res.Ledger.Pruned != pruned {
		t.Errorf("%d rollouts pruned, %d in the ledger", pruned, res.Ledger.Pruned)
	}
}
