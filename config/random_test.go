package config

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// drawn are keys with values to draw from, right and wrong together and apart.
var drawn = [][]string{
	{"rollout.group_size", "1", "2", "4", "8"}, {"rollout.concurrency", "1", "6", "32", "200"}, {"train.batch", "8", "16", "32", "40"},
	{"rollout.start", "gang", "stream"}, {"rollout.placement", "cache_aware", "least_loaded"}, {"rollout.redundancy", "0", "2", "65535"}, {"rollout.oversample", "1", "1.4", "1000"},
	{"rollout.partial.interrupt", "none", "batch"}, {"rollout.partial.max_spans", "0", "3"}, {"rollout.prune.tokens", "0", "500"},
	{"schedule", "asynchronous", "synchronous"}, {"queue.policy", "drop", "max", "block", "bounded", "threshold", "replay"},
	{"queue.factor", "1", "1.3", "9"}, {"queue.capacity", "8", "16", "32", "64"}, {"queue.select", "newest", "oldest-version"},
	{"queue.hold", "0", "0.2", "0.9"}, {"queue.hold_adaptive", "true", "false"}, {"queue.hold_cost", "0", "0.02"}, {"queue.pause_at", "0", "1", "2.5"}, {"queue.max_staleness", "0", "1", "6"}, {"queue.abort", "true", "false"},
	{"queue.eta", "0", "0.5", "4"}, {"queue.staleness_threshold", "0", "0.1", "1", "3"}, {"queue.evict", "version", "drift"},
	{"queue.gamma", "0.5", "1"}, {"queue.balance", "true", "false"}, {"queue.max_uses", "1", "5"}, {"prompts.count", "0", "7"}, {"prompts.requeue", "true"},
	{"queue.trigger_parameter_sync_step", "1", "4"}, {"queue.ppo_mini_batch_size", "2", "5"}, {"queue.require_batches", "1", "3"},
	{"queue.partial_rollout", "true", "false"}, {"queue.rollout.n", "2", "4"}, {"queue.use_rollout_log_probs", "true", "false"},
	{"queue.total_rollout_steps", "1", "300"}, {"queue.test_freq", "-1", "3"}, {"sync.mode", "in_flight", "pause", "restart", "drain"},
	{"sync.every", "1", "2", "6"}, {"modelled.sync.time_s", "0", "2"}, {"sync.trainer", "free", "blocked"}, {"sync.switch", "fleet", "rolling"},
	{"filter.zero_advantage", "true", "false"}, {"filter.solve_rate.drop", "true", "false"}, {"filter.solve_rate.low", "0", "0.3", "0.95"},
	{"filter.solve_rate.high", "0", "0.8", "1"}, {"filter.curriculum.levels", "0", "1", "4"}, {"filter.curriculum.low", "0", "0.3"},
	{"filter.curriculum.explore", "0", "1"}, {"trainer.correction.kind", "tis", "decoupled-ppo"}, {"trainer.minibatches", "1", "3"},
	{"failures.on_failure", "shrink", "drop_group"}, {"failures.group_min", "1", "3"}, {"modelled.failures.engine_mtbf_s", "9000"}, {"modelled.failures.engine_down_s", "60"},
	{"modelled.tools.calls", "0", "3.5"}, {"modelled.tools.time.mean_s", "0", "4"}, {"modelled.tools.retries", "0", "2"}, {"modelled.tools.failure_rate", "0", "0.1"},
	{"modelled.tools.calls_kind", "fixed", "poisson"}, {"modelled.sandbox.start.mean_s", "20"}, {"modelled.sandbox.limit", "8"}, {"modelled.sandbox.when", "rollout", "first_call"},
	{"modelled.verifier.time.mean_s", "0", "3"}, {"modelled.verifier.time.tailness", "50"}, {"modelled.verifier.concurrency", "4"}, {"modelled.scorer.time.mean_s", "0", "2"}, {"modelled.scorer.tokens_per_s", "4000"}, {"modelled.scorer.concurrency", "4"}, {"modelled.prefill.mode", "slot", "pool"},
	{"modelled.prefill.tokens_per_s", "1e4"}, {"modelled.prefill.workers", "2"}, {"modelled.prompt_tokens", "0", "700"}, {"rollout.drift.steps", "100"},
	{"rollout.drift.length_factor", "0.5", "2"}, {"modelled.train.step_by", "tokens", "constant"}, {"modelled.train.step_cv", "0", "0.2"}, {"modelled.evaluate.occupies", "engines", "none"},
	{"modelled.sync.load_s", "0", "3"},
	{"control.target", "2", "0.5"}, {"control.target.share", "0.9"}, {"control.target.within", "0", "4"}, {"control.target.of", "tokens", "rollouts"},
	{"control.window", "1", "32"}, {"control.limits.concurrency.least", "1", "12"}, {"control.limits.live_groups.most", "4", "20"},
	{"control.limits.hold.most", "0", "0.7"}, {"control.limits.queue_factor.least", "1", "1.2"}, {"control.limits.sync_every.most", "1", "4"},
	{"control.limits.redundancy.least", "0", "1"}, {"control.limits.engines.least", "1"},
	{"preset", "verl-fully-async", "areal", "prime-rl", "skyrl", "nemo-windowed", "pipelinerl", "slime", "openrlhf", "one-step-off", "synchronous"},
}

// Whatever keys come together, what resolves is a loop, prints, and resolves
// again to itself; what does not is refused for a key, never by the loop alone.
func TestRandomDocuments(t *testing.T) {
	resolved, seeds := 0, uint64(1100)
	if os.Getenv("HEADWAY_LONG") != "" {
		seeds = 33000
	}
	for seed := range seeds {
		draw := rand.New(rand.NewPCG(seed, 1))
		var document, overrides []string
		for range 1 + draw.IntN(7) {
			key := drawn[draw.IntN(len(drawn))]
			setting := key[0] + "=" + key[1+draw.IntN(len(key)-1)]
			if draw.IntN(3) > 0 {
				document = append(document, setting)
			} else {
				overrides = append(overrides, setting)
			}
		}
		c, err := documentOf(t, document)
		if err == nil {
			if c, err = c.Set(overrides...); err == nil {
				c, err = c.Resolve()
			}
		}
		what := fmt.Sprintf("seed %d: %q with --set %q", seed, document, overrides)
		if err != nil {
			if strings.Contains(err.Error(), "describes no loop") {
				t.Errorf("%s names no key: %v", what, err)
			}
			continue
		}
		resolved++
		if err := c.LoopConfig().WithDefaults().Validate(); err != nil {
			t.Errorf("%s: the loop refuses what resolves: %v", what, err)
		}
		again := mustLoad(t, string(c.YAML()))
		if !again.Equal(c) {
			t.Errorf("%s resolves to\n%s\nand that to\n%s", what, c.YAML(), again.YAML())
		}
	}
	if 9*uint64(resolved) < seeds {
		t.Errorf("only %d of %d documents resolve: the draw tests little", resolved, seeds)
	}
}

// documentOf is a document of settings, the last of equals counting. Each is
// written as a dotted key.
func documentOf(t *testing.T, settings []string) (Config, error) {
	t.Helper()
	last := map[string]string{}
	var keys []string
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if _, ok := last[key]; !ok {
			keys = append(keys, key)
		}
		last[key] = value
	}
	var text strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&text, "%s: %s\n", key, last[key])
	}
	return Parse("random.yaml", []byte(text.String()))
}
