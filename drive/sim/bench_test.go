package sim_test

import (
	"fmt"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// BenchmarkRun reports rollout completions plus train-step ends per second, on
// one core, set-up included.
func BenchmarkRun(b *testing.B) {
	plain := setup{s: 8, q: 2, rho: 0.9, tailness: 50, warmup: 10}
	for _, c := range []struct {
		name  string
		c     int
		rules func(*loop.Config)
		envS  float64
		sim   func(*sim.Config)
	}{
		{name: "C=16", c: 16},
		{name: "C=128", c: 128},
		{name: "C=1024", c: 1024},
		{name: "C=8192", c: 8192},
		{name: "engines=8", c: 128, rules: func(c *loop.Config) { c.EngineSlots = []int{16, 16, 16, 16, 16, 16, 16, 16} }},
		{name: "environment", c: 128, envS: 10},
		{name: "speed", c: 128, sim: func(c *sim.Config) {
			c.Speed = func(active int, _ bool) float64 { return 1 / (1 + float64(active)/256) }
		}},
		{name: "max-abort", c: 128, rules: func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 3, true }},
	} {
		b.Run(fmt.Sprint(c.name), func(b *testing.B) {
			s := plain
			s.c, s.b, s.rules, s.envS, s.sim = c.c, max(c.c/2, 8), c.rules, c.envS, c.sim
			s.steps = max(4000*128/c.c, 20)
			cfg := s.config(b)
			events := int64(0)
			for b.Loop() {
				events += run(b, cfg).Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
