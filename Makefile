# The verbs of this repository. `make` alone lists them.

GO ?= go
# Packages in which goroutines meet: these are tested under the race detector.
CONCURRENT := ./live/... ./study/... ./engine/... ./trainer/... ./env/... ./store/... ./weights/... ./transfer/... ./rendezvous/... ./api/... ./gateway/... ./batch/... ./trace/... ./cmd/...
# The Python client's own environment, from pinned versions with their hashes.
PYTHON ?= python3
VENV := clients/python/.venv

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## train the default run: reverse a word, fully asynchronously
	$(GO) run ./cmd/headway run

.PHONY: test
test: lint test-go test-python ## everything that must pass: lint, all tests, the race detector where goroutines meet, the Python client

.PHONY: test-go
test-go: ## the Go half of make test
	$(GO) test ./...
	$(GO) test -race -short $(CONCURRENT)

.PHONY: test-python
test-python: $(VENV)/installed ## the Python client: types, style, and its tests against the real server (with jax; torch if it is installed)
	cd clients/python && .venv/bin/ruff check src ../../examples/*/train.py && .venv/bin/pytest -q
	cd clients/python && if [ -e .venv/torch ]; then with=torch_grpo; else follow='--follow-imports silent'; without='--exclude headway/torch.py'; fi; \
	.venv/bin/mypy --strict src $$without $$follow && \
	for example in $$with jax_grpo numpy_trainer; do MYPYPATH=src .venv/bin/mypy --strict $$follow ../../examples/$$example/train.py || exit 1; done

$(VENV)/installed: clients/python/requirements/test.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --require-hashes -r clients/python/requirements/test.txt
	touch $@

# torch does not import without its CUDA libraries: 4.5 GB, so it is not part of make test.
$(VENV)/torch: $(VENV)/installed clients/python/requirements/torch.txt
	$(VENV)/bin/pip install -q --no-deps --require-hashes -r clients/python/requirements/torch.txt
	touch $@

.PHONY: test-long
test-long: lint $(VENV)/installed ## make test, with the race detector and long budgets everywhere; kills a running job for minutes
	HEADWAY_LONG=1 $(GO) test -race -timeout 120m ./...

.PHONY: lint
lint: ## gofmt, vet, staticcheck and the architecture's own rules
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/lint

.PHONY: test-engines
test-engines: $(VENV)/torch test-python ## the suites of engines, trainers and environments alone: Python trainers learn their task; real servers are installed, started and tested (once 15 GB)
	$(GO) test -race ./engine/... ./trainer/... ./env/...
	cd clients/python && .venv/bin/pytest -q -m learning
	$(GO) run ./bench/engines

.PHONY: bench
bench: bench-schedules bench-simulator bench-queue bench-publish bench-weights bench-gateway ## all experiments below

.PHONY: bench-schedules
bench-schedules: ## synchronous against asynchronous, with and without tool time, on one seed
	$(GO) run ./bench/schedules

.PHONY: bench-simulator
bench-simulator: ## the simulator's speed, beside a SimPy program of the same model (installs SimPy once)
	$(GO) run ./bench/simulator

.PHONY: bench-queue
bench-queue: ## groups through the durable queue, beside raw JetStream, Ray and TransferQueue (installs both once)
	$(GO) run ./bench/queue

.PHONY: bench-publish
bench-publish: ## from a publish to being served, of a small model
	$(GO) run ./bench/publish

.PHONY: bench-weights
bench-weights: ## a gigabyte to 1 to 8 receivers, beside raw streams and over limited links
	$(GO) test ./transfer -run '^$$' -bench 'Loopback|Limited' -benchtime 5x -timeout 30m

.PHONY: bench-gateway
bench-gateway: ## the gateway's cost per event, beside no gateway and the routers of vLLM and SGLang (installs both once)
	$(GO) run ./bench/gateway

.PHONY: microbench
microbench: ## the Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: generate
generate: ## rewrite what is generated from the code: JSON schema, tables of the docs
	$(GO) test ./config -run "Schema|Presets" -rewrite
	$(GO) test ./internal/lint -run Architecture -rewrite
	$(GO) test ./hardware -run Document -rewrite
	HEADWAY_REWRITE=1 $(GO) test ./cmd/headway -run DoctorDocument
	$(GO) run ./cmd/headway reproduce --markdown docs/reproduce.md
