package metrics

import (
	"testing"

	"github.com/headway-rl/headway/loop"
)

// TestBinding feeds summaries by hand: what binds follows from who waits for whom.
func TestBinding(t *testing.T) {
	for name, c := range map[string]struct {
		trainerIdle, syncIdle, environment int64 // of 100 of wall time; of 100 of a rollout's
		utilization, rolloutIdle           float64
		want                               string
	}{
		"a busy trainer":                                    {1, 0, 0, 1.2, 0, "train"},
		"a queue that is short now and then":                {8, 0, 0, 1.1, 0, "train"},
		"engines too slow":                                  {40, 0, 10, 0.6, 0, "rollout"},
		"tools too slow":                                    {40, 0, 80, 0.6, 0, "environment"},
		"a trainer that waits for syncs":                    {30, 20, 0, 1.3, 0.3, "sync"},
		"engines held back by admission":                    {20, 2, 0, 0.9, 0.5, "admission"},
		"engines held back for a trainer that hardly waits": {8, 1, 0, 0.9, 0.5, "train"},
		"a barrier: both wait, mostly for the tail":         {80, 0, 10, 0.2, 0.82, "rollout"},
	} {
		r := NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
		r.run.NowNS = 100
		r.window.trainerIdleNS, r.window.syncIdleNS, r.window.environmentNS, r.window.durationNS = c.trainerIdle, c.syncIdle, c.environment, 100
		if got := r.binding(c.utilization, c.rolloutIdle); got != c.want {
			t.Errorf("%s: %s binds, want %s", name, got, c.want)
		}
	}
}
