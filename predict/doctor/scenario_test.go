package doctor

import (
	"slices"
	"testing"
)

// shown are documents that show a scenario, by its name, with the finding that answers it.
var shown = []struct {
	scenario, code string
	document       []string
}{
	{"prime-rl 2812", "budget-cannot-bind", []string{lengths, "preset=prime-rl"}},
	{"forge 557", "budget-starves", []string{"queue={policy: max, max_staleness: 0}", "modelled.sync.time_s=20"}},
	{"slime 2238", "waste", []string{lengths, "rollout={concurrency: 1536, group_size: 8}", "train={batch: 8}", "modelled.train={utilization: null, step_s: 6}"}},
	{"AReaL 1396", "no-slots", []string{gang, "rollout.concurrency=3"}},
	{"AReaL 1396", "no-batch", []string{"queue.pause_at=0.5"}},
	{"AReaL 1396", "eta-admits-nothing", []string{"queue={policy: bounded, eta: 0.03}"}},
	{"verl 4449", "on-policy", []string{"queue={policy: threshold, staleness_threshold: 0, trigger_parameter_sync_step: 1}"}},
	{"verl 6780", "on-policy", []string{"queue={policy: threshold, staleness_threshold: 0, trigger_parameter_sync_step: 1}"}},
	{"verl 7601", "trainer-idle", []string{lengths, "modelled.train.utilization=0.5"}},
	{"verl 7601", "train-bound", []string{lengths, "modelled.train.utilization=2"}},
	{"verl partial_rollout", "partial-without-effect", []string{"queue={policy: threshold, staleness_threshold: 0, partial_rollout: true}"}},
	{"verl staleness_threshold", "threshold-mean", []string{lengths, "queue={policy: threshold, staleness_threshold: 0.5}"}},
	{"verl train_batch_size", "config", []string{"queue={policy: threshold, staleness_threshold: 0.5, gen_batch_size: 8}"}},
	{"AReaL η", "single-group-over-eta", []string{lengths, "preset=areal", "queue.eta=2"}},
	{"SkyRL workers", "slots-idle", []string{"preset=skyrl", "queue.eta=1", "rollout.concurrency=768"}},
	{"NeMo-RL capacity", "capacity-below-admission", []string{"queue={policy: bounded, eta: 2, capacity: 64}"}},
	{"NeMo-RL capacity", "no-batch", []string{"queue={policy: block, capacity: 32}"}},
	{"NeMo-RL 3238", "barrier", []string{"modelled.length={kind: lognormal, mean_tokens: 300, tailness: 50}", "schedule=synchronous"}},
	{"NeMo-RL 3488", "engines-lost", []string{"engines=[{slots: 64, name: a}]", "failures.engine_plan=[{engine: a, at_s: 100}]"}},
	{"NeMo-RL 3488", "no-spare-engine", []string{gang, "rollout.concurrency=6", "engines=[{slots: 3}, {slots: 3}]"}},
	{"ROLL 215", "stalls", []string{lengths, "rollout.prune.tokens=1"}},
	{"prime-rl 2960", "abort-waste", []string{threeLong, "queue={policy: max, max_staleness: 2, abort: true}", "rollout.concurrency=128"}},
	{"slime 1800", "no-staleness-bound", []string{threeLong, "rollout.concurrency=128"}},
	{"slime 2092", "mixed-versions", []string{"trainer.correction.kind=none", "sync.mode=restart"}},
	{"tinker-cookbook 822", "requeue-bias", []string{threeLong, "queue={policy: max, max_staleness: 3, factor: 2}", "rollout.concurrency=128", "prompts.requeue=true"}},
	{"tinker-cookbook 822", "discard-bias", []string{threeLong, "queue={policy: max, max_staleness: 3, factor: 2}", "rollout.concurrency=128"}},
	{"OpenRLHF 1015", "queue-factor", []string{lengths, "queue.factor=4", "modelled.train.utilization=1.6"}},
	{"PipelineRL ring buffer", "waste", []string{threeLong, "preset=pipelinerl", "modelled.train.utilization=1.6"}},
	{"PipelineRL ring buffer", "no-staleness-bound", []string{threeLong, "preset=pipelinerl", "rollout.concurrency=128"}},
	{"AReaL 1481", "waste", []string{lengths, "modelled.train.utilization=2"}},
	{"marin 8955", "waste", []string{lengths, "modelled.train.utilization=1.25"}},
	{"marin 8955", "train-bound", []string{lengths, "modelled.train.utilization=1.25"}},
	{"marin 8955", "trainer-idle", []string{lengths, "modelled.train.utilization=0.5"}},
	{"UniRL 94", "trainer-idle", []string{lengths, "modelled.train.utilization=0.3"}},
	{"verl uni-agent", "service-saturated", []string{lengths, "rollout.concurrency=96", "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 6}, start_concurrency: 16, start_timeout_s: 600}"}},
	{"verl uni-agent", "sandboxes-limit", []string{lengths, "rollout.concurrency=96", "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 1}, limit: 24}"}},
	{"verl uni-agent", "groups-fail", []string{lengths, "modelled.sandbox={when: rollout, start: {kind: exponential, mean_s: 30}, start_concurrency: 16, start_timeout_s: 60}"}},
	{"verl uni-agent", "length-cap", []string{"modelled.length={kind: lognormal, mean_tokens: 300, tailness: 70, cap_tokens: 900}"}},
}

// Every scenario is found by name in a document that shows it, by every finding
// that is said to answer it, and not in the plain document.
func TestScenariosAreFound(t *testing.T) {
	for _, s := range shown {
		found, plain := examineFor(t, s.document, s.code), examineFor(t, []string{nearlyFixed}, s.code)
		named := func(f Finding) bool { return f.Code == s.code && slices.Contains(f.Scenarios, s.scenario) }
		if !slices.ContainsFunc(found, named) {
			t.Errorf("%s is not found as %s in %q", s.scenario, s.code, s.document)
		}
		if slices.ContainsFunc(plain, named) {
			t.Errorf("%s is found as %s in a plain document", s.scenario, s.code)
		}
	}
	for _, s := range scenarios {
		for _, code := range s.Codes {
			if !slices.ContainsFunc(kinds(), func(k Kind) bool { return k.Code == code }) {
				t.Errorf("%s is answered by %s, which is no kind", s.Name, code)
			}
			exists := false
			for _, d := range shown {
				exists = exists || d.scenario == s.Name && d.code == code
			}
			if !exists {
				t.Errorf("no document shows %s as %s", s.Name, code)
			}
		}
	}
}
