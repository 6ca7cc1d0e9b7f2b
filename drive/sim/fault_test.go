package sim_test

import (
	"reflect"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// An engine that is there for a mean time m and gone for d is down d/(m+d) of the
// time, and produces by so much less.
func TestEngineLosses(t *testing.T) {
	s := setup{c: 48, s: 4, b: 16, q: 2, rho: 0.01, tailness: 0, warmup: 20, steps: 8000}
	s.rules = func(c *loop.Config) { c.EngineSlots, c.MaxAttempts = []int{16, 16, 16}, 1000 }
	plain, _ := produced(t, s)
	s.sim = func(c *sim.Config) { c.Faults = sim.Faults{Seed: 2, MTBFNS: 4000e9, DownNS: 1000e9} }
	res := run(t, s.config(t))
	down := res.Summary.Services.EngineDownRatio
	near(t, "share of time without an engine", down, 0.2, 0.15)
	// Of what an engine has begun when it is lost half is done on the average.
	lost := float64(res.Summary.Services.EnginesLost) * 16 / 2 / res.Summary.WindowS
	near(t, "production", res.Summary.Throughput.ProductionRolloutsPerS, plain*(1-down)-lost, 0.01)
	if n := res.Summary.Failures.Engine; n == 0 || res.Ledger.Failed < n {
		t.Errorf("%d attempts failed with engines, the ledger has %d", n, res.Ledger.Failed)
	}
}

// A plan loses an engine at its time and has it back after its time.
func TestPlannedLoss(t *testing.T) {
	s := fed
	s.rules = func(c *loop.Config) { c.EngineSlots = []int{24, 24} }
	var seen []loop.Event
	s.sim = func(c *sim.Config) {
		c.Warmup, c.Faults.Plan = 0, []sim.EngineLoss{{Engine: 1, AtNS: 100e9, DownNS: 50e9}}
		c.Observe = func(ev loop.Event, _, _ int64, _ []loop.Action) {
			if ev.Kind == loop.EngineLost || ev.Kind == loop.EngineJoined {
				seen = append(seen, ev)
			}
		}
	}
	res := run(t, s.config(t))
	want := []loop.Event{{Time: 100e9, Kind: loop.EngineLost, Engine: 1}, {Time: 150e9, Kind: loop.EngineJoined, Engine: 1}}
	if !reflect.DeepEqual(seen, want) || res.Summary.Failures.Engine != 24 {
		t.Errorf("events %v, want %v; %d attempts failed, want 24", seen, want, res.Summary.Failures.Engine)
	}
}

// A plan by steps loses an engine with the end of one train step and has it back with that of another.
func TestLossPlannedByStep(t *testing.T) {
	s := fed
	s.rules = func(c *loop.Config) { c.EngineSlots = []int{24, 24} }
	var version loop.Version
	seen := map[loop.EventKind]loop.Version{}
	s.sim = func(c *sim.Config) {
		c.Warmup, c.Faults.Plan = 0, []sim.EngineLoss{{Engine: 1, AtStep: 5, BackStep: 9}}
		c.Observe = func(ev loop.Event, _, _ int64, _ []loop.Action) {
			switch ev.Kind {
			case loop.TrainStepEnded:
				version = ev.Version
			case loop.EngineLost, loop.EngineJoined:
				seen[ev.Kind] = version
			}
		}
	}
	cfg := s.config(t)
	run(t, cfg)
	if seen[loop.EngineLost] != 5 || seen[loop.EngineJoined] != 9 {
		t.Errorf("lost and joined at versions %v, want 5 and 9", seen)
	}
	for _, bad := range []sim.EngineLoss{{AtStep: -1}, {AtStep: 5, BackStep: 5}, {BackStep: 5}, {AtStep: 5, AtNS: 1}} {
		cfg.Faults.Plan = []sim.EngineLoss{bad}
		if cfg.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// With resumption a lost engine's rollouts go on elsewhere: none fails, and the time that
// they had generated is not lost.
func TestLossesResumed(t *testing.T) {
	s := setup{c: 48, s: 4, b: 16, q: 2, rho: 0.01, tailness: 0, warmup: 20, steps: 4000}
	s.rules = func(c *loop.Config) { c.EngineSlots, c.MaxAttempts, c.ResumeLost = []int{16, 16, 16}, 1000, true }
	plain, _ := produced(t, s)
	s.sim = func(c *sim.Config) { c.Faults = sim.Faults{Seed: 2, MTBFNS: 4000e9, DownNS: 1000e9} }
	res := run(t, s.config(t))
	near(t, "production", res.Summary.Throughput.ProductionRolloutsPerS, plain*(1-res.Summary.Services.EngineDownRatio), 0.01)
	if res.Ledger.Failed != 0 || res.Summary.Services.EnginesLost < 20 {
		t.Errorf("%d attempts failed over %d losses", res.Ledger.Failed, res.Summary.Services.EnginesLost)
	}
}

// An engine is gone while any of its outages lasts, planned or drawn: the end of a
// shorter one does not bring it back.
func TestOutagesOverlap(t *testing.T) {
	s := fed
	s.rules = func(c *loop.Config) { c.EngineSlots, c.MaxAttempts = []int{24, 24}, 1000 }
	var seen []loop.Event
	s.sim = func(c *sim.Config) {
		c.Warmup, c.Faults = 0, sim.Faults{Plan: []sim.EngineLoss{{Engine: 1, AtNS: 100e9, DownNS: 100e9}, {Engine: 1, AtNS: 120e9, DownNS: 10e9}, {Engine: 1, AtNS: 150e9, DownNS: 70e9}}}
		c.Observe = func(ev loop.Event, _, _ int64, _ []loop.Action) {
			if ev.Kind == loop.EngineLost || ev.Kind == loop.EngineJoined {
				seen = append(seen, ev)
			}
		}
	}
	run(t, s.config(t))
	want := []loop.Event{{Time: 100e9, Kind: loop.EngineLost, Engine: 1}, {Time: 220e9, Kind: loop.EngineJoined, Engine: 1}}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("events %v, want %v", seen, want)
	}
	// One that is gone for good, beside drawn losses of both.
	s.sim = func(c *sim.Config) {
		c.Faults = sim.Faults{Seed: 2, MTBFNS: 1000e9, DownNS: 10e9, Plan: []sim.EngineLoss{{Engine: 1, AtNS: 1e9}}}
	}
	near(t, "share of time without an engine", run(t, s.config(t)).Summary.Services.EngineDownRatio, (1+10.0/1010)/2, 0.02)
}
