# Every command of the project. `make demo` and `make test` set up what they need.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := $(CURDIR)/.venv
UV_VERSION := 0.13.9
export PATH := $(VENV)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
export CDK_DISABLE_CLI_TELEMETRY := true
export UV_SYSTEM_CERTS := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Bytecode of this environment is written once and saves seconds of every later command.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPATH := $(CURDIR):$(CURDIR)/functions
CODE := stacks functions retrylab scenarios tests bench app.py

.PHONY: help setup demo test bench lint synth deploy deploy-local destroy lock clean

help: ## Show the commands.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(VENV)/ready ## Install everything below this folder (the other commands do it by themselves).

$(VENV)/ready: requirements-dev.lock requirements-node.txt package-lock.json
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if v >= (3, 11) else f"{sys.executable} is Python {v[0]}.{v[1]}; wanted 3.11 or newer: make PYTHON=python3.13 ...")'
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet uv==$(UV_VERSION)
	uv pip install --quiet --python $(VENV) --require-hashes -r requirements-dev.lock
	@major=$$(node --version 2>/dev/null | sed -E 's/^v([0-9]+).*/\1/' || true); \
	if [ "$${major:-0}" -lt 22 ]; then \
	  echo "node is $${major:-missing}, wanted 22 or newer: installing one from PyPI"; \
	  uv pip install --quiet --python $(VENV) --require-hashes -r requirements-node.txt; \
	fi
	npm ci --silent
	@touch $@

demo: synth ## Play the scenarios on the synthesized stacks: no account, no Docker.
	python -m retrylab run scenarios

synth: setup ## Synthesize all stacks into cdk.out through the CDK CLI.
	cdk synth --quiet

test: lint $(VENV)-local/ready ## Everything that CI runs.
	RETRY_SAFE_DEPLOYED=local pytest -q -n 2 --dist loadgroup
	$(MAKE) --no-print-directory demo

bench: setup ## Side-by-side measurements, as ratios in one run (minutes; not part of `make test`).
	for name in requests batch threads cold_start layer_size; do python -m bench.$$name; done

lint: setup ## Style, types and the direction of imports.
	ruff check .
	ruff format --check .
	mypy $(CODE)
	lint-imports

deploy: setup ## Deploy all stacks to the account of the current AWS credentials.
	cdk deploy --all

destroy: setup ## Empty the sandbox's failure bucket and remove all stacks from the account of the current credentials.
	python -m stacks.emptying
	cdk destroy --all

deploy-local: setup $(VENV)-local/ready ## Deploy all stacks to a local AWS and send one message, event and order through.
	RETRY_SAFE_DEPLOYED=local pytest -q tests/deployed

$(VENV)-local/ready: requirements-local.txt | $(VENV)/ready
	$(PYTHON) -m venv --clear $(VENV)-local
	uv pip install --quiet --python $(VENV)-local --require-hashes -r requirements-local.txt
	@touch $@

lock: setup ## Compile the lock files anew from the files that name the direct dependencies.
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate requirements-dev.txt -o requirements-dev.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header requirements-node.in -o requirements-node.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header requirements-local.in -o requirements-local.txt
	uv pip compile -q --universal --python-version 3.13 --generate-hashes --no-header functions/requirements.in -o functions/requirements.txt
	npm install --package-lock-only --silent

clean: ## Remove everything that can be made anew.
	rm -rf $(VENV) $(VENV)-local node_modules cdk.out .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
