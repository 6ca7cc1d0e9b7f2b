package golden_test

import "testing"

func TestTruth(t *testing.T) {
	for _, run := range truthRuns {
		t.Run(run.framework, func(t *testing.T) {
			truth := simulateTruth(t, run.framework, run.document)
			m, tok, per, inf, q, drop := 0.0, 0.0, 0.0, 0, 0, 0
			for _, s := range truth.Steps[10:] {
				m += s.Staleness
				tok += s.Token
				per += s.Period
				inf += s.InFlight
				q += s.Queued
				drop += s.Dropped
			}
			n := float64(len(truth.Steps) - 10)
			t.Logf("%+v stale %.3f token %.3f period %.2f inflight %.1f queued groups %.1f dropped %d rollouts %d", truth.Settings, m/n, tok/n, per/n, float64(inf)/n, float64(q)/n, drop, len(truth.Rollouts))
		})
	}
}
