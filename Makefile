# Every target brings all its set-up: `make run` does the main job, `make test` is what CI runs (minutes),
# `make regression` runs everything and goes on where it stopped, `make bench` runs each benchmark once, small, and
# `make site` builds the site.
# They need Python (3.10 or newer, with venv) and, for the oracle tests and the hardware, a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TOOLS := PATH="$(abspath $(BIN)):$$PATH"
PYTEST := $(TOOLS) $(BIN)/python -m pytest

.PHONY: run test regression bench site lint clean

run: $(VENV)/.installed
	$(BIN)/sptc run

# Linters and tests at once. Every skip has its reason, and the cost is printed. A worker more than there are cores: so a
# machine that does other work as well gives the tests a larger share.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test: $(VENV)/.installed-test
	@mkdir -p build
	@$(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; \
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -r fEs --cost=build/cost/quick.json; tests=$$?; \
	wait $$lint; linted=$$?; cat build/lint.log; exit $$((tests ? tests : linted))

regression: $(VENV)/.installed-models
	$(TOOLS) $(BIN)/python tests/regression.py

bench: $(VENV)/.installed-models
	$(PYTEST) -m bench -r fEs

# The site, in build/site; every warning is an error.
site: $(VENV)/.installed-site
	cd docs && $(abspath $(BIN))/python -m sphinx -q -W --keep-going . ../build/site
	$(BIN)/python docs/check.py build/site

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

# The published models are a second opinion on unmeasured rows: without them the tests fail.
$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[test,lint,oracle]'
	touch $@

$(VENV)/.installed-models: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --editable '.[models]'
	touch $@

$(VENV)/.installed-site: docs/requirements.txt $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet -r docs/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) build dist docs/generated *.egg-info
