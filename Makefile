# Two commands, each with all its set-up: `make run` does the main job, `make test` checks everything.
# They need Python (3.10 or newer, with venv) and, for the oracle tests, a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test oracle lint clean

run: $(VENV)/.installed
	$(BIN)/sptc run

test: $(VENV)/.installed-test oracle lint
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHON="$(abspath $(BIN))/python" .ci/typecheck

# The published models are a second opinion on unmeasured rows: their tests run wherever they can be installed.
oracle: $(VENV)/.installed-test
	@test -e $(VENV)/.installed-oracle || { \
	    $(BIN)/python -m pip install --quiet --editable '.[oracle]' && touch $(VENV)/.installed-oracle; } \
	    || echo "oracle: mmasim cannot be installed here; its tests will be skipped"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
