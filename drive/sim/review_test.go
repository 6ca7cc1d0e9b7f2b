package sim_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// recordedRun is a run with every event of it and all that followed.
func recordedRun(t *testing.T, s setup) (sim.Result, []string) {
	t.Helper()
	cfg := s.config(t)
	var events []string
	cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
		events = append(events, fmt.Sprint(ev, actions))
	}
	return run(t, cfg), events
}

// Scores that take no time leave every event where it is, and what scores without a limit is time of a verifier.
func TestScorerThatTakesNoTime(t *testing.T) {
	base := func() *sim.Agents {
		return &sim.Agents{Seed: 2, PromptTokens: 100, PrefillNSPerToken: 1e5, Verifier: sim.Review{Time: fixed(t, 3), Workers: 9}}
	}
	_, want := recordedRun(t, small.agents(base()))
	for name, review := range map[string]sim.Review{"a limit": {Workers: 1}, "a time of 0": {Time: fixed(t, 0), Workers: 2}} {
		a := base()
		a.Scorer = review
		if _, have := recordedRun(t, small.agents(a)); !slices.Equal(have, want) {
			t.Errorf("%s without a time changes the run: %d events, %d without it", name, len(have), len(want))
		}
	}
	_, judged := recordedRun(t, small.agents(&sim.Agents{Verifier: sim.Review{Time: fixed(t, 3), Workers: 9}}))
	if _, scored := recordedRun(t, small.agents(&sim.Agents{Scorer: sim.Review{Time: fixed(t, 3), Workers: 9}})); !slices.Equal(scored, judged) {
		t.Error("scorers and a verifier of the same time and number are two different runs")
	}
}

// More scorers are never slower, and none is as quick as no limit.
func TestMoreScorersAreNeverSlower(t *testing.T) {
	last := 0.0
	for _, workers := range []int{2, 3, 5, 8, 13, 0} {
		a := &sim.Agents{Seed: 7, PromptTokens: 400, Scorer: sim.Review{Time: service(t, workload.TimesSpec{Kind: workload.KindLognormal, MeanS: 3, Tailness: 60}), NSPerToken: 1e6, Workers: workers}}
		s := fed
		s.tailness = 60
		rate, _ := produced(t, s.agents(a))
		if rate < last*(1-1e-3) {
			t.Errorf("%d scorers produce %.4g rollouts a second, fewer %.4g", workers, rate, last)
		}
		last = rate
	}
}

// A prefill reads prompt, tools' outputs and response: its time is theirs, and nothing else's. The verdict comes before.
func TestScoringReadsTheWholeRollout(t *testing.T) {
	const calls, output, prompt, perTokenNS = 3, 200, 500, 2e6
	a := &sim.Agents{Tools: tools(t, workload.ToolsSpec{Calls: calls, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 1}}), ToolTokens: output, PromptTokens: prompt,
		Verifier: sim.Review{Time: fixed(t, 2)}, Scorer: sim.Review{NSPerToken: perTokenNS}}
	res := run(t, fed.agents(a).config(t)).Summary
	near(t, "a score", res.Latency.ScorerS, (prompt+calls*output+tokensFed)*perTokenNS/1e9, 1e-9)
	near(t, "a verdict", res.Latency.VerifierS, 2, 1e-9)
	if res.Latency.ScorerWaitS != 0 {
		t.Errorf("a rollout waits %v s for scorers without a limit", res.Latency.ScorerWaitS)
	}
}
