# Some images set it, and then each process of each test compiles all of Berth anew.
unexport PYTHONDONTWRITEBYTECODE

# Every target creates and uses .venv. `make PYTHON=python3.12 …` picks another interpreter.
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.berth-stamp
SOURCES := $(wildcard shared functions tests infra/release infra/image)
FAST := $(wildcard $(addprefix tests/,unit stores ledger handlers features))
PYTEST_ARGS ?=
WORKERS ?= 4
# The end-to-end tests on what Kubernetes was before.
OLDER := test-previous test-oldest
# One a core: what computes for minutes meets its time-outs where it has less.
$(OLDER): WORKERS = 2
# They wait more than they compute.
test-long test-nightly: WORKERS = 3
SIDE_BY_SIDE = -n $(WORKERS)
# Also the suites that pyproject.toml leaves out: tests/knative, dynamodb_local and fuzz.
ALL_FOLDERS = -o norecursedirs='.*'
# What texts and sources must keep to: `make check` says it.
CHECKED = tests/project/test_project.py tests/project/test_house_rules.py
BENCH_ARGS ?=
CHAOS_ARGS ?=
LOCK_ARGS ?=
RELEASE_ARGS ?=
PUBLISH_ARGS ?=
BASE ?=

.PHONY: help
help: ## show this list
	@grep -hE '^[.a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## /\t/' | \
	  while IFS='	' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

.PHONY: .venv
.venv: $(STAMP) ## the virtual environment, from requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: no '$(PYTHON)' here: install Python 3.11 or newer (Debian, Ubuntu: apt-get install python3 python3-venv)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: Berth needs 3.11 or newer; name another one with make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments: install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: lock
lock: ## write the locks anew (LOCK_ARGS=--upgrade takes newer versions)
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/pip" install --quiet --disable-pip-version-check uv; \
	compile() { "$$tmp/venv/bin/uv" pip compile --quiet --generate-hashes --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' "$$@"; }; \
	compile --universal --all-extras --group dev $(LOCK_ARGS) pyproject.toml --output-file requirements.lock; \
	image() { compile --python-platform linux --constraints requirements.lock "$$@"; }; \
	image --all-extras pyproject.toml --output-file requirements-image.lock; \
	image --group build --output-file requirements-build.lock; \
	compile --universal --group audit $(LOCK_ARGS) --output-file requirements-audit.lock
	@if grep -n '://' requirements*.lock; then echo "make: a lock names an address" >&2; exit 1; fi

.PHONY: check
check: .venv ## lint, format, types, layers, the project's own rules
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q $(CHECKED)

.venv-audit: requirements-audit.lock
	$(PYTHON) -m venv --clear $@
	$@/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-audit.lock
	@touch $@

.PHONY: audit
audit: .venv .venv-audit ## known faults and licences of what is locked, and secrets in the checkout
	.venv-audit/bin/python -m tests.audit

.PHONY: format
format: .venv ## let ruff format and mend what it can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

.PHONY: controlplane
controlplane: ## build kube-apiserver, kube-scheduler, etcd and kubectl for the tests (minutes once, then cached)
	@tests/controlplane/build --quiet || { code=$$?; \
	  if [ $$code -ne 3 ] || [ "$${CI:-}" = true ]; then exit $$code; fi; \
	  echo "make: without Go the tests on a real kube-scheduler are skipped" >&2; }

.PHONY: redis
redis: ## see that there is a redis-server for the tests, by apt-get where that works
	@tests/support/install redis || { [ "$${CI:-}" != true ] || exit 1; \
	  echo "make: without redis-server the tests on Redis are skipped" >&2; }

.PHONY: haproxy
haproxy: ## see that there is an haproxy for the tests, by apt-get where that works
	@tests/support/install haproxy || { [ "$${CI:-}" != true ] || exit 1; \
	  echo "make: without haproxy the tests on the proxy beside kube-scheduler are skipped" >&2; }

.PHONY: chromium
chromium: ## see that there is a Chromium for the tests, by apt-get where that works
	@tests/support/install chromium || { [ "$${CI:-}" != true ] || exit 1; \
	  echo "make: without chromium the tests of the status page in a browser are skipped" >&2; }

.PHONY: prometheus
prometheus: ## see that there are Prometheus and promtool for the tests, by apt-get where that works
	@tests/support/install prometheus || { [ "$${CI:-}" != true ] || exit 1; \
	  echo "make: without prometheus the tests of alerts and of the board are skipped" >&2; }

.PHONY: skopeo
skopeo: ## see that there is a skopeo for the tests, by apt-get where that works
	@tests/support/install skopeo || { [ "$${CI:-}" != true ] || exit 1; \
	  echo "make: without skopeo the test of a release's image is skipped" >&2; }

.PHONY: test
test: .venv redis haproxy prometheus controlplane ## what a change must pass, on a real kube-scheduler and a real Redis too (WORKERS=0: one by one)
	$(BIN)/pytest -m 'not long' $(CHECKED:%=--ignore=%) $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-long: CHOSEN = (long or drawn or suite) and not nightly
test-nightly: CHOSEN = nightly or drawn
test-nightly: export BERTH_TEST_EXAMPLES ?= 2
.PHONY: test-long test-nightly
test-long: ## the rest (tests/LONG.md), more random examples, Knative's programs, DynamoDB Local, fuzzing
test-nightly: ## more of what test-long has one of: kills, modes of Knative, alerts (tests/LONG.md)
test-long test-nightly: .venv redis haproxy chromium prometheus skopeo controlplane
	@tests/controlplane/build --quiet --knative --helm --cni || { code=$$?; \
	  if [ $$code -ne 3 ] || [ "$${CI:-}" = true ]; then exit $$code; fi; \
	  echo "make: without Go the tests on Knative's programs and on the chart are skipped" >&2; }
	BERTH_TEST_LONG=1 $(BIN)/pytest $(ALL_FOLDERS) -m '$(CHOSEN)' $(SIDE_BY_SIDE) $(PYTEST_ARGS)

.PHONY: $(OLDER)
test-previous: ## the tests on a real kube-scheduler once more, on the Kubernetes before the newest (nightly)
test-oldest: ## the same on the oldest Kubernetes Berth is for (nightly)
$(OLDER): test-%: .venv redis haproxy chromium prometheus
	@tests/controlplane/build --$*
	BERTH_TEST_KUBERNETES=$* $(BIN)/pytest tests/controlplane/test_plane.py tests/e2e $(SIDE_BY_SIDE) $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: .venv ## for an edit's turn: what needs no server, no control plane and no second of a core
	$(BIN)/pytest -m fast $(FAST) $(SIDE_BY_SIDE) $(PYTEST_ARGS)

.PHONY: chaos
chaos: .venv redis haproxy controlplane ## every fault on every store at full length, and docs/reliability.md anew (CHAOS_ARGS=--help)
	$(BIN)/python -m tests.chaos --write docs/reliability.md $(CHAOS_ARGS)

.PHONY: docs
docs: .venv ## write anew the pages and pictures of docs/ that are made of something else
	$(BIN)/python -m tests.docs

.PHONY: demo
demo: .venv ## a day in the life of the ledger beside a naive counter, on nothing but Python
	$(BIN)/berth demo

.PHONY: bench
bench: .venv redis ## filter and prioritize against a minimal Go extender, some minutes (BENCH_ARGS=--help)
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

.PHONY: bench-e2e
bench-e2e: .venv redis controlplane ## pods a second of a real kube-scheduler, beside an extender in Go (BENCH_ARGS=--help)
	@$(BIN)/python -m tests.bench scheduled $(BENCH_ARGS)

.PHONY: bench-wakes
bench-wakes: .venv controlplane ## how soon and in which order waiters are bound, beside a real kube-scheduler
	@BERTH_BENCH_WAKES=1 $(BIN)/pytest -q -s tests/e2e/test_wake_times.py | grep -E "^measured|passed|failed"

.PHONY: build
build: .venv ## the wheel, in dist/
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

.PHONY: release
release: .venv ## wheel, sdist, chart, image, kubectl plugin, checksums, provenance, signatures, in dist/ (RELEASE_ARGS=--help)
	@tests/controlplane/build --quiet --helm
	@$(BIN)/python -m infra.release $(RELEASE_ARGS)

.PHONY: release-base
release-base: skopeo ## fetch the image's base for make release (BASE=docker://…@sha256:…)
	@mkdir -p build && skopeo --insecure-policy copy --quiet --all '$(BASE)' oci:build/base:base

.PHONY: publish
publish: .venv ## put what make release made where users take it, signed without a key (PUBLISH_ARGS=--help)
	@$(BIN)/python -m infra.release.publish $(PUBLISH_ARGS)

.PHONY: clean
clean: ## remove .venv and everything made
	rm -rf .venv .venv-audit build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
