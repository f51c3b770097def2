# The front door. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where `make install` puts things, and where it takes them from.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
BUILT ?= target/release
bin = $(DESTDIR)$(PREFIX)/bin
sbin = $(DESTDIR)$(PREFIX)/sbin
man = $(DESTDIR)$(PREFIX)/share/man
bash = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zsh = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fish = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
units = $(DESTDIR)$(PREFIX)/lib/systemd/system
users = $(DESTDIR)$(PREFIX)/lib/sysusers.d
shared = $(DESTDIR)$(PREFIX)/share/gleaner
etc = $(DESTDIR)$(SYSCONFDIR)/gleaner
programs = gleaner gleaner-bench gleaner-sim
packages = $(programs) gleaner-daemon gleaner-host gleaner-scx
SCX_FIGURES = figure7a figure7ainthelab figure7bspinning figure7binthelab figure7cspinning figure7cinthelab figure8a figure8inthelab \
	figure9b figure9inthelab
HOST_CLAIMS = host-agreement host-causes host-overhead host-churn host-polling host-joined sched-safety sched-fairness sched-latency sched-holders sched-small sched-pairs
pages = gleaner.toml.5 gleaner.7 gleanerd.8

.PHONY: help build docs install uninstall deb demo test test-long test-lab test-python fuzz lab lab-figures lab-host bench evaluation bench-guard bench-signals bench-sim bench-python bench-trace promises lint

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the release binaries: target/release/gleaner, gleanerd, gleaner-bench, gleaner-sim, gleaner-host and scx_gleaner
	scripts/setup build
	cargo build --release --locked $(packages:%=-p %)

# Does not build: root, who installs, often has no Rust. The unit names the daemon's place, and a configuration that is
# there is the administrator's.
install: ## Install what `make build` has built, man pages, completions and units too (PREFIX=/usr/local, DESTDIR=)
	@for p in $(programs) gleanerd gleaner-host scx_gleaner; do test -x $(BUILT)/$$p || { echo 'run make build first' >&2; exit 1; }; done
	install -d $(bin) $(sbin) $(man)/man1 $(bash) $(zsh) $(fish) $(units) $(users) $(shared)/grafana $(shared)/prometheus \
	    $(etc)/gleaner.toml.d
	install -m 755 $(programs:%=$(BUILT)/%) $(bin)
	install -m 755 $(BUILT)/gleanerd $(BUILT)/gleaner-host $(BUILT)/scx_gleaner $(sbin)
	umask 022; \
	for p in $(programs) gleaner-host scx_gleaner; do \
	    $(BUILT)/$$p man --output $(man)/man1; \
	    $(BUILT)/$$p completions bash >$(bash)/$$p; \
	    $(BUILT)/$$p completions zsh >$(zsh)/_$$p; \
	    $(BUILT)/$$p completions fish >$(fish)/$$p.fish; \
	done; \
	for u in gleanerd gleaner-host; do \
	    sed -E 's#/usr/(s?bin/gleaner)#$(PREFIX)/\1#' packaging/$$u.service >$(units)/$$u.service; \
	done
	for page in $(pages); do install -D -m 644 packaging/man/$$page $(man)/man$${page##*.}/$$page; done
	install -m 644 packaging/gleanerd-metrics.socket $(units)
	install -m 644 packaging/debian/gleaner.conf $(users)
	install -m 644 packaging/grafana/gleaner.json $(shared)/grafana
	install -m 644 packaging/prometheus/gleaner.rules.yml $(shared)/prometheus
	test -e $(etc)/gleaner.toml || install -m 644 packaging/gleaner.toml $(etc)

# A configuration that was changed stays.
uninstall: ## Remove what `make install` with the same PREFIX and DESTDIR has installed
	for p in $(programs) gleaner-host scx_gleaner; do rm -f $(bin)/$$p $(man)/man1/$$p.1 $(bash)/$$p $(zsh)/_$$p $(fish)/$$p.fish; done
	rm -f $(man)/man1/gleaner-*.1 $(man)/man1/scx_gleaner-*.1 $(sbin)/gleanerd $(sbin)/gleaner-host $(sbin)/scx_gleaner $(units)/gleanerd.service $(units)/gleaner-host.service \
	    $(units)/gleanerd-metrics.socket \
	    $(users)/gleaner.conf $(shared)/grafana/gleaner.json $(shared)/prometheus/gleaner.rules.yml
	for page in $(pages); do rm -f $(man)/man$${page##*.}/$$page; done
	! cmp -s packaging/gleaner.toml $(etc)/gleaner.toml || rm $(etc)/gleaner.toml
	-rmdir $(shared)/grafana $(shared)/prometheus $(shared) $(etc)/gleaner.toml.d $(etc) 2>/dev/null

deb: ## Build the Debian packages gleaner (with gleanerd), gleaner-lab and gleaner-host, and check them: target/debian/*.deb
	scripts/setup deb
	cargo build --release --locked $(packages:%=-p %)
	scripts/build-deb $(DEB_ARGS)
	scripts/check-packaging

demo: ## See what Gleaner does on this machine, in about two minutes
	scripts/setup build
	cargo build --release --locked -p gleaner -p gleaner-bench
	target/release/gleaner demo

# No documentation examples: they would be built by rustdoc, every crate a second time; scripts/check-docs sees that there
# are none. The machines of the lab come last, alone: others would take the time away by which they are judged.
test: ## Run everything that must pass (as root: the privileged tests too), the lab's quick claims included
	scripts/setup test
	scripts/run-tests

docs: ## Write what is generated from the programs: docs/cli.md
	cargo build --locked $(programs:%=-p %) -p gleaner-host -p gleaner-scx
	{ sed '/^<!-- generated/q' docs/cli.md; echo; for p in $(programs) gleaner-host scx_gleaner; do target/debug/$$p reference; done; } >target/cli.md
	mv target/cli.md docs/cli.md

test-long: ## Check the statistics at length, and 100 real comparisons of equal modes; about five minutes
	scripts/setup test
	cargo test -p gleaner-bench --locked --test stats_coverage -- --ignored --nocapture --test-threads 1
	cargo test -p gleaner --locked --test bench_programs -- --ignored --nocapture

test-python: ## Check the Python package: format, types, stubs, and the tests against a wheel
	scripts/setup python
	scripts/test-python

test-lab: ## Boot the lab's machines for its quick claims, and try its command line; three minutes
	scripts/setup lab
	cargo test -p gleaner-lab --locked --test vm --test cli -- --ignored --test-threads 1

# FUZZ_TARGETS='lease journal' chooses. A finding is in target/fuzz/artifacts.
FUZZ_SECONDS ?= 10

fuzz: ## Fuzz each parser of what comes from outside, FUZZ_SECONDS=10 each
	scripts/setup fuzz
	scripts/fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

lab-figures: ## Draw the figures of docs/scx.md: simulated, and as docs/lab.json has them
	cargo build --release --locked -p gleaner-sim
	target/release/gleaner-sim reproduce --paper asplos13 --lab docs/lab.json --output target/figures >/dev/null
	mkdir -p docs/scx
	for figure in $(SCX_FIGURES); do cp target/figures/asplos13-$$figure.svg docs/scx/$$figure.svg; done

lab: ## Prove Gleaner in virtual machines: other kernels, many vCPUs, systemd, neighbours; writes docs/lab.md
	scripts/setup lab
	cargo build --release --locked -p gleaner -p gleaner-bench -p gleaner-host -p gleaner-scx -p gleaner-lab
	$(MAKE) --no-print-directory deb
	target/release/gleaner-lab claims --markdown docs/lab.md $(LAB_ARGS)

lab-host: ## Prove gleaner-host and scx_gleaner in the lab's nested KVM host, with a third of the repetitions of make lab
	scripts/setup lab
	cargo build --release --locked -p gleaner -p gleaner-bench -p gleaner-host -p gleaner-scx -p gleaner-lab
	target/release/gleaner-lab claims --short --jobs $$(nproc) $(HOST_CLAIMS:%=--only %) $(LAB_ARGS)

# BENCH_ARGS='--rows redis-open,python-pipe --rounds 9' chooses; with `--update` the other rows of the page stay.
BENCH_OUT ?= docs/benchmarks

bench: ## Measure real servers, interleaved; writes docs/benchmarks.{md,json}
	scripts/setup bench
	cargo build --release --workspace --locked
	target/release/gleaner-bench servers --output $(BENCH_OUT).json --markdown $(BENCH_OUT).md $(BENCH_ARGS)

evaluation: ## Measure real programs in every setting and under the paper's policy; writes docs/evaluation.md; about 30 minutes
	scripts/setup bench
	cargo build --release --locked -p gleaner -p gleaner-bench
	target/release/gleaner-bench run evaluation -o target/evaluation.json --html target/evaluation.html --markdown target/evaluation.md
	sed '/^<!-- generated/q' docs/evaluation.md | cat - target/evaluation.md >target/evaluation-page.md
	mv target/evaluation-page.md docs/evaluation.md

bench-guard: ## Measure how often, how soon and at what cost the guard decides rightly, on recorded noise; writes docs/guard.md
	scripts/setup build
	cargo run --release -q -p gleaner-policy --locked --example bench-guard -- 50 lab/bench/noise/*.tsv >target/guard.md
	sed '/^<!-- generated/q' docs/guard.md | cat - target/guard.md >target/guard-page.md
	mv target/guard-page.md docs/guard.md

# BENCH_ARGS='--only convoy,redis --rounds 5' chooses; the page then holds these cases only.
bench-signals: ## Measure how often each signal of progress is right, by what programs say themselves; writes docs/signals.md
	scripts/setup bench
	cargo build --release --locked -p gleaner -p gleaner-bench
	target/release/gleaner-bench signals --output target/signals.json --markdown target/signals.md $(BENCH_ARGS)
	sed '/^<!-- generated/q' docs/signals.md | cat - target/signals.md >target/signals-page.md
	mv target/signals-page.md docs/signals.md

bench-sim: ## Measure how fast the simulator is, alone and beside SimGrid
	scripts/setup bench-sim
	cargo run --release -q -p gleaner-sim --locked --example speed
	c++ -std=c++17 -O2 -Wall -Wextra -o target/simgrid-load lab/sim/simgrid/load.cpp -lsimgrid
	cargo run --release -q -p gleaner-sim --locked --example compare -- target/simgrid-load

bench-python: ## Measure what a call from Python costs, and what a second Dask worker brings
	scripts/setup python
	target/python/bin/maturin build --release --quiet --locked -m lab/python/Cargo.toml -o target/python/release
	target/python/bin/pip --quiet install --force-reinstall --no-deps target/python/release/*.whl
	target/python/bin/python lab/python/examples/speed.py

bench-trace: ## Measure what tracing costs and how well it agrees, on this machine, as root
	scripts/setup bench
	cargo build --release --locked -p gleaner -p gleaner-bench
	status=0; \
	cargo run --release -q -p gleaner-trace --locked --example bench-trace -- $(BENCH_ARGS) || status=1; \
	cargo run --release -q -p gleaner-trace --locked --example overload-cost || status=1; \
	target/release/gleaner-bench expand-steps || status=1; \
	exit $$status

# PROMISES='--only redis-1,demo' chooses; `--page` writes the page anew and checks nothing.
promises: ## Check every number that Gleaner promises; writes SPECIFICATION.md; about 50 minutes
	for what in bench bench-sim lab test; do scripts/setup $$what; done
	cargo build --release --workspace --locked
	cargo build --workspace --locked
	target/release/gleaner-bench promises $(PROMISES)

lint: ## Check format, lints, scripts, licences and dependencies
	scripts/setup lint
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	shellcheck scripts/* lab/bench/noise/record lab/bench/noise/sensitivity .ci/run
	scripts/check-docs
	scripts/check-features
	scripts/check-packaging
	cargo deny --locked check bans licenses sources
