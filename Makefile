# Everything works from a fresh clone: each target sets up what it needs in $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The tests wait for programs as much as they work: three of them for two processors.
WORKERS ?= 3

.PHONY: help demo test check format docs bench fuzz clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# One stamp per set of packages, so that a second `make` starts at once.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "acpterm needs Python 3.11 or newer with venv; $(PYTHON) is not. Say make PYTHON=python3.13"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[screen,demo]'
	touch $@

$(VENV)/.check: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[check]'
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## a daemon, an example agent, and its terminals live in colour
	$(BIN)/python docs/examples/demo.py

test: $(VENV)/.check ## the tests, on three workers
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(VENV)/.check ## format, lint, types and the import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.check ## put the sources in their one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.check ## the pages that follow from the code: settings and commands
	$(BIN)/python docs/generate.py

bench: $(VENV)/.check ## the figures of docs/performance.md, each beside its baseline
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.check ## mutated messages without end: make fuzz MESSAGES=1000000
	ACPTERM_FUZZ_MESSAGES=$(or $(MESSAGES),1000000) $(BIN)/python -m pytest tests/host/test_fuzz.py --timeout 0

clean: ## remove what make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  tests/interop/typescript/node_modules
