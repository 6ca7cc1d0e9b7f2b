package doctor

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// choices are values of keys that random documents are made of; the first of each
// is left out of the document.
var choices = [][]string{
	{"", "schedule=synchronous", "preset=verl-fully-async", "preset=prime-rl", "preset=slime", "preset=openrlhf", "preset=nemo-windowed"},
	{"", "queue.policy=max", "queue.policy=block", "queue.policy=bounded", "queue.policy=threshold", "queue.policy=replay"},
	{"", "queue.max_staleness=0", "queue.max_staleness=1", "queue.max_staleness=4"},
	{"", "queue.eta=0", "queue.eta=0.03", "queue.eta=2"},
	{"", "queue.staleness_threshold=0", "queue.staleness_threshold=0.5"},
	{"", "queue.factor=2", "queue.capacity=64", "queue.capacity=256"},
	{"", "queue.select=newest", "queue.select=oldest-version"},
	{"", "queue.hold=0.2", "queue.hold=0.7"},
	{"", "queue.pause_at=1", "queue.abort=true"},
	{"", "sync.mode=pause", "sync.mode=restart", "sync.mode=drain"},
	{"", "modelled.sync.time_s=2", "modelled.sync.time_s=50"},
	{"", "sync.every=3", "sync.trainer=blocked"},
	{"", "rollout.start=gang", "rollout.redundancy=2", "rollout.oversample=1.5"},
	{"", "rollout.partial.interrupt=batch", "rollout.prune.tokens=500"},
	{"", "rollout.concurrency=3", "rollout.concurrency=256"},
	{"", fixed, threeLong},
	{"", "modelled.environment={kind: exponential, mean_s: 4}"},
	{"", "modelled.train.utilization=0.3", "modelled.train.utilization=1.5", "modelled.train.utilization=40", "modelled.train.utilization=null"},
	{"", "modelled.filter.acceptance=0.4", "filter.zero_advantage=true", "filter.solve_rate.drop=true"},
	{"", solved, "modelled.solve={kind: logistic, from: -3, to: 3, steps: 100, levels: [-2, 2]}"},
	{"", "filter.curriculum.levels=2", "prompts.requeue=true", "prompts.count=50"},
}

// TestRandomDocuments examines documents of random keys: every valid one gives
// well-formed findings and no error, where doctor proves a bound it holds, and
// where it simulates a standstill a simulation of its own stands still.
func TestRandomDocuments(t *testing.T) {
	documents := 25
	if os.Getenv("HEADWAY_LONG") != "" {
		documents = 3000
	}
	random := rand.New(rand.NewPCG(3, 5))
	examined, refuted := 0, 0
	for examined < documents {
		overrides := []string{lengths}
		for _, values := range choices {
			if random.IntN(3) == 0 {
				if value := values[random.IntN(len(values))]; value != "" {
					overrides = append(overrides, value)
				}
			}
		}
		d, err := resolved(t, overrides...)
		if err != nil {
			if findings, all := Refuted(d, err); all {
				wellFormed(t, findings)
				refuted++
			}
			continue
		}
		examined++
		c := caseOf(t, overrides...)
		findings, err := Check(c)
		if err != nil {
			t.Fatalf("%q: %v", overrides, err)
		}
		wellFormed(t, findings)
		if c.Simulation == nil {
			continue
		}
		cfg := *c.Simulation
		cfg.Warmup, cfg.Measured = 0, 10
		p, err := simulate(cfg)
		if err != nil {
			t.Fatalf("%q: %v", overrides, err)
		}
		if _, found := find(findings, "stalls"); p.stalled != nil && !found {
			t.Errorf("%q: stands still, and nothing is found: %v", overrides, p.stalled)
		}
		if bound, why := newExamination(c).stalest(); bound >= 0 && p.stalest > loop.Version(bound) {
			t.Errorf("%q: staleness %d, more than %d: %s", overrides, p.stalest, bound, why)
		}
		if t.Failed() {
			t.Fatalf("under %q", overrides)
		}
	}
	if refuted == 0 {
		t.Error("no document was refused")
	}
}
