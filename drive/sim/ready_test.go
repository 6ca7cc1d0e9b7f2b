package sim_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop/workload"
)

// TestReadySandboxes: more sandboxes, more that stand ready and more uses of each make a run that waits for
// them no slower; where starters bind, a sandbox that is used k times gives k times the rollouts.
func TestReadySandboxes(t *testing.T) {
	rate := func(s sim.Sandboxes) (perS float64, starts int64) {
		setting := setup{c: 64, s: 4, b: 32, q: 2, rho: 1, tailness: 30, seed: 5, steps: 150}
		setting.sim = func(c *sim.Config) {
			s.Start = service(t, workload.TimesSpec{Kind: workload.KindFixed, MeanS: 60})
			c.Agents = &sim.Agents{Seed: 5, Sandboxes: &s, Tools: tools(t, workload.ToolsSpec{Calls: 1, CallsKind: "fixed", Split: "even",
				Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 1}})}
		}
		result := run(t, setting.config(t))
		return result.Summary.Throughput.ProductionRolloutsPerS, result.Summary.Services.SandboxStarts
	}
	plain, _ := rate(sim.Sandboxes{Limit: 32, Starting: 2})
	if want := 2.0 / 60; plain < 0.97*want || plain > 1.03*want {
		t.Errorf("two starters of 60 s give %v rollouts a second, want %v", plain, want)
	}
	if thrice, _ := rate(sim.Sandboxes{Limit: 32, Starting: 2, Uses: 3}); thrice < 2.8*plain || thrice > 3.2*plain {
		t.Errorf("used three times each, they give %v, want three times %v", thrice, plain)
	}
	last := 0.0
	for _, limit := range []int{2, 8, 32} {
		now, _ := rate(sim.Sandboxes{Limit: limit, Uses: 50})
		if now < 0.98*last {
			t.Errorf("%d sandboxes give %v, fewer gave %v", limit, now, last)
		}
		last = now
	}
	cold, _ := rate(sim.Sandboxes{})
	if warm, _ := rate(sim.Sandboxes{Warm: 64}); warm < 1.1*cold {
		t.Errorf("with 64 that stand ready %v rollouts a second, without %v", warm, cold)
	}
}
