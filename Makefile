# Every target installs the packages that it needs. `make run` replays the recordings, `make test` runs the tests of CI
# in a few minutes, `make regression` runs all tests and continues where an interrupted run stopped, `make bench` runs
# each benchmark once with a small problem, and `make site` builds the website of the documentation.
# The targets need Python 3.10 or newer with venv. Oracle tests and compiled hardware models also need a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Test workers, and the hundreds of processes that tests start, share Python bytecode in build/pycache, even if the
# environment sets PYTHONDONTWRITEBYTECODE. Without bytecode files, starting a process takes twice as long.
TOOLS := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX="$(abspath build/pycache)" PATH="$(abspath $(BIN)):$$PATH"
PYTEST := $(TOOLS) $(BIN)/python -m pytest

.PHONY: run test regression bench site lint clean

run: $(VENV)/.installed
	$(BIN)/sptc run

# Run linters and tests in parallel. pytest prints the reason of every skip, and the processor time of the run. There
# is one worker more than there are cores, so that the tests get a larger share of a machine that also does other work.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test: $(VENV)/.installed-test
	@mkdir -p build
	@$(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; \
	$(PYTEST) -q --collect-only >build/collected.log 2>&1; \
	$(PYTEST) -n $(WORKERS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -r fEs --cost=build/cost/quick.json; tests=$$?; \
	wait $$lint; linted=$$?; cat build/lint.log; exit $$((tests ? tests : linted))

regression: $(VENV)/.installed-models
	$(TOOLS) $(BIN)/python tests/regression.py

bench: $(VENV)/.installed-models
	$(PYTEST) -m bench -r fEs

# Build the website in build/site. Every warning of Sphinx is an error.
site: $(VENV)/.installed-site
	cd docs && $(abspath $(BIN))/python -m sphinx -q -W --keep-going . ../build/site
	$(BIN)/python docs/check.py build/site
	@echo "The site is in build/site: open $(abspath build/site/index.html) in a browser."

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	find native sim tests -name '*.cpp' -o -name '*.h' -o -name '*.c' | xargs $(BIN)/clang-format --dry-run --Werror
	PYTHON="$(abspath $(BIN))/python" .ci/typecheck

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# The tests need the extra `oracle`: published models, which are compared with the instructions that have no recordings.
$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[test,lint,oracle]'
	touch $@

$(VENV)/.installed-models: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --editable '.[models]'
	touch $@

# Building the site needs the extra `area` for drawings, but neither the tests nor large packages such as torch.
$(VENV)/.installed-site: docs/requirements.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[area]' -r docs/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) build dist docs/generated *.egg-info
