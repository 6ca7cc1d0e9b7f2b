package sim_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

func service(tb testing.TB, spec workload.TimesSpec) *workload.Times {
	tb.Helper()
	s, err := spec.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func tools(tb testing.TB, spec workload.ToolsSpec) *workload.Tools {
	tb.Helper()
	t, err := spec.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// anyAgents draws what rollouts do beside decoding, from nothing to everything.
func anyAgents(tb testing.TB, rng *rand.Rand, c *sim.Config, seed uint64) {
	pick, chance := rng.IntN, func(n int) bool { return rng.IntN(n) == 0 }
	c.Lockstep, c.StartNS = false, 0
	lognormal := func(meanS float64) *workload.Times {
		return service(tb, workload.TimesSpec{Kind: workload.KindLognormal, MeanS: meanS, Tailness: float64(pick(90))})
	}
	a := &sim.Agents{Seed: rng.Uint64(), PromptTokens: int32(pick(3) * 500), PrefillNSPerToken: float64(pick(3)) * 4e5,
		Prefill: sim.PrefillMode(pick(3)), PrefillWorkers: 1 + pick(3), ToolWorkers: pick(3) * 3, ToolTokens: int32(pick(2) * 300)}
	a.Verifier.Workers = pick(3) * 2
	if !chance(4) {
		a.Tools = tools(tb, workload.ToolsSpec{Calls: 4 * rng.Float64(), CallsKind: []string{"fixed", "poisson", "geometric"}[pick(3)], CallsMax: 12,
			Split: []string{"even", "random"}[pick(2)], Time: workload.TimesSpec{Kind: workload.KindExponential, MeanS: float64(pick(3) * 4)},
			FailureRate: float64(pick(2)) * 0.05, Retries: pick(3)})
		change, err := workload.ChangeSpec{Steps: 10, ToolCallsFactor: 0.5 + 2*rng.Float64()}.Build(0)
		if err != nil {
			tb.Fatal(err)
		}
		a.Change = change
	}
	if chance(2) {
		a.Sandboxes = &sim.Sandboxes{Early: chance(2), Start: lognormal(20 * rng.Float64()), Limit: pick(2) * (c.Loop.Concurrency()/2 + 1), Starting: pick(3) * 2,
			TimeoutNS: int64(pick(2)) * 60e9, FailureRate: float64(pick(2)) * 0.05, MTBFNS: float64(pick(2)) * 600e9, Retries: pick(3),
			Warm: pick(3) * 4, Uses: pick(3) * 2, ResetNS: int64(pick(2)) * 1e9}
	}
	if chance(2) {
		a.Verifier.Time = lognormal(8 * rng.Float64())
	}
	if chance(2) {
		a.Scorer = sim.Review{Time: lognormal(4 * rng.Float64()), NSPerToken: float64(pick(2)) * 1e6, Workers: pick(3) * 2}
	}
	if !chance(5) {
		c.Agents = a
	}
	for range c.Loop.EngineSlots {
		c.EngineSpeed = append(c.EngineSpeed, 0.5+rng.Float64())
	}
	c.Faults.Seed = rng.Uint64()
	if chance(2) {
		c.Faults.MTBFNS, c.Faults.DownNS = 800e9, 40e9
	}
	if chance(3) {
		c.Faults.Plan = []sim.EngineLoss{{AtNS: 50e9, DownNS: 30e9}, {Engine: len(c.Loop.EngineSlots) - 1, AtNS: 60e9, DownNS: 5e9}}
	}
	c.Faults.TrainRate = float64(pick(2)) * 0.1
	if chance(2) {
		c.Validation = sim.Validation{Every: 1 + pick(6), Rollouts: 1 + pick(60), NS: int64(pick(2)) * 20e9, Trainer: chance(2)}
	}
	work := c.Work.(*sim.Modelled).WithStep(sim.Step{CV: float64(pick(2)) * 0.3, Tokens: float64(pick(2)) * 1400 * float64(c.Loop.BatchGroups*c.Loop.GroupSize)})
	if c.Work = work; c.Agents != nil && chance(4) {
		a.Sessions, a.SessionTimes = recordedSessions(tb, rng, 1+pick(9), 1+pick(4)), chance(2)
		a.Seed = seed
		work.WithSessions(a.Sessions)
	}
}

// Every feature together with every rule: all decisions checked, the ledger
// balanced, the parts of the latency adding up, and twice the same bytes.
func TestEveryFeature(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	pick := func(n int) int { return rng.IntN(n) }
	stalls, runs := 0, 90
	if os.Getenv("HEADWAY_LONG") != "" {
		runs = 20_000
	}
	for i := range runs {
		s := setup{c: 8 + pick(40), s: 1 + pick(5), q: 1 + float64(pick(3)), rho: 0.4 + 1.5*rng.Float64(), tailness: float64(20 * pick(5)),
			seed: uint64(i), envS: float64(10 * pick(2)), accept: 0.7 + 0.3*float64(pick(2)), steps: 25}
		s.b = s.s * (1 + pick(5))
		s.rules = func(c *loop.Config) { anyRules(rng, c); c.TrainAttempts = 20; c.MaxAttempts = 4 }
		s.sim = func(c *sim.Config) {
			c.SyncNS, c.LoadNS, c.PrefillNSPerToken = int64(pick(3))*5e9, int64(pick(2))*3e9, float64(pick(2))*1e6
			c.PruneTokens, c.DriftPerVersion, c.DriftSpread = int32(pick(2)*2500), 0.1, 0.5
			if pick(2) == 0 {
				c.Speed = func(active int, busy bool) float64 { return 1 / (1 + float64(active)/20) }
			}
			anyAgents(t, rng, c, uint64(i))
		}
		cfg := s.solving(t, workload.SolveSpec{Kind: workload.KindLogistic, To: 2, Steps: 20, Spread: 1, Levels: []float64{-1, 0, 1}}).config(t)
		res, err := checked(t, cfg)
		if err != nil && !errors.Is(err, sim.ErrStalled) {
			t.Fatalf("setting %d: %v\n%+v", i, err, cfg.Loop)
		}
		if err != nil {
			stalls++
			t.Logf("setting %d: %v", i, err)
			continue
		}
		latencyAddsUp(t, res.Summary)
		if i%10 == 0 {
			a, _ := json.Marshal(res)
			b, _ := json.Marshal(run(t, cfg))
			if string(a) != string(b) {
				t.Errorf("setting %d: two runs give two results", i)
			}
		}
		if t.Failed() {
			t.Fatalf("setting %d: %+v\n%+v", i, cfg.Loop, cfg.Agents)
		}
	}
	if stalls > runs/10 {
		t.Errorf("%d of %d settings stall: hardly anything was tested", stalls, runs)
	}
}

func latencyAddsUp(t *testing.T, s metrics.Summary) {
	t.Helper()
	l := s.Latency
	sum := l.QueueS + l.PrefillS + l.DecodeS + l.SandboxWaitS + l.SandboxStartS + l.ToolWaitS + l.ToolS + l.EnvironmentS + l.VerifierWaitS + l.VerifierS + l.ScorerWaitS + l.ScorerS + l.InterruptedS
	if d := sum - l.EndToEndS; d > 1e-6*sum || d < -1e-6*sum {
		t.Errorf("latency of %v s, its parts %v s: %+v", l.EndToEndS, sum, l)
	}
	for _, part := range []float64{l.QueueS, l.PrefillS, l.DecodeS, l.SandboxWaitS, l.SandboxStartS, l.ToolWaitS, l.ToolS, l.EnvironmentS, l.VerifierWaitS, l.VerifierS, l.ScorerWaitS, l.ScorerS, l.InterruptedS} {
		if part < 0 {
			t.Errorf("a part of the latency is negative: %+v", l)
		}
	}
}
