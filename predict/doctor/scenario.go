package doctor

import "slices"

// scenario is something that went wrong, or was asked, in a public project, and
// that a document shows before the run.
type scenario struct {
	// Name is the project and the number of its issue or pull request.
	Name string
	// What happened.
	What string
	// Source is its address.
	Source string
	// Codes are the findings that answer it, Keys the keys they are then about; none for any.
	Codes, Keys []string
}

// scenarios are what findings are known by. Those of docs/loop.md that doctor
// can find (1, 2, 7 and 9) come first.
var scenarios = []scenario{
	{"prime-rl 2812", "a staleness budget of 8 that cannot bind, because admission keeps the lag at 1", "https://github.com/PrimeIntellect-ai/prime-rl/issues/2812", []string{"budget-cannot-bind"}, nil},
	{"forge 557", "a budget of 0 with a slow sync evicts everything, and the run stands still", "https://github.com/meta-pytorch/torchforge/issues/557", []string{"budget-starves"}, []string{keyBudget}},
	{"slime 2238", "1536 rollouts in flight for a batch of 8: almost every completed group is dropped", "https://github.com/THUDM/slime/pull/2238", []string{"waste"}, []string{keyConcurrency}},
	{"AReaL 1396", "a worker count that scales capacity to zero: no group can start, and the rollout hangs", "https://github.com/areal-project/AReaL/pull/1396", []string{"no-slots", "no-batch", "eta-admits-nothing"}, nil},

	{"verl 4449", "a trigger of 1 with a threshold of 0 is documented as on-policy and behaves one step off", "https://github.com/verl-project/verl/issues/4449", []string{"on-policy"}, nil},
	{"verl 6780", "that on-policy mode does not match the synchronous trainer", "https://github.com/verl-project/verl/issues/6780", []string{"on-policy"}, nil},
	{"verl 7601", "which side idles, in order to choose the ratio of GPUs", "https://github.com/verl-project/verl/issues/7601", []string{"trainer-idle", "train-bound"}, nil},
	{"verl partial_rollout", "partial_rollout does nothing at a threshold of 0", "https://github.com/verl-project/verl/blob/main/docs/advance/fully_async.md", []string{"partial-without-effect"}, nil},
	{"verl staleness_threshold", "the threshold is a share of samples, and bounds no single trajectory", "https://github.com/verl-project/verl/blob/main/docs/advance/fully_async.md", []string{"threshold-mean"}, nil},
	{"verl train_batch_size", "a batch size that the fully asynchronous trainer ignores", "https://github.com/verl-project/verl/blob/main/docs/advance/fully_async.md", []string{"config"}, []string{"queue.train_batch_size", "queue.gen_batch_size"}},
	{"AReaL η", "the bound is of the mean: a single group exceeds it", "https://github.com/areal-project/AReaL", []string{"single-group-over-eta"}, nil},
	{"SkyRL workers", "more generation workers than B·(η+1) cannot be used", "https://github.com/NovaSky-AI/SkyRL", []string{"slots-idle"}, nil},
	{"NeMo-RL capacity", "a gated sampler whose buffer is below B·(window+1) deadlocks", "https://github.com/NVIDIA-NeMo/RL", []string{"capacity-below-admission", "no-batch"}, nil},
	{"NeMo-RL 3238", "one straggler of a group wedges the step", "https://github.com/NVIDIA-NeMo/RL/issues/3238", []string{"barrier"}, nil},
	{"NeMo-RL 3488", "64 nodes idle for hours after what generates is gone", "https://github.com/NVIDIA-NeMo/RL/issues/3488", []string{"engines-lost", "no-spare-engine"}, nil},
	{"ROLL 215", "agentic training stuck, and nothing says why", "https://github.com/alibaba/ROLL/issues/215", []string{"stalls"}, nil},
	{"prime-rl 2960", "cancelling wastes long agentic rollouts, and the siblings they are compared with", "https://github.com/PrimeIntellect-ai/prime-rl/pull/2960", []string{"abort-waste"}, nil},
	{"slime 1800", "nothing controls versions or staleness", "https://github.com/THUDM/slime/issues/1800", []string{"no-staleness-bound"}, nil},
	{"slime 2092", "one sample mixes three versions, unmasked", "https://github.com/THUDM/slime/pull/2092", []string{"mixed-versions"}, nil},
	{"tinker-cookbook 822", "discarding and requeueing starves slow prompts and biases the data", "https://github.com/thinking-machines-lab/tinker-cookbook/pull/822", []string{"requeue-bias", "discard-bias"}, nil},
	{"OpenRLHF 1015", "how speed and quality vary with the queue's size", "https://github.com/OpenRLHF/OpenRLHF/pull/1015", []string{"queue-factor"}, nil},
	{"PipelineRL ring buffer", "with no bound on lag, a full ring buffer drops its oldest data", "https://github.com/ServiceNow/PipelineRL", []string{"waste", "no-staleness-bound"}, nil},
	{"AReaL 1481", "a bounded deque evicts silently", "https://github.com/areal-project/AReaL/issues/1481", []string{"waste"}, nil},
	{"marin 8955", "how to allocate train against inference; asynchronous arms discarded a fifth of their groups", "https://github.com/marin-community/marin/issues/8955", []string{"train-bound", "trainer-idle", "waste"}, nil},
	{"UniRL 94", "no speed-up from asynchrony alone where generation dominates", "https://github.com/Tencent-Hunyuan/UniRL/issues/94", []string{"trainer-idle"}, []string{keyUtilization, "modelled.train.step_s", "modelled.train.throughput_tokens_per_s"}},
	{"verl uni-agent", "960 sandboxes: starts that die, and one-hour start-ups; 3 to 8 % of rollouts at the length cap", "SemiAnalysis, RL Systems Mind the Gap, 2026-06-16", []string{"service-saturated", "sandboxes-limit", "groups-fail", "length-cap"}, nil},
}

// knownAs names the scenarios that a finding answers.
func knownAs(f Finding) []string {
	var names []string
	for _, s := range scenarios {
		if slices.Contains(s.Codes, f.Code) && (len(s.Keys) == 0 || slices.Contains(s.Keys, f.Key)) {
			names = append(names, s.Name)
		}
	}
	return names
}
