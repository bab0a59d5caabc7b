# Needs python3 (3.11 or newer) and make; every target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JARS := $(VENV)/.jars
CHAOS_FAULTS ?= 1000
CHAOS_SEED ?= 1
CHAOS_ARGS ?=
SEEDS ?= 5000
FIRST ?= 1
SIMULATION_PROCESSES ?= 2
# Each worker has a Valkey and a Neo4j of its own. Many tests wait for a process or a lease rather
# than compute, so there is one more than the cores of a small machine.
TEST_WORKERS ?= 3
PYTEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test acceptance lint bench bench-query bench-retrieval chaos simulate lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) $(JARS) ## create .venv from the hashed lock and cache the Neo4j jars

demo: setup ## start everything, import a scenario, explain a failure, verify, stop
	$(BIN)/recollect demo

test: lint setup ## lint, then the tests, with real Valkey and Neo4j
	$(BIN)/python -m pytest -m "not acceptance_long" -n $(TEST_WORKERS) --dist loadfile \
		--no-loadscope-reorder $(PYTEST_ARGS)

acceptance: setup ## whole deployments seen from outside, the long versions too
	$(BIN)/python -m pytest -m "acceptance or acceptance_long" $(PYTEST_ARGS)

lint: $(STAMP) ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

bench: setup ## measure beside hand-written limits; BENCH_ARGS=--help lists the parts
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-query: setup ## latency of reads at 10,000 and 100,000 events, beside a search by hand
	$(BIN)/python -m tests.bench.query $(BENCH_ARGS)

bench-retrieval: setup ## answers to labelled questions about conversations, scored; BENCH_ARGS=--help
	$(BIN)/python -m tests.bench.retrieval $(BENCH_ARGS)

chaos: setup ## CHAOS_FAULTS (1000) seeded faults on real services
	$(BIN)/python -m tests.acceptance.chaos --faults $(CHAOS_FAULTS) --seed $(CHAOS_SEED) $(CHAOS_ARGS)

simulate: $(STAMP) ## SEEDS (5000) histories in memory, every fault; SEED=17 replays and shrinks one
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) \
		--first $(FIRST) --processes $(SIMULATION_PROCESSES))

lock: $(STAMP) ## resolve requirements.lock again; UPGRADE=1 takes the newest versions
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
		$(if $(UPGRADE),--upgrade) --extra dev --output-file requirements.lock pyproject.toml

clean: ## remove .venv and caches; data folders and the jar cache stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else "Python 3.11 or newer is needed; say which: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(JARS): $(STAMP) pipelines/local/neo4j-jars.txt
	$(BIN)/python -m pipelines.local fetch
	@touch $@
