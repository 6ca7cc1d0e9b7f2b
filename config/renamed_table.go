package config

// Reasons that several names have in common.
const (
	whyModelled = "only simulations and predictions use it: a run measures its own"
	whyFailures = "only simulations use it: they lose engines and train steps at random, a run does not"
)

// renamed is the one table of names that changed. It makes the errors about old keys, their
// migration and docs/reference/renamed.md.
var renamed = []Renamed{
	{kindKey, "rollout.length", "modelled.length", whyModelled},
	{kindKey, "rollout.environment", "modelled.environment", "only simulations use it, instead of environment.service_time, which sets the waits of a run"},
	{kindKey, "rollout.solve", "modelled.solve", whyModelled},
	{kindKey, "rollout.decode_tokens_per_s", "modelled.decode_tokens_per_s", whyModelled},
	{kindKey, "rollout.throughput_tokens_per_s", "modelled.throughput_tokens_per_s", whyModelled},
	{kindKey, "rollout.decode_curve", "modelled.decode_curve", whyModelled},
	{kindKey, "rollout.prompt_tokens", "modelled.prompt_tokens", whyModelled},
	{kindKey, "rollout.prefill", "modelled.prefill", whyModelled},
	{kindKey, "rollout.tools", "modelled.tools", "only simulations use it; in a run set environment.tools"},
	{kindKey, "rollout.sandbox", "modelled.sandbox", "only simulations use it; in a run set sandbox"},
	{kindKey, "rollout.judge", "modelled.verifier", "only simulations use it; in a run set environment.verifier"},
	{kindKey, "train.utilization", "modelled.train.utilization", whyModelled},
	{kindKey, "train.step_s", "modelled.train.step_s", "only simulations use it; in a run trainer.step_s is the least time of a train step"},
	{kindKey, "train.throughput_tokens_per_s", "modelled.train.throughput_tokens_per_s", whyModelled},
	{kindKey, "train.step_by", "modelled.train.step_by", whyModelled},
	{kindKey, "train.step_cv", "modelled.train.step_cv", whyModelled},
	{kindKey, "train.failure_rate", "modelled.train.failure_rate", whyFailures},
	{kindKey, "train.drift_nats_per_version", "modelled.train.drift_nats_per_version", whyModelled},
	{kindKey, "train.drift_spread", "modelled.train.drift_spread", whyModelled},
	{kindKey, "sync.time_s", "modelled.sync.time_s", whyModelled},
	{kindKey, "sync.load_s", "modelled.sync.load_s", whyModelled},
	{kindKey, "sync.prefill_tokens_per_s", "modelled.sync.prefill_tokens_per_s", whyModelled},
	{kindKey, "filter.acceptance", "modelled.filter.acceptance", whyModelled},
	{kindKey, "fleet.start_s", "modelled.fleet.start_s", whyModelled},
	{kindKey, "evaluate.occupies", "modelled.evaluate.occupies", whyModelled},
	{kindKey, "evaluate.time_s", "modelled.evaluate.time_s", whyModelled},
	{kindKey, "failures.engine_mtbf_s", "modelled.failures.engine_mtbf_s", whyFailures},
	{kindKey, "failures.engine_down_s", "modelled.failures.engine_down_s", whyFailures},
	{kindKey, "engines[].speed", "engines[].modelled_speed", "only simulations use it, relative to what modelled says; an engine of a run has its own speed"},
	{kindKey, "store.sync", "store.durability", "sync is how weights reach the engines; this says which failures the log survives"},
	{kindKey, "gateway.tools", "gateway.tool_format", "it names the way that a model writes calls, not the tools"},
	{kindKey, "sandbox.time_s", "sandbox.timeout_s", "it is a limit; the times of tools are under modelled.tools and modelled.sandbox"},
	{kindKey, "environment.warmup_steps", "environment.supervised_steps", "steps.warmup are train steps that a simulation leaves out; these are supervised steps before the first version"},
	{kindKey, "queue.size", "queue.capacity", "it was a synonym under policy replay"},
	{"flag", "plan --calibrate", "plan --measured", "headway calibrate measures an engine; this takes what a run measured"},
	{"flag", "receive --sync", "receive --durable", "a sync is of weights; this says that a version survives a loss of power"},
	{"command", "headway study", "go run ./cmd/lab study", "the studies need a checkout of the repository"},
}
