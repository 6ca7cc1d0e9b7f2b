package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/metrics"
)

// gainRegimes are simulated runs under which changes are suggested and then made: a few keys over
// gainBase each.
var gainRegimes = map[string][]string{
	"train-bound, long queue":    {"queue.factor=4", "modelled.train.step_s=60"},
	"train-bound, one batch":     {"rollout.concurrency=192", "modelled.train.step_s=60"},
	"balanced, two batches":      {"queue.factor=2", "modelled.train.step_s=28"},
	"balanced, one batch":        {"modelled.train.step_s=28"},
	"rollout-bound, many slots":  {"rollout.concurrency=256", "modelled.train.step_s=8"},
	"rollout-bound, few slots":   {"rollout.concurrency=64", "queue.factor=2", "modelled.train.step_s=20"},
	"long tail":                  {"rollout.concurrency=256", "modelled.length.tailness=80", "modelled.length.cap_tokens=20000", "queue.factor=2", "modelled.train.step_s=25"},
	"short tail":                 {"rollout.concurrency=192", "modelled.length.tailness=30", "queue.factor=3", "modelled.train.step_s=40"},
	"sync every fourth step":     {"modelled.train.step_s=20", "sync.every=4"},
	"slow sync, trainer blocked": {"rollout.concurrency=192", "modelled.train.step_s=20", "modelled.sync.time_s=10", "sync.trainer=blocked", "sync.mode=pause"},
	"environments":               {"rollout.concurrency=192", "modelled.environment={kind: exponential, mean_s: 20}", "queue.factor=2", "modelled.train.step_s=20"},
	"budget":                     {"rollout.concurrency=256", "queue.policy=max", "queue.max_staleness=6", "queue.factor=3", "modelled.train.step_s=40"},
	"bounded":                    {"rollout.concurrency=256", "queue.policy=bounded", "queue.eta=3", "modelled.train.step_s=15"},
	"threshold":                  {"rollout.concurrency=256", "queue.policy=threshold", "queue.staleness_threshold=1", "sync.every=2", "sync.mode=restart", "modelled.train.step_s=15"},
	"filtered":                   {"rollout.concurrency=256", "queue.factor=2", "modelled.filter.acceptance=0.6", "modelled.train.step_s=30"},
	"speed by utilization":       {"rollout.concurrency=256", "queue.factor=2", "modelled.train.utilization=1.6"},
	"GPUs, too many to roll out": {"rollout.concurrency=384", "queue.factor=1", "modelled.train.step_s=20", "hardware={gpus: 64, rollout_gpus: 48}"},
	"GPUs, too few to roll out":  {"rollout.concurrency=96", "queue.factor=1", "modelled.train.step_s=20", "hardware={gpus: 64, rollout_gpus: 16}"},
}

// gainBase is what they have in common.
const gainBase = `seed: 7
rollout:
  concurrency: 128
  group_size: 8
train: {batch: 128}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 1400, tailness: 50, cap_tokens: 8080}
`

// headwayJSON runs a command with --json and reads what it prints.
func headwayJSON(t *testing.T, into any, arguments ...string) {
	t.Helper()
	var out, problems strings.Builder
	if code := Main(append(slices.Clone(arguments), "--json"), strings.NewReader(""), &out, &problems); code != failure.ExitDone {
		t.Fatalf("headway %s: %s", strings.Join(arguments, " "), problems.String())
	}
	if err := json.Unmarshal([]byte(out.String()), into); err != nil {
		t.Fatal(err)
	}
}

// withSets appends overrides to a command line.
func withSets(line []string, overrides ...string) []string {
	line = slices.Clone(line)
	for _, o := range overrides {
		line = append(line, "--set", o)
	}
	return line
}

// gainOff is by how much a predicted gain may be off, as a share of it.
const gainOff = 0.1

// TestGainsHold makes every change that a diagnosis of a simulated run suggests, in a
// simulation of other draws and five times the length, and compares what it buys with what
// was predicted.
func TestGainsHold(t *testing.T) {
	skipShort(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(path, []byte(gainBase), 0o600); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(gainRegimes))
	if os.Getenv("HEADWAY_LONG") == "" {
		names = []string{"environments"}
	}
	made, worst := 0, 0.0
	for _, name := range names {
		recorded := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".trace")
		regime := withSets([]string{"simulate", path, "--accept-unsettled"}, gainRegimes[name]...)
		var s metrics.Summary
		headwayJSON(t, &s, append(withSets(regime, "steps.warmup=200", "steps.measured=1200"), "--trace", recorded)...)
		var r, quick diagnosis.Report
		headwayJSON(t, &r, "diagnose", recorded)
		if !r.Settled.OK {
			t.Errorf("%s: not settled: %s", name, r.Settled.Why)
			continue
		}
		truth := withSets(regime, "seed=11", "steps.warmup=300", "steps.measured=6000")
		var base metrics.Summary
		headwayJSON(t, &base, truth...)
		headwayJSON(t, &quick, "diagnose", "--quick", recorded)
		tried := map[string]metrics.Summary{}
		for _, f := range append(r.Findings, quick.Findings...) {
			if f.Change == nil || len(f.Change.Overrides) == 0 {
				continue
			}
			after, known := tried[f.Change.Set]
			if !known {
				headwayJSON(t, &after, withSets(truth, f.Change.Overrides...)...)
				tried[f.Change.Set] = after
			}
			made++
			worst = max(worst, compareGain(t, name, f, base, after))
		}
	}
	t.Logf("%d changes of %d regimes made: gains off by %.1f %% at most", made, len(names), 100*worst)
	if made < 4*len(names) {
		t.Errorf("%d changes were suggested, too few to say anything", made)
	}
}

// compareGain compares a change with what it was when it was made: the gain it was suggested for,
// in staleness or in period, and the price.
func compareGain(t *testing.T, name string, f diagnosis.Finding, base, after metrics.Summary) (off float64) {
	t.Helper()
	c := f.Change
	gain, period := 1-after.Staleness.Mean/base.Staleness.Mean, after.PeriodS.Mean/base.PeriodS.Mean
	what := fmt.Sprintf("%s, %s: %s (%s)", name, f.Code, c.Set, c.Method)
	if math.Abs(c.Gain) >= 0.05 {
		off = math.Abs(c.Gain-gain) / math.Abs(gain)
	}
	if 1-c.PeriodRatio >= 0.03 {
		off = max(off, math.Abs(c.PeriodRatio-period)/(1-period))
	}
	t.Logf("%-90s staleness %.1f %% lower, made %.1f %%; period x %.3f, made %.3f", what, 100*c.Gain, 100*gain, c.PeriodRatio, period)
	if off > gainOff {
		t.Errorf("%s: off by %.0f %%: gain %.3f, made %.3f; period x %.3f, made %.3f", what, 100*off, c.Gain, gain, c.PeriodRatio, period)
	}
	if math.Abs(c.PeriodRatio/period-1) > 0.02 {
		t.Errorf("%s: period x %.3f, made %.3f", what, c.PeriodRatio, period)
	}
	return off
}
