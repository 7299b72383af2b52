# Every target sets up what it needs. `make quickstart` is the place to begin.
#
#   PYTHON=python3.12     the interpreter that the environment is made with (3.11 or later)
#   TORCH_INDEX=URL       a package index to take torch from: a CPU build, or one for another CUDA (docs/install.md)
#   FRESH=1               quickstart again, from nothing
#   ISA=avx2              tests as on a lesser processor: avx512 (without AMX), avx2, or sse (without our kernels)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
TORCH_INDEX ?=
FRESH ?=
ISA ?=

VENV := .venv
RUN := $(VENV)/bin/python
CORE := $(VENV)/core
READY := $(VENV)/ready
SITE := $(VENV)/site
INDEX := $(VENV)/torch-index
FIRST := runs/quickstart
RESULT := $(FIRST)/result.txt

# One thread a test worker: two busy threads on two cores are many times slower than one.
export OMP_NUM_THREADS := 1

# Each library of torch is told by a variable of its own which instructions it may use.
ifeq ($(ISA),avx512)
export ATEN_CPU_CAPABILITY := avx512
export MKL_ENABLE_INSTRUCTIONS := AVX512
export ONEDNN_MAX_CPU_ISA := AVX512_CORE
else ifeq ($(ISA),avx2)
export ATEN_CPU_CAPABILITY := avx2
export MKL_ENABLE_INSTRUCTIONS := AVX2
export ONEDNN_MAX_CPU_ISA := AVX2
export CXX := c++ -mno-avx512f
else ifeq ($(ISA),sse)
export ATEN_CPU_CAPABILITY := default
export MKL_ENABLE_INSTRUCTIONS := SSE4_2
export ONEDNN_MAX_CPU_ISA := SSE41
export SCALING_KERNELS := 0
else ifneq ($(ISA),)
$(error ISA is avx512, avx2 or sse)
endif

# Python compiles what is imported, at its first import: the rest of torch never is. It has to keep what it compiled:
# where a shell forbids that (PYTHONDONTWRITEBYTECODE), every process compiles lightning anew, 11 s of CPU time.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(RUN) -m pip install --no-compile --disable-pip-version-check --constraint constraints.txt
TEST := $(RUN) -m pytest -n 2 --dist worksteal

.PHONY: quickstart test test-all check format bench gpu notebooks docs site environment clean force

# A whole small study: 16 runs on two cores, a law, and its test on a larger run that was held out.
quickstart: $(CORE)
	@if [ -n "$(FRESH)" ]; then rm -rf $(FIRST); fi
	@if [ ! -e $(RESULT) ]; then \
	  mkdir -p $(FIRST); \
	  COLUMNS=110 $(RUN) -m scaling study quickstart runs=$(FIRST) > $(FIRST)/.result; \
	  mv $(FIRST)/.result $(RESULT); fi
	@cat $(RESULT)

test: $(READY)
	$(TEST) -m "not slow"

test-all: $(READY)
	$(TEST)

check: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright
	$(RUN) -m pytest -q tests/test_rooms.py

format: $(READY)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(READY)
	for file in $(filter-out benchmarks/gpu.py,$(wildcard benchmarks/*.py)); do $(RUN) "$$file"; done

# The tests that need a device, and what it makes of training: docs/results/gpu/DATE.md, in less than nine minutes.
gpu: $(READY)
	$(RUN) benchmarks/gpu.py

notebooks: $(READY)
	$(RUN) -m pytest --nbmake notebooks examples/published

# The documentation at http://127.0.0.1:8000, built again when a file changes; no network.
docs: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs serve

# The same as files in build/site. A link or an anchor that leads nowhere is an error.
site: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build

$(SITE): $(READY)
	$(INSTALL) --editable '.[docs]'
	touch $@

environment: $(READY)

# What the package needs, and what its tests need besides.
$(READY): $(CORE)
	$(INSTALL) --editable '.[dev]'
	touch $@

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make PYTHON=…")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
ifneq ($(TORCH_INDEX),)
	$(INSTALL) --force-reinstall --no-deps --index-url "$(TORCH_INDEX)" torch
	echo "$(TORCH_INDEX)" > $(INDEX)
endif
	$(INSTALL) --editable .
	touch $@

# Another index than the one torch came from: install again.
ifneq ($(TORCH_INDEX),)
ifneq ($(TORCH_INDEX),$(shell cat $(INDEX) 2>/dev/null))
$(CORE): force
endif
endif

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
