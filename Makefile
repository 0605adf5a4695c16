# All targets work on a fresh clone: each installs what it needs into $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests spend much of their time waiting for programs, so there are more workers than processors (two).
WORKERS ?= 3
test: WORKERS = 6
# DEPTH=ci leaves out the tests marked `exhaustive`, and tries fewer examples.
DEPTH ?= full
$(if $(filter ci full,$(DEPTH)),,$(error DEPTH is '$(DEPTH)', neither ci nor full))
SHALLOW := $(if $(filter ci,$(DEPTH)), and not exhaustive)
# Real agents need Python 3.13 and separate environments.
PYTHON313 ?= python3.13
KIMI := kimi-cli==1.16.0
FAST_AGENT := fast-agent-mcp==0.10.46
ACPX := tests/interop/acpx
KIMI_CODE := tests/interop/kimi_code
INSPECTOR := tests/interop/inspector
AXE := tests/web/axe
# The page of `acpterm open` with its libraries, which git ignores.
PAGE := acpterm/web/page/vendor/.stamp

# The tests start Python some thousand times: let it cache bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo page test test-all cluster-test faults agents interop clients check check-style check-types check-types-darwin format docs pictures bench fuzz clean \
  dist zipapp deb recipes pins release packaging-check packaging-wheel packaging-zipapp packaging-recipes packaging-container

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# One stamp per set of packages, so that a second `make` starts at once.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "acpterm needs Python 3.11 or newer with venv; $(PYTHON) is not. Use make PYTHON=python3.13"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	touch $@

$(VENV)/.check: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[check]'
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## watch an agent use terminals, and an editor with the proxy
	$(BIN)/python docs/examples/demo.py
	$(BIN)/python docs/examples/proxy_demo.py

$(PAGE): packaging/page/package.json packaging/page/package-lock.json packaging/page/build.sh
	sh packaging/page/build.sh
	touch $@

page: $(PAGE) ## build the page of `acpterm open`; needs npm

# All their tests are long: each of the workers need not import them.
ALL_LONG := faults guest interop web/browser

# Without npm, the tests leave out the page, and say so.
test: $(VENV)/.check $(if $(shell command -v npm || true),$(PAGE)) ## run the tests, without long ones; those of the page need npm
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(addprefix --ignore tests/,$(ALL_LONG)) \
	  -m 'not long and not interop and not cluster'

test-all: $(VENV)/.check $(PAGE) $(AXE)/node_modules/.installed ## run all tests except faults, including long ones; needs Node
	ACPTERM_DEPTH=$(DEPTH) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --ignore tests/faults \
	  -m 'not cluster$(SHALLOW)'

cluster-test: $(VENV)/.check $(PAGE) ## test providers of other hosts, by real servers on this machine; needs openssh-server, slurmctld, slurmd, slurm-client, munge, chromium
	ACPTERM_DEPTH=$(DEPTH) $(BIN)/python -m pytest -n 4 --dist worksteal -m 'cluster$(SHALLOW)' tests/providers tests/web/browser/test_places.py

# These use all processors, so they run separately from tests with time limits.
faults: $(VENV)/.check $(PAGE) ## inject faults and write the table of docs/internals/reliability.md; FAULTS=ci for fewer, without the table
	mkdir -p build
	rm -f build/faults.jsonl
	ACPTERM_FAULTS=$(or $(FAULTS),full) ACPTERM_FAULTS_REPORT=$(CURDIR)/build/faults.jsonl \
	  $(BIN)/python -m pytest tests/faults -n 2 --dist worksteal; \
	  status=$$?; [ "$(FAULTS)" = ci ] || $(BIN)/python -m tests.faults.report build/faults.jsonl && exit $$status

# A changed pin replaces the installed release. Installing its packages takes a few minutes.
.venv-kimi/.python .venv-fast-agent/.python:
	@$(PYTHON313) -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 13))' \
	  || { echo "real agents need Python 3.13 with venv; $(PYTHON313) is not. Use make PYTHON313=…"; exit 1; }
	$(PYTHON313) -m venv $(@D)
	touch $@

.venv-kimi/.$(KIMI): .venv-kimi/.python
	.venv-kimi/bin/python -m pip install --quiet --disable-pip-version-check '$(KIMI)'
	touch $@

.venv-fast-agent/.$(FAST_AGENT): .venv-fast-agent/.python
	.venv-fast-agent/bin/python -m pip install --quiet --disable-pip-version-check '$(FAST_AGENT)'
	touch $@

$(ACPX)/node_modules/.installed $(KIMI_CODE)/node_modules/.installed $(INSPECTOR)/node_modules/.installed $(AXE)/node_modules/.installed: %/node_modules/.installed: %/package-lock.json
	cd $* && npm ci --ignore-scripts --loglevel=error
	touch $@

AGENTS := .venv-kimi/.$(KIMI) .venv-fast-agent/.$(FAST_AGENT) \
  $(ACPX)/node_modules/.installed $(KIMI_CODE)/node_modules/.installed $(INSPECTOR)/node_modules/.installed

agents: $(AGENTS) ## install the real agents and the real clients that interop tests

interop: $(VENV)/.check $(AGENTS) ## test real agents and clients: kimi-cli, Kimi Code, fast-agent, acpx, MCP Inspector
	ACPTERM_INTEROP=1 $(BIN)/python -m pytest tests/interop/agents $(ACPX) $(KIMI_CODE) $(INSPECTOR) \
	  -n $(WORKERS) --dist worksteal

# Each run of an agent has a time limit; all of it takes about ten minutes.
clients: $(VENV)/.check .venv-fast-agent/.$(FAST_AGENT) ## write what real agents give their models into docs/mcp.md and docs/mcp-tasks.md; needs npm, vim, gdb
	$(BIN)/python -m tests.interop.clients
	$(BIN)/python -m tests.interop.clients tasks

check: check-style check-types check-types-darwin ## check format, lint, types and import rules

check-style: $(VENV)/.check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

check-types: $(VENV)/.check
	$(BIN)/mypy

check-types-darwin: $(VENV)/.check
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin --no-warn-unreachable

format: $(VENV)/.check ## format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.check ## generate the pages of settings, commands and methods
	$(BIN)/python docs/generate.py

# Of the pictures that the tests in a browser make, those that the README shows.
PICTURES := terminal-light.png list-dark.png approval-phone.png
pictures: $(VENV)/.check $(PAGE) ## make the pictures of the page for the README; needs chromium
	$(BIN)/python -m pytest tests/web/browser/test_pictures.py
	mkdir -p docs/images
	cp $(addprefix build/screenshots/,$(PICTURES)) docs/images/

bench: zipapp $(PAGE) ## measure the figures of docs/internals/performance.md
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.check ## try random output, messages and examples: make fuzz MESSAGES=1000000 SECONDS=3600 EXAMPLES=100
	ACPTERM_FUZZ_SECONDS=$(or $(SECONDS),600) $(BIN)/python -m pytest tests/terminal/vt/test_vt_fuzz.py --timeout 0
	ACPTERM_FUZZ_MESSAGES=$(or $(MESSAGES),1000000) $(BIN)/python -m pytest tests/host/test_fuzz.py --timeout 0
	ACPTERM_EXAMPLES=$(or $(EXAMPLES),10) $(BIN)/python -m pytest -n $(WORKERS) -m hypothesis --timeout 0

# Packages. Most have a directory in packaging/; docs/install.md says how to use them.
dist: $(VENV)/.check $(PAGE) ## build the wheel and the sdist, twice: the bytes must be the same
	sh packaging/dist.sh $(abspath $(BIN)/python)

release: ## make a release: make release VERSION=1.2.3 RELEASE_URL=https://…; needs root
	sh packaging/release.sh '$(VERSION)' '$(RELEASE_URL)'

zipapp: dist ## build acpterm.pyz, one file that needs only Python
	$(BIN)/python packaging/zipapp/build.py dist/acpterm-*.whl dist/acpterm.pyz
	ls -l dist/acpterm.pyz

deb: $(VENV)/.check ## build the Debian packages, and try installation, upgrade and removal; needs root
	sh packaging/debian/check.sh $(abspath $(BIN)/python)

recipes: dist ## write the recipes for Homebrew, Arch Linux and Nix: make recipes RELEASE_URL=https://…
	$(BIN)/python packaging/dependencies.py
	$(BIN)/python packaging/recipes.py '$(RELEASE_URL)'

# With several Pythons: make packaging-check PYTHONS='python3.11 python3.12 python3.13'.
PYTHONS ?= $(PYTHON)
packaging-check: packaging-wheel packaging-zipapp packaging-recipes packaging-container deb ## build and try all packages; needs root

packaging-wheel: dist
	sh packaging/check_wheel.sh dist/acpterm-*.whl $(PYTHONS)

packaging-zipapp: zipapp
	sh packaging/zipapp/check.sh dist/acpterm.pyz $(PYTHONS)

packaging-recipes: recipes
	PYTHON313=$(PYTHON313) sh packaging/check_recipes.sh $(abspath $(BIN)/python)

packaging-container: zipapp
	sh packaging/container/check.sh dist/acpterm.pyz

pins: $(VENV)/.check ## choose the releases that the zipapp, the Debian packages and the container contain
	$(BIN)/pip-compile --upgrade --quiet --generate-hashes --no-header --no-annotate --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-build-isolation \
	  --output-file packaging/requirements.txt pyproject.toml

clean: ## remove everything that make created
	rm -rf $(VENV) .venv-3.13 build dist acpterm/web/page/vendor .venv-kimi .venv-fast-agent .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  tests/interop/typescript/node_modules $(ACPX)/node_modules $(KIMI_CODE)/node_modules $(INSPECTOR)/node_modules $(AXE)/node_modules
