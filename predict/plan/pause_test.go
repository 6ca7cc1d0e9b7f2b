package plan

import (
	"strings"
	"testing"
)

// Pauses that are long against a period, for rollouts that are outside their engine
// meanwhile, have no closed form; short ones, and pauses of rollouts that are never
// outside, have.
func TestLongPausesBesideAnEnvironmentAreSimulated(t *testing.T) {
	const environment = "modelled.environment={kind: exponential, mean_s: 30}"
	for _, c := range []struct {
		covered   bool
		overrides []string
	}{
		{false, []string{environment, "sync={mode: pause, trainer: blocked}", "modelled.sync={time_s: 20}"}},
		{true, []string{environment, "sync={mode: pause}", "modelled.sync={time_s: 0.01}"}},
		{true, []string{environment, "sync={mode: in_flight}", "modelled.sync={time_s: 20}"}},
		{true, []string{"sync={mode: pause}", "modelled.sync={time_s: 20}"}},
	} {
		p := problemOf(t, small, c.overrides...)
		eval, err := newEvaluator(&p)
		if err != nil {
			t.Fatal(err)
		}
		at := Candidate{Setting: Setting{RolloutGPUs: 12, TrainGPUs: 4, Replicas: 12, SlotsPerReplica: 32, BatchRollouts: 256, QueueFactor: 1, Policy: "drop", SyncEvery: 1}}
		eval.evaluate(&at)
		if got := !strings.Contains(at.Uncovered, "while engines pause"); got != c.covered {
			t.Errorf("%v: covered %v (%s), want %v", c.overrides, got, at.Uncovered, c.covered)
		}
	}
}
