# `make demo` shows what wirebound does; `make test` runs everything that is checked. Both set up what they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard csrc/*) setup.py pyproject.toml constraints.txt
HAS_BROWSER := (command -v chromium || command -v chromium-browser || command -v google-chrome) > /dev/null \
  && command -v chromedriver > /dev/null
APT := apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20

.PHONY: demo test quick lint types docs sanitize sanitize-all long works triton bench reproduce device emulator clean setup setup-dev browser browser-if-possible

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Nothing is compiled to bytecode ahead: most of what comes with the packages is never imported.
$(VENV)/.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[lab]"
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/.installed

# Train DEEP R on MNIST at 1 % connectivity and write a report of the run.
demo: setup
	$(BIN)/wirebound demo --out runs/demo

# Everything: style, types, the kernels under sanitizers, the tests. Side by side what does not need all cores.
test: browser-if-possible
	$(MAKE) --jobs 2 setup-dev sanitize
	$(MAKE) --jobs 2 lint types docs
	$(MAKE) quick

lint: setup-dev
	$(BIN)/ruff check src tests benchmarks examples setup.py

types: setup-dev
	$(BIN)/mypy

# The documentation site, in site/; a warning is an error. (The variable silences an announcement of the theme's makers.)
docs: setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The C++ kernels alone, under AddressSanitizer and UndefinedBehaviorSanitizer, with random shapes.
sanitize:
	tests/native/run_sanitizers.sh

# Every instruction set, and the thread sanitizer too.
sanitize-all:
	tests/native/run_sanitizers.sh address every
	tests/native/run_sanitizers.sh thread every

quick: setup-dev
	$(BIN)/python -m pytest -n 2 -m "not slow" tests

# What takes longer than the quick suite allows.
long: setup-dev
	$(BIN)/python -m pytest -m slow tests

# Models, trainers and tools of other packages: docs/works-with.md. In an environment of its own, for they are many.
works: $(VENV)-works/.installed
	$(VENV)-works/bin/python -m pytest -m "slow or not slow" tests/works_with tests/methods/test_optimizer_packages.py

$(VENV)-works/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)-works
	$(VENV)-works/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev,works]"
	@touch $@

# The Triton kernels in Triton's interpreter, on the CPU. In an environment of its own, for Triton is a gigabyte.
triton: $(VENV)-triton/.installed
	TRITON_INTERPRET=1 $(VENV)-triton/bin/python -m pytest tests/cards/test_triton.py

$(VENV)-triton/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)-triton
	$(VENV)-triton/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[lab,triton]" pytest
	@touch $@

# The speed and memory tables of results/, measured on this machine.
bench: setup-dev
	$(BIN)/wirebound bench --seconds 1 --out results/bench

# The figures of the paper, at the scale of a small machine: days. What is kept of them: RESULTS.md and results/reproduce.
reproduce: setup
	$(BIN)/wirebound reproduce --all --jobs 2 --out runs/reproduce --keep results/reproduce
	cp runs/reproduce/RESULTS.md RESULTS.md

# The C trainer on emulated chips, and what else of its tests takes long.
device: setup-dev
	$(BIN)/python -m pytest -m "slow or not slow" tests/device

# The emulator and the compiler that `make device` uses (Debian and its kin).
emulator:
	(command -v qemu-system-arm && command -v arm-none-eabi-gcc) > /dev/null || ($(APT) update && \
	  $(APT) install --yes --no-install-recommends qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi)

# The browser that the tests of the report page use, and its driver (Debian and its kin).
browser:
	$(HAS_BROWSER) || ($(APT) update && $(APT) install --yes chromium chromium-driver)

# The same where this user may install it; elsewhere the tests say at their end what they left out.
browser-if-possible:
	@$(HAS_BROWSER) || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then $(MAKE) browser || true; fi

clean:
	rm -rf $(VENV) $(VENV)-works build dist site src/*.egg-info src/wirebound/_native
