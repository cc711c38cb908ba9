# Everything runs in two virtual environments of its own: .venv-tools holds a pinned uv,
# .venv what uv.lock names. Python 3.11 or newer and make are all a machine needs.

PYTHON ?= python3
UV_VERSION := 0.13.9
NAME ?=
ARGS ?=
# Of `make kube-api`: the directories of the control plane and of the official chart of NATS.
KUBE_BIN ?=
NATS_CHART ?=
# Servers that a test run did not start have room for one test at a time.
WORKERS ?= $(if $(CHATLANE_TEST_NATS_URL)$(CHATLANE_TEST_POSTGRES_URL),0,4)
PAIRS := $(if $(filter 0 1,$(WORKERS)),0,2)

export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
unexport VIRTUAL_ENV
# Tests start hundreds of processes, in half the time with the bytecode of the one before.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
UV := .venv-tools/bin/uv
READY := .venv/.ready
MIGRATIONS := service/chatlane/store/migrations
# Asked for only where it is used: the plugin, else the program that came before it.
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose) \
	--file deploy/compose.yaml

export COMPOSE_PROJECT_NAME ?= chatlane
export CHATLANE_IMAGE ?= chatlane:dev
export CHATLANE_ROUTER_1_PORT ?= 8081
export CHATLANE_ROUTER_2_PORT ?= 8082

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

##@ Start here

.PHONY: help
help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## Make the virtual environment from the lock file

.PHONY: demo
demo: $(READY) ## Run the whole path on real servers, kill some, and check the result (under a minute)
	@$(BIN)/chatlane demo $(ARGS)

.PHONY: demo-picture
demo-picture: $(READY) ## Run the demo and draw its kills and its verdict for the README
	@$(BIN)/chatlane demo --picture docs/demo.svg $(ARGS)

.PHONY: console-pictures
console-pictures: $(READY) ## Draw the pictures of the console in docs/console (needs Chromium)
	@$(BIN)/python -m tests.acceptance.console.pictures docs/console $(ARGS)

.PHONY: dev
dev: $(READY) ## Keep the same servers running with a live log
	@$(BIN)/chatlane dev $(ARGS)

##@ Check

.PHONY: check
check: static unit ## Everything that needs no server

.PHONY: static
static: format-check lint types layers contract-check ## Everything that runs no test

.PHONY: format
format: $(READY) ## Format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .

.PHONY: format-check
format-check: $(READY) ## Fail where `make format` would change something
	$(BIN)/ruff format --check .

.PHONY: lint
lint: $(READY) ## Lint the code and the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/hadolint --failure-threshold style deploy/Dockerfile

.PHONY: types
types: $(READY) ## Check types
	$(BIN)/mypy

.PHONY: layers
layers: $(READY) ## Check the direction of imports
	$(BIN)/lint-imports

.PHONY: unit
unit: $(READY) ## Run the tests that need no server
	$(BIN)/pytest -m "not integration and not acceptance and not containers and not benchmark and not kube_api" $(ARGS)

.PHONY: contract
contract: $(READY) ## Write JSON Schema, AsyncAPI and .env.example from the code
	$(BIN)/python -m chatlane_devkit.contract write

.PHONY: permissions
permissions: $(READY) ## Write schemas/permissions.csv: what each user of NATS may do, as a real server has it
	$(BIN)/python -m tests.integration.config.permission_matrix

.PHONY: docs
docs: $(READY) ## Build the documentation site in var/site; fails for a broken link
	$(BIN)/python docs/site.py var/site-pages
	$(BIN)/zensical build --strict
	@echo "open var/site/index.html"

.PHONY: contract-check
contract-check: $(READY) ## Fail where `make contract` would change something
	$(BIN)/python -m chatlane_devkit.contract check

.PHONY: manifests
manifests: $(READY) ## Render and check deploy/kubernetes and the chart; fetches the tools for it first
	CHATLANE_TEST_MANIFEST_TOOLS=$$(.ci/manifest-tools) $(BIN)/pytest tests/deploy/kubernetes tests/deploy/chart $(ARGS)

.PHONY: kube-api
kube-api: $(READY) ## Install, upgrade and scale on a real API server: make kube-api KUBE_BIN=directory
	@for program in etcd kube-apiserver kube-controller-manager kube-scheduler; do \
		PATH="$(KUBE_BIN):$$PATH" command -v $$program >/dev/null || { \
			echo "$$program is neither in KUBE_BIN nor on PATH" >&2; exit 2; }; \
	done
	PATH="$(KUBE_BIN):$$PATH" CHATLANE_TEST_MANIFEST_TOOLS=$$(.ci/manifest-tools) \
		CHATLANE_TEST_PROMTOOL=$$(.ci/promtool) CHATLANE_TEST_NATS_CHART="$(NATS_CHART)" \
		$(BIN)/pytest --numprocesses=2 -m kube_api tests/deploy/kube_api $(ARGS)

##@ Test

# Tests of the parts `alone` and `slow` start the whole service and depend on its leases: of the
# first, two run at a time, of the second one. Files keep their order, which starts with the longest.
define run_parts
@failed= ran=; for part in $(1); do \
		case $$part in slow) workers=0;; alone) workers=$(PAIRS);; *) workers=$(WORKERS);; esac; \
		$(BIN)/pytest --numprocesses=$$workers --dist=loadfile --no-loadscope-reorder \
			--part=$$part $(ARGS); \
		case $$? in 0) ran=1;; 5) ;; *) failed=1;; esac; \
	done; \
	test -z "$$failed" && test -n "$$ran"
endef

.PHONY: test
test: $(READY) ## Run the tests that need no Docker engine on real servers, in about 12 minutes
	$(call run_parts,together alone)

.PHONY: test-slow
test-slow: $(READY) ## Run the tests that measure, repeat or kill for long
	$(call run_parts,sweeps slow)

.PHONY: test-all
test-all: test test-slow ## Run both; CI does the same

.PHONY: test-containers
test-containers: $(READY) ## Test the image, compose and all servers in containers (needs a Docker engine)
	CHATLANE_TEST_BACKEND=containers $(BIN)/pytest -m "integration or containers" $(ARGS)

.PHONY: bench
bench: $(READY) ## Measure throughput and latency; prints a table, writes JSON, draws plots
	$(BIN)/python -m tests.benchmarks.bench $(ARGS)

.PHONY: console-load
console-load: $(READY) ## Measure the console with 10,000 conversations and one of 20,000 messages (needs Chromium)
	@$(BIN)/python -m tests.benchmarks.programs.console_load

.PHONY: soak
soak: $(READY) ## Watch a router's memory over 200,000 messages
	$(BIN)/python -m tests.benchmarks.soak $(ARGS)

.PHONY: flood
flood: $(READY) ## Measure what a flood from one chat costs the others
	$(BIN)/python -m tests.benchmarks.flood $(ARGS)

.PHONY: partition-counts
partition-counts: $(READY) ## Measure routers with 32, 64 and 128 partitions
	$(BIN)/python -m tests.benchmarks.partition_counts $(ARGS)

.PHONY: recovery
recovery: $(READY) ## Measure how long people wait when something dies
	$(BIN)/python -m tests.benchmarks.recovery $(ARGS)

.PHONY: comparison
comparison: $(READY) ## Play the chat day through chatlane, Restate, DBOS, LangGraph and a naive bot
	$(BIN)/python -m tests.benchmarks.comparison.compare $(ARGS)

.PHONY: restore-drill
restore-drill: $(READY) ## Measure how long a restore of 1,000,000 rows and the streams takes
	$(BIN)/python -m tests.benchmarks.restore $(ARGS)

.PHONY: erasure
erasure: $(READY) ## Measure how long erasing somebody with 10,000 messages takes beside traffic
	$(BIN)/python -m tests.benchmarks.erasure $(ARGS)

.PHONY: chaos-long
chaos-long: $(READY) ## Break everything at random for longer: 1,000,000 messages in forty runs; goes on where it was
	$(BIN)/python -m tests.chaos.long $(ARGS)

.PHONY: language-chaos
language-chaos: $(READY) ## Kill processes while a Python and a TypeScript worker share the turns of 5,000 messages
	$(BIN)/python -m tests.chaos.languages $(ARGS)

.PHONY: cluster-faults
cluster-faults: $(READY) ## Break clusters, disks and standbys for minutes: the tests that `make test` leaves out
	$(BIN)/pytest -m long $(ARGS)

.PHONY: chaos-mutants
chaos-mutants: $(READY) ## Break one promise of the protocol at a time; each must be noticed
	$(BIN)/python -m tests.chaos.mutants $(ARGS)

.PHONY: ci
ci: static test ## What has to pass before a change lands

##@ Database

.PHONY: migration
migration: ## Add an empty migration: make migration NAME=add_thing
	@case "$(NAME)" in ""|*[!a-z0-9_]*) echo "usage: make migration NAME=verb_object" >&2; exit 2;; esac
	@last=$$(ls $(MIGRATIONS) | sed -n 's/^\([0-9]\{4\}\)_.*\.sql$$/\1/p' | sort | tail -n 1); \
	file=$(MIGRATIONS)/$$(printf '%04d' $$(expr $${last:-0} + 1))_$(NAME).sql; \
	printf -- '%s\n\n%s\n\n%s\n' '-- migrate:up' '-- migrate:down' \
		"DO \$$\$$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END \$$\$$;" > $$file; \
	echo "$$file"

.PHONY: migrate
migrate: $(READY) ## Apply the migrations to the configured database
	$(BIN)/chatlane admin migrate $(ARGS)

##@ TypeScript

.PHONY: typescript
typescript: ## Build, lint and test the TypeScript client (needs Node.js 20 and npm)
	cd typescript && npm ci --no-audit --no-fund --silent && npm run --silent lint && npm test --silent

##@ Containers

.PHONY: up
up: image ## Start NATS, Postgres, two routers and an echo worker in containers
	$(COMPOSE) up --detach
	@$(PYTHON) deploy/until_ready.py $(CHATLANE_ROUTER_1_PORT) $(CHATLANE_ROUTER_2_PORT)

.PHONY: down
down: ## Stop them and remove their volumes
	$(COMPOSE) down --volumes --timeout 25

.PHONY: cluster
cluster: $(READY) ## Play the feed on three NATS, two Postgres, three routers in containers, and disturb them
	@$(BIN)/python -m chatlane_devkit.cluster

.PHONY: image
image: ## Build the container image
	docker build --file deploy/Dockerfile --tag $(CHATLANE_IMAGE) --build-arg UV_VERSION=$(UV_VERSION) \
		$(if $(CHATLANE_PYTHON_IMAGE),--build-arg PYTHON_IMAGE=$(CHATLANE_PYTHON_IMAGE)) \
		$(if $(VERSION),--build-arg VERSION=$(VERSION)) \
		$(if $(ADAPTERS),--build-arg ADAPTERS="$(ADAPTERS)") \
		$(if $(FRONT_ENDS),--build-arg FRONT_ENDS="$(FRONT_ENDS)") \
		--build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) .

##@ Release

.PHONY: version
version: $(UV) ## Write the number of a release into all files that have it: make version VERSION=0.2.0
	@$(PYTHON) deploy/release.py version "$(VERSION)"
	$(UV) lock --quiet

.PHONY: release
release: $(READY) ## Build packages, image, chart and checksums in dist/release; prints what would be pushed where
	@$(PYTHON) deploy/release.py build $(ARGS)

##@ Tidy up

.PHONY: clean
clean: ## Remove the environments, caches and everything generated
	rm -rf .venv .venv-tools .cache .coverage .hypothesis .import_linter_cache \
		typescript/dist typescript/node_modules typescript/src/contract.ts \
		.mypy_cache .pytest_cache .ruff_cache build dist var
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "chatlane needs Python 3.11 or newer: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(READY): $(UV) uv.lock pyproject.toml schemas/pyproject.toml client/pyproject.toml \
		service/pyproject.toml adapters/pyproject.toml servers/pyproject.toml bot/pyproject.toml \
		console/pyproject.toml bridges/pyproject.toml devkit/pyproject.toml
	$(UV) sync --quiet --locked --all-packages --all-extras --group engines --python $(PYTHON)
	@touch $@
