# `make demo` shows what wirebound does; `make test` runs everything that is checked. Both set up what they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard csrc/*) setup.py pyproject.toml constraints.txt

.PHONY: demo test quick lint types sanitize long bench reproduce-foundation clean setup setup-dev browser

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/.installed

# Train DEEP R on MNIST at 1 % connectivity and write a report of the run.
demo: setup
	$(BIN)/wirebound demo --out runs/demo

# Everything: style, types, the kernels under sanitizers, the tests. Side by side what does not need all cores.
test:
	$(MAKE) --jobs 2 setup-dev sanitize
	$(MAKE) --jobs 2 lint types
	$(MAKE) quick

lint: setup-dev
	$(BIN)/ruff check src tests benchmarks examples setup.py

types: setup-dev
	$(BIN)/mypy

# The C++ kernels alone, under AddressSanitizer and UndefinedBehaviorSanitizer, with random shapes.
sanitize:
	tests/native/run_sanitizers.sh

quick: setup-dev
	$(BIN)/python -m pytest -n 2 -m "not slow" tests

# What takes longer than the quick suite allows.
long: setup-dev
	$(BIN)/python -m pytest -m slow tests

# The speed and memory tables of results/, measured on this machine.
bench: setup-dev
	$(BIN)/wirebound bench --out results/bench

# The browser that the tests of the report page use (Debian and its kin).
browser:
	command -v chromium || (apt-get update && apt-get install --yes chromium chromium-driver)

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/wirebound/_native
