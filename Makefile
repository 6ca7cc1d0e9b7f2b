# The verbs of this repository. `make` alone lists them.

GO ?= go
# Packages in which goroutines meet: these are tested under the race detector.
CONCURRENT := ./live/... ./study/... ./engine/... ./trainer/... ./env/... ./store/... ./weights/... ./trace/... ./cmd/...

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## train the default run: reverse a word, fully asynchronously
	$(GO) run ./cmd/headway run

.PHONY: test
test: lint ## everything that must pass: lint, all tests, the race detector where goroutines meet
	$(GO) test ./...
	$(GO) test -race -short $(CONCURRENT)

.PHONY: test-long
test-long: lint ## make test, with the race detector and long budgets everywhere
	HEADWAY_LONG=1 $(GO) test -race -timeout 120m ./...

.PHONY: lint
lint: ## gofmt, vet, staticcheck and the architecture's own rules
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/lint

.PHONY: test-engines
test-engines: ## the suites of engines, trainers and environments alone
	$(GO) test -race ./engine/... ./trainer/... ./env/...

.PHONY: bench
bench: bench-schedules bench-simulator ## both experiments below

.PHONY: bench-schedules
bench-schedules: ## synchronous against asynchronous, with and without tool time, on one seed
	$(GO) run ./bench/schedules

.PHONY: bench-simulator
bench-simulator: ## the simulator's speed, beside a SimPy program of the same model (installs SimPy once)
	$(GO) run ./bench/simulator

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
