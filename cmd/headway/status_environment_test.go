package main

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/failure"
)

// What a control plane plays itself stands in its status: where the time goes, what failed, and what of it
// is the sandboxes'.
func TestStatusOfAnEnvironment(t *testing.T) {
	status := busyStatus()
	status.Environment = &protocol.EnvironmentStatus{
		Kind: "tasks", Tasks: 400,
		Episodes: protocol.Episodes{Playing: 12, Scored: 200, Failed: 7, Unwanted: 3, RewardSum: 50, Failures: map[string]int64{"lost": 2, "start_failed": 5}, Limits: map[string]int64{"out_of_memory": 4},
			Parts: []protocol.Spent{{Part: "model", Episodes: 200, MeanS: 2.5, P50S: 2, P99S: 9}, {Part: "tool", Episodes: 150, MeanS: 0.25, P50S: 0.2, P99S: 1.5}}},
		Sandboxes: &protocol.Sandboxes{Driver: "process", Lacks: "files and network\x1b[2J are the host's", Leased: 9, Warm: 2, WarmWanted: 4, Waiting: 1, Created: 100, Reused: 20, Hits: 90,
			StartS: protocol.Quantiles{P50: 0.007, P99: 0.03}, Broken: true, Failures: map[string]int64{"start_failed": 5}},
		Verifier: &protocol.Verifier{Kind: "tests", Verdicts: 200, Running: 1, VerdictS: protocol.Quantiles{P50: 0.1, P99: 0.4}},
	}
	url := serveStatus(t, status, api.Options{})
	out, _, code := askStatus(t, url)
	for _, want := range []string{
		"12 being played · 200 scored, mean reward 0.25 · 3 given up · 7 failed (5 start_failed, 2 lost)", "tools 250 ms an episode (p50 200 ms, p99 1.5 s) in 150 of them",
		"limits that code met: 4 out_of_memory", "process · 9 in use, 2 ready of 4 wanted", "waiting for one: 1 rollout ", "held to be sick", "90 of 120 stood ready",
		"no boundary: files and network?[2J are the host's", "tests · 200 verdicts",
	} {
		if flat := strings.Join(strings.Fields(out), " "); code != failure.ExitDone || !strings.Contains(flat, want) {
			t.Errorf("code %d, and no %q in\n%s", code, want, out)
		}
	}
	if out, _, code = askStatus(t, url, "--json"); code != failure.ExitDone || !strings.Contains(out, `"start_failed": 5`) || !strings.Contains(out, `"sandboxes"`) {
		t.Errorf("code %d, JSON\n%s", code, out)
	}
}

// Where rollouts wait for workers, their number binds, and nothing that diagnose could price.
func TestStatusOfTooFewWorkers(t *testing.T) {
	for offered, want := range map[int]string{48: "workers bind: 48 of 64 rollouts wait for one", 2: "environments bind"} {
		s := protocol.Status{Binding: "environment", Workers: protocol.Workers{Known: 1, Claimed: 64 - offered, Offered: offered}}
		if says := bindingOf(s); !strings.HasPrefix(says, want) {
			t.Errorf("%d of 64 wait: %s", offered, says)
		}
	}
}
