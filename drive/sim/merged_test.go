package sim_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// observed is one event with what followed.
type observed struct {
	ev                        loop.Event
	generateNS, environmentNS int64
	actions                   []loop.Action
}

// observe runs a simulation and returns all that was observed, and the result.
func observe(t *testing.T, cfg sim.Config) ([]observed, sim.Result) {
	t.Helper()
	var log []observed
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		log = append(log, observed{ev, generateNS, environmentNS, slices.Clone(actions)})
	}
	return log, run(t, cfg)
}

// anyPlain draws a simulation in which the ends of rollouts are known at their start.
func anyPlain(t *testing.T, r *rand.Rand) sim.Config {
	t.Helper()
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	s := setup{c: pick(1, 2, 7, 60, 300), s: pick(1, 2, 4, 8), q: float64(pick(1, 2, 4)), rho: []float64{0.3, 0.9, 1.1, 3}[r.IntN(4)],
		tailness: float64(pick(30, 70, 95)), seed: r.Uint64(), envS: float64(pick(0, 0, 5, 60)), accept: []float64{1, 1, 0.6}[r.IntN(3)], warmup: pick(0, 5), steps: 60}
	s.b = s.s * pick(1, 4, 16)
	s.rules = func(c *loop.Config) {
		switch r.IntN(6) {
		case 0:
			c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, loop.Version(pick(1, 3, 20)), r.IntN(2) == 0
		case 1:
			c.Policy = loop.PolicyBlock
		case 2:
			c.SyncEvery, c.Sync = pick(1, 3), loop.SyncDrain
		case 3:
			c.Redundancy = 1
		}
		if s.c > 3 && r.IntN(2) == 0 {
			c.EngineSlots, c.RollingSwitch = []int{s.c / 2, s.c - s.c/2 - 1, 1}, r.IntN(2) == 0
		}
	}
	s.sim = func(c *sim.Config) {
		c.LoadNS = int64(pick(0, 0, 7_000_000_000))
		if r.IntN(4) == 0 {
			c.Validation = sim.Validation{Every: pick(1, 7), NS: 40e9, Trainer: true}
		}
		if c.Loop.Sync == loop.SyncInFlight {
			c.SyncNS = int64(pick(0, 3_000_000_000))
		}
		c.PruneTokens = int32(pick(0, 0, 2500))
		c.NSPerToken = []float64{nsPerToken, nsPerToken, 27.4e6 + 1.0/3, 15e6 + 0.1}[r.IntN(4)]
		if lengths, err := (workload.LengthSpec{Kind: workload.KindFixed, MeanTokens: 900}).Build(); err == nil && r.IntN(5) == 0 {
			accept, _ := workload.NewAcceptance(1)
			c.NSPerToken = []float64{1, 1.5, 333.3, 1e6}[r.IntN(4)]
			c.Work = sim.NewModelled(s.seed, lengths, nil, accept, int64(1100*c.NSPerToken)) // many end at once
		}
	}
	return s.config(t)
}

// A rollout whose end is known at its start gives the same run as one that is
// followed through its phases: every event with all that follows from it.
func TestKnownEndsAreFollowedEnds(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cfg := anyPlain(t, rand.New(rand.NewPCG(seed, 1)))
			known, one := observe(t, cfg)
			cfg.Speed = func(int, bool) float64 { return 1 } // speeds may change, for all that is known
			followed, two := observe(t, cfg)
			for i := range min(len(known), len(followed)) {
				if !reflect.DeepEqual(known[i], followed[i]) {
					t.Fatalf("event %d of %+v\n known at the start: %+v\n followed:           %+v", i, cfg.Loop, known[i], followed[i])
				}
			}
			if !reflect.DeepEqual(one, two) {
				t.Errorf("known at the start: %+v\nfollowed: %+v", one.Summary, two.Summary)
			}
		})
	}
}
