package sim_test

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/sim"
	"github.com/headway-rl/headway/workload"
)

// setup is a run in the article's terms.
type setup struct {
	c, s, b  int
	q        float64
	rho      float64
	tailness float64
	policy   loop.Policy
	sync     loop.SyncMode
	syncNS   int64
	warmup   int
	steps    int
}

const nsPerToken = 20e6

func (s setup) config(tb testing.TB) sim.Config {
	tb.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: s.tailness, CapTokens: int(2.2*1400 + 100*s.tailness)}.Build()
	if err != nil {
		tb.Fatal(err)
	}
	all, err := workload.NewAcceptance(1)
	if err != nil {
		tb.Fatal(err)
	}
	vR := float64(s.c) / nsPerToken
	stepNS := int64(float64(s.b) * lengths.Mean() / (vR / s.rho))
	return sim.Config{
		Loop: loop.Config{GroupSize: s.s, BatchGroups: s.b / s.s, EngineSlots: []int{s.c},
			QueueGroups: int(s.q * float64(s.b/s.s)), Policy: s.policy, Sync: s.sync},
		Work: sim.NewModelled(1, lengths, nil, all, stepNS), NSPerToken: nsPerToken, SyncNS: s.syncNS,
		Warmup: s.warmup, Measured: s.steps,
	}
}

func BenchmarkRun(b *testing.B) {
	for _, c := range []int{128, 1024} {
		b.Run("", func(b *testing.B) {
			cfg := setup{c: c, s: 8, b: c / 2, q: 2, rho: 0.9, tailness: 50, warmup: 10, steps: 4000 * 128 / c}.config(b)
			events := int64(0)
			for b.Loop() {
				res, err := sim.Run(cfg)
				if err != nil {
					b.Fatal(err)
				}
				events += res.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func TestSmoke(t *testing.T) {
	for _, rho := range []float64{0.5, 0.7, 1.3, 1.5} {
		res, err := sim.Run(setup{c: 128, s: 8, b: 128, q: 2, rho: rho, tailness: 50, warmup: 200, steps: 2000}.config(t))
		if err != nil {
			t.Fatal(err)
		}
		s := res.Summary
		t.Logf("rho %.1f: staleness %.3f pqs %.3f iqs %.3f util %.3f idle %.3f/%.3f period/step %.3f M %.3f tok %.3f conf %v ledger %+v", rho, s.Staleness.Mean, s.PQS.Mean, s.IQS.Mean, s.Utilization, s.TrainerIdleRatio, s.RolloutIdleRatio, s.PeriodS.Mean/s.StepS.Mean, s.TailMultiplier, s.TokenStaleness.Mean, s.Confidence, res.Ledger)
	}
}
