# Two commands for a newcomer: `make demo` and `make test`. Both make the environment first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test test-slow lint gpu-check clean
.DEFAULT_GOAL := help

help:  ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "weaverl needs Python 3.11 or newer, %s is %d.%d; say which: make PYTHON=python3.11" % (sys.executable, *v[:2]))'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster,torch,plots,dev]'
	touch $@

install: $(STAMP)  ## make the environment

demo: $(STAMP)  ## two real GRPO jobs, solo and woven, with a report
	$(BIN)/weaverl demo $(ARGS)

test: $(STAMP)  ## all fast tests
	$(BIN)/python -m pytest

test-slow: $(STAMP)  ## the slow and optional suites
	$(BIN)/python -m pytest -m slow --timeout 600

lint: $(STAMP)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gpu-check: $(STAMP)  ## the demo on a machine with a CUDA device, figures as JSON
	$(BIN)/python -c 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else "no CUDA device here")'
	$(BIN)/weaverl demo --json -

clean:  ## remove what make made
	rm -rf $(VENV) build dist
