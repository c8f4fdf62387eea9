# `make demo` and `make test` set up everything themselves; `make help` lists all commands.
PYTHON ?= python3
VENV := .venv
JOBS ?= 2
MINUTES ?= 10
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo-stamp
DEV := $(VENV)/.dev-stamp
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help demo demo-victims stubs test test-all fuzz lint format docs release hooks clean
.DELETE_ON_ERROR:

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO) ## Attack a signal, an image and a clip on embedded data (under 3 minutes after the installation)
	$(BIN)/rlab demo

demo-victims: $(DEMO) ## Retrain the demo's models and write their weights to rlab/assets
	$(BIN)/python scripts/train_demo_victims.py

stubs: $(DEV) ## Write the public names and keywords for type checkers, after a change of options
	$(BIN)/python -m scripts.write_stubs

test: lint ## Check format, lint, types and import layers, then run the tests and the snippets in README
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

test-all: lint ## Run all tests, including slow ones and those of pages in Chromium if it is available
	@$(INSTALL) '.[browser]'
	@$(INSTALL) '.[ray]' || echo "Ray is not available for this machine: its tests are skipped"
	@$(PYTHON) -m venv .servers/mlserver && .servers/mlserver/bin/pip install -q mlserver mlserver-sklearn \
	  || echo "MLServer is not available: its tests are skipped"
	@$(PYTHON) -m venv .servers/mlflow && .servers/mlflow/bin/pip install -q mlflow scikit-learn \
	  || echo "MLflow is not available: its tests are skipped"
	@$(PYTHON) -m venv .servers/ray && .servers/ray/bin/pip install -q 'ray[serve]' scikit-learn \
	  || echo "Ray Serve is not available: its tests are skipped"
	@$(INSTALL) '.[tflite,openvino,models,lightning]' || echo "Some runtimes are not available for this machine: their tests are skipped"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt jax keras lightgbm monai xgboost-cpu \
	  || echo "Some frameworks are not available for this machine: their tests are skipped"
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || apt-get install -y -qq chromium >/dev/null 2>&1 \
	  || echo "Chromium is not available: the browser tests are skipped"
	$(BIN)/python -m pytest -n $(JOBS)

fuzz: $(DEV) ## Damage inputs and requests for MINUTES (default 10); keep what fails as a test
	$(BIN)/python -m tests.mutation.fuzz --minutes $(MINUTES)

lint: $(DEV) ## Check only format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV) ## Build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release: $(DEV) ## Build wheel and source archive into dist/, try both in fresh environments, write their checksums
	$(BIN)/python scripts/release.py

hooks: $(DEV) ## Install a hook that runs the checks before every commit
	$(BIN)/pre-commit install

clean: ## Remove the virtual environment, caches and built files
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "rlab needs Python 3.11, 3.12 or 3.13, but $(PYTHON) was not found: install it, or name another with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "rlab needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is $$($(PYTHON) -V 2>&1): name another with make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot create virtual environments: install its venv package (python3-venv on Debian and Ubuntu)" >&2; exit 1; }

# The stamp files avoid reinstalling until the requirements change. The development set-up includes the demo's.
$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing rlab into $(VENV); this takes a minute or two"
	@$(INSTALL) .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing rlab and its development tools into $(VENV); this takes a minute or two"
	@$(INSTALL) '.[dev]'
	@touch $(DEMO) $@
