# The front door. `make` alone says what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help build demo test test-long test-lab lab bench bench-sim bench-trace lint

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the release binaries: target/release/gleaner, target/release/gleaner-bench
	scripts/setup build
	cargo build --release --workspace --locked

demo: build ## See what Gleaner does on this machine, in about two minutes
	target/release/gleaner demo

# Documentation examples first, so that the last summaries are those of real tests; every test runs once. The machines
# of the lab come last, alone: others would take the time away by which they are judged.
test: ## Run everything that must pass (as root: the privileged tests too), the lab's quick claims included
	scripts/setup test
	cargo test --workspace --locked --doc
	cargo test --workspace --locked --lib --bins --tests
	$(MAKE) --no-print-directory test-lab

test-long: ## Check the statistics at length, and 100 real comparisons of equal modes; about five minutes
	scripts/setup test
	cargo test -p gleaner-bench --locked --test stats_coverage -- --ignored --nocapture --test-threads 1
	cargo test -p gleaner --locked --test bench_programs -- --ignored --nocapture

test-lab: ## Boot the lab's machines for its quick claims, and try its command line; three minutes
	scripts/setup lab
	cargo test -p gleaner-lab --locked --test vm --test cli -- --ignored --test-threads 1

lab: ## Prove Gleaner in virtual machines: other kernels, many vCPUs, systemd, neighbours; writes docs/lab.md
	scripts/setup lab
	cargo build --release --locked -p gleaner -p gleaner-lab
	target/release/gleaner-lab claims --markdown docs/lab.md $(LAB_ARGS)

# BENCH_ARGS='--rows redis-open,python-pipe --rounds 9' chooses; with BENCH_OUT=/tmp/part the page of all rows stays.
BENCH_OUT ?= docs/benchmarks

bench: ## Measure real servers, interleaved; writes docs/benchmarks.{md,json}
	scripts/setup bench
	cargo build --release --workspace --locked
	target/release/gleaner-bench servers --output $(BENCH_OUT).json --markdown $(BENCH_OUT).md $(BENCH_ARGS)

bench-sim: ## Measure how fast the simulator is, alone and beside SimGrid
	scripts/setup bench-sim
	cargo run --release -q -p gleaner-sim --locked --example speed
	c++ -std=c++17 -O2 -Wall -Wextra -o target/simgrid-load bench/simgrid/load.cpp -lsimgrid
	cargo run --release -q -p gleaner-sim --locked --example compare -- target/simgrid-load

bench-trace: ## Measure what tracing costs and how well it agrees, on this machine, as root
	scripts/setup bench
	cargo build --release --locked -p gleaner -p gleaner-bench
	status=0; \
	cargo run --release -q -p gleaner-trace --locked --example bench-trace -- $(BENCH_ARGS) || status=1; \
	cargo run --release -q -p gleaner-trace --locked --example unfold-cost || status=1; \
	target/release/gleaner-bench unfold-steps || status=1; \
	exit $$status

lint: ## Check format, lints, scripts, licences and dependencies
	scripts/setup lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	shellcheck scripts/* .ci/run
	scripts/check-docs
	cargo deny --locked check bans licenses sources
