package sim_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// A rollout that is interrupted takes as long, and for the same, whether agents are
// modelled or not, and all of it adds up to what Little's law says.
func TestLatencyUnderInterruptions(t *testing.T) {
	for name, rules := range map[string]func(*loop.Config){
		"restart":  func(c *loop.Config) { c.Sync = loop.SyncRestart },
		"at batch": func(c *loop.Config) { c.Policy, c.InterruptAtBatch = loop.PolicyBlock, true },
	} {
		for _, envS := range []float64{0, 9} {
			for _, perToken := range []float64{0, 1e6} {
				s := setup{c: 48, s: 4, b: 16, q: 2, rho: 0.9, tailness: 50, seed: 4, envS: envS, warmup: 20, steps: 300, rules: rules}
				s.sim = func(c *sim.Config) {
					c.SyncNS, c.PrefillNSPerToken, c.EngineSpeed = 3e9, perToken, []float64{0.8}
				}
				plain := run(t, s.config(t)).Summary
				agents := run(t, s.also(func(c *sim.Config) { c.Agents = &sim.Agents{PrefillNSPerToken: perToken} }).config(t)).Summary
				if plain.Latency != agents.Latency {
					t.Errorf("%s, environment of %v s, reading %v ns a token: latency %+v, under agents %+v", name, envS, perToken, plain.Latency, agents.Latency)
				}
				latencyAddsUp(t, plain)
				near(t, name+": end to end", plain.Latency.EndToEndS*plain.Throughput.ProductionRolloutsPerS,
					float64(s.c)*(1-plain.RolloutIdleRatio)+plain.Partial.BacklogMean, 0.01)
				if plain.Latency.InterruptedS == 0 && name == "restart" || (plain.Latency.PrefillS > 0) != (perToken > 0) {
					t.Errorf("%s: latency %+v", name, plain.Latency)
				}
			}
		}
	}
}
