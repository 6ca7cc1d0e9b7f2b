package golden_test

// truthRuns are the simulated runs, one a framework, each under its own rules and with figures
// of its own, so that a unit mistaken for another shows.
var truthRuns = []struct{ framework, document string }{
	{"verl-fa", `
preset: verl-fully-async
seed: 21
rollout: {concurrency: 96, group_size: 4}
train: {batch: 32}
sync: {every: 4}
queue: {staleness_threshold: 0.5}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 600, tailness: 20, cap_tokens: 3200}
  environment: {kind: exponential, mean_s: 1}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 4.5, step_cv: 0.1}
  sync: {time_s: 0.8}
steps: {warmup: 0, measured: 48}
`},
	{"verl-v1", `
preset: prime-rl
seed: 22
rollout: {concurrency: 128, group_size: 8}
train: {batch: 64}
sync: {trainer: blocked}
queue: {max_staleness: 4}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 500, tailness: 20, cap_tokens: 3000}
  environment: {kind: none}
  solve: {kind: fixed, rate: 0.4}
  train: {step_s: 6, step_cv: 0.1}
  sync: {time_s: 0.6}
steps: {warmup: 0, measured: 40}
`},
	{"prime-rl", `
preset: prime-rl
seed: 23
rollout: {concurrency: 160, group_size: 8}
train: {batch: 64}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 700, tailness: 30, cap_tokens: 5000}
  environment: {kind: exponential, mean_s: 2}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 5, step_cv: 0.15}
  sync: {time_s: 0.5}
steps: {warmup: 0, measured: 40}
`},
	{"skyrl", `
preset: skyrl
seed: 24
rollout: {concurrency: 120, group_size: 5}
train: {batch: 40}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 550, tailness: 25, cap_tokens: 4000}
  environment: {kind: exponential, mean_s: 1}
  solve: {kind: fixed, rate: 0.3}
  train: {step_s: 4, step_cv: 0.1}
  sync: {time_s: 0.7}
steps: {warmup: 0, measured: 40}
`},
	{"areal", `
preset: areal
seed: 25
rollout: {concurrency: 144, group_size: 6}
train: {batch: 48}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 600, tailness: 25, cap_tokens: 4000}
  environment: {kind: exponential, mean_s: 1.5}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 4.2, step_cv: 0.1}
  sync: {time_s: 0.9}
steps: {warmup: 0, measured: 40}
`},
	{"pipelinerl", `
preset: pipelinerl
seed: 26
rollout: {concurrency: 128, group_size: 8}
train: {batch: 64}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 500, tailness: 20, cap_tokens: 3000}
  environment: {kind: exponential, mean_s: 0.5}
  solve: {kind: fixed, rate: 0.6}
  train: {step_s: 4.8, step_cv: 0.1}
  sync: {time_s: 0.4}
steps: {warmup: 0, measured: 40}
`},
	{"slime", `
preset: openrlhf
seed: 27
rollout: {concurrency: 96, group_size: 8}
train: {batch: 64}
sync: {mode: pause}
queue: {factor: 1.5}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 500, tailness: 20, cap_tokens: 3000}
  environment: {kind: none}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 7, step_cv: 0.1}
  sync: {time_s: 1.1}
steps: {warmup: 0, measured: 36}
`},
	{"nemo-rl", `
preset: nemo-windowed
seed: 28
rollout: {concurrency: 64, group_size: 4}
train: {batch: 32}
queue: {max_staleness: 3}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 400, tailness: 15, cap_tokens: 2400}
  environment: {kind: exponential, mean_s: 1}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 5, step_cv: 0.1}
  sync: {time_s: 1.3}
steps: {warmup: 0, measured: 40}
`},
	{"nemo-rl-sc", `
preset: nemo-windowed
seed: 32
rollout: {concurrency: 80, group_size: 4}
train: {batch: 40}
queue: {max_staleness: 2}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 400, tailness: 15, cap_tokens: 2400}
  environment: {kind: exponential, mean_s: 1}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 5.5, step_cv: 0.1}
  sync: {time_s: 0.8}
steps: {warmup: 0, measured: 40}
`},
	{"openrlhf", `
preset: openrlhf
seed: 29
rollout: {concurrency: 64, group_size: 8}
train: {batch: 64}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 450, tailness: 15, cap_tokens: 2400}
  environment: {kind: none}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 8, step_cv: 0.1}
  sync: {time_s: 1.6}
steps: {warmup: 0, measured: 36}
`},
	{"roll", `
preset: skyrl
seed: 30
rollout: {concurrency: 112, group_size: 8}
train: {batch: 64}
queue: {eta: 2}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 520, tailness: 20, cap_tokens: 3000}
  environment: {kind: exponential, mean_s: 1}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 5.5, step_cv: 0.1}
  sync: {time_s: 1.2}
steps: {warmup: 0, measured: 40}
`},
	{"trl", `
preset: prime-rl
seed: 31
rollout: {concurrency: 128, group_size: 8}
train: {batch: 32}
sync: {trainer: blocked}
queue: {max_staleness: 4}
modelled:
  decode_tokens_per_s: 50
  length: {kind: lognormal, mean_tokens: 480, tailness: 15, cap_tokens: 2800}
  environment: {kind: none}
  solve: {kind: fixed, rate: 0.5}
  train: {step_s: 3, step_cv: 0.1}
  sync: {time_s: 0.5}
steps: {warmup: 0, measured: 48}
`},
}
