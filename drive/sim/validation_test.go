package sim_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// What is validated takes as long as a rollout that waits for nothing: prompt and
// what tools return at its engine's speed, sandbox, calls, environment and verifier.
func TestValidatedRolloutsDoAllThatRolloutsDo(t *testing.T) {
	start := service(t, workload.TimesSpec{Kind: workload.KindFixed, MeanS: 100})
	calls := tools(t, workload.ToolsSpec{Calls: 3, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 4}})
	for name, test := range map[string]struct {
		agents sim.Agents
		envS   float64
		speed  float64
		beside float64 // seconds beside decoding
	}{
		"a sandbox for the environment": {sim.Agents{Sandboxes: &sim.Sandboxes{Start: start}}, 5, 1, 105},
		"a sandbox for nothing":         {sim.Agents{Sandboxes: &sim.Sandboxes{Start: start}}, 0, 1, 0},
		"a sandbox from the start":      {sim.Agents{Sandboxes: &sim.Sandboxes{Early: true, Start: start}}, 0, 1, 100},
		"all of it":                     {sim.Agents{Sandboxes: &sim.Sandboxes{Start: start}, Tools: calls, ToolTokens: 1000, PromptTokens: 2000, PrefillNSPerToken: 1e6, Verifier: sim.Review{Time: fixed(t, 7)}}, 5, 1, 2 + 3*(4+1) + 100 + 5 + 7},
		"a fast engine":                 {sim.Agents{PromptTokens: 1000, PrefillNSPerToken: 1e8}, 0, 2, 50},
		"a fast engine and a pool":      {sim.Agents{PromptTokens: 1000, PrefillNSPerToken: 1e8, Prefill: sim.PrefillPool, PrefillWorkers: 99}, 0, 2, 100},
	} {
		s := fed
		s.steps = 40
		cfg := s.agents(&test.agents).config(t)
		cfg.Work = constantEnvironment{cfg.Work, int64(test.envS * 1e9)}
		cfg.EngineSpeed, cfg.Validation = []float64{test.speed}, sim.Validation{Every: 10, Rollouts: s.c}
		res := run(t, cfg).Summary
		near(t, name+": an evaluation", res.Services.ValidationS/float64(res.Services.Validations), secondsFed/test.speed+test.beside, 1e-9)
		near(t, name+": a rollout", res.Latency.EndToEndS-res.Latency.DecodeS-res.Latency.QueueS, test.beside, 1e-9)
	}
}

// A context of more tokens than 32 bits count takes its time to be read again.
func TestLongContextsAreRead(t *testing.T) {
	s := fed
	s.rho = 0.9
	s.rules = func(c *loop.Config) { c.Sync = loop.SyncRestart }
	res := run(t, s.agents(&sim.Agents{PromptTokens: math.MaxInt32, PrefillNSPerToken: 1}).config(t)).Summary
	if least := float64(math.MaxInt32) / 1e9 * (1 + res.Partial.ResumedRatio); res.Partial.Resumed == 0 || res.Latency.PrefillS < least {
		t.Errorf("%d were resumed, reading took %v s, want at least %v", res.Partial.Resumed, res.Latency.PrefillS, least)
	}
}
