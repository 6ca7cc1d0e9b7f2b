package config

// Reasons that several names have in common.
const (
	whyModelled = "only simulations and predictions use it: a run measures its own"
	whyVerifier = "one name for what gives rewards"
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
	{"flag", "receive --verify", "receive", "every file is compared with its hash, so that the flag is gone"},
	{"json", "latency.judge_wait_s", "latency.verifier_wait_s", whyVerifier},
	{"json", "latency.judge_s", "latency.verifier_s", whyVerifier},
	{"value", "binding: judge", "binding: verifier", whyVerifier},
	{"json", "environment.verifier.judge_s", "environment.verifier.verdict_s", "it is the time of a verdict"},
	{"json", "environment.verifier.judging", "environment.verifier.running", "it counts the cases that run"},
	{"json", "environment.book", "environment.task_counts", "it counts the attempts at tasks"},
	{"json", "sender.groups", "sender.collectives", "groups are rollouts of one prompt"},
	{"json", "verdict, verdicts", "conclusion, conclusions", "a verdict is the verifier's; a bias, a comparison of schedules and a study come to a conclusion"},
	{"json", "prediction.calibration", "prediction.probe", "headway calibrate measures an engine; this is what the probe before a run's first step measured"},
	{"value", "judge_wait, judge", "verifier_wait, verifier", "kinds of spans in episodes.jsonl and parts in a status. " + whyVerifier + ". Records of earlier versions are read as they are"},
	{"label", `headway_binding{side="judge"}`, `headway_binding{side="verifier"}`, whyVerifier},
	{"label", `headway_verifier_seconds{part="judge"}`, `headway_verifier_seconds{part="verdict"}`, "it is the time of a verdict"},
	{"label", `headway_episode_seconds{part="judge_wait"}`, `headway_episode_seconds{part="verifier_wait"}`, whyVerifier},
	{"label", `headway_episode_seconds{part="judge"}`, `headway_episode_seconds{part="verifier"}`, whyVerifier},
	{"file", "tasks.book", "task_counts.log", "it counts the attempts at tasks. The file of an earlier version is renamed"},
	{"file", "groups.json", "collectives.json", "groups are rollouts of one prompt. The file of an earlier version is renamed"},
	{"file", "judge-bound.yaml", "verifier-bound.yaml", "of the examples: " + whyVerifier},
	{"command", "headway study", "go run ./cmd/lab study", "the studies need a checkout of the repository"},
}
