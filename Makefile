# Every target creates what it needs: `make demo` and `make test` work alone on a fresh machine.
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench
DOCS_INSTALLED := $(VENV)/.installed-docs
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help setup demo reproduce test fuzz test-all coverage lint format bench docs check clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# torch comes first and by its exact version, so that nothing after it asks for another build.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "representer needs Python 3.11 or newer; name one with: make setup PYTHON=python3.11"; exit 1; }
	@echo "Installing representer into $(VENV) (once; a minute or two) ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[plot,cli,dev]"
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(PIP) --editable ".[bench]"
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(PIP) --editable ".[docs]"
	@touch $@

setup: $(INSTALLED) ## create .venv with all that demo and test need

# Small matrices: threads that wait for each other cost more than they save, above all on a busy machine.
demo: $(INSTALLED) ## a tour on built-in data: a table, and the page demo_output/index.html
	OMP_NUM_THREADS=1 $(BIN)/python -m examples.demo --out demo_output

reproduce: $(INSTALLED) ## the papers' experiments (ARGS="--quick", or names): reproduce_output/…/index.html
	$(BIN)/python -m papers $(ARGS)

# Many small matrices: one thread in each of two processes beats two threads in one.
test: $(INSTALLED) ## run the tests, the README's code and every docstring example (all but the slow tier)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-all: $(INSTALLED) ## run all tests: also those marked slow, which continuous integration runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

coverage: $(INSTALLED) ## run all tests and say which lines and branches of src they reach (coverage_output/index.html)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov --cov-report term --cov-report html:coverage_output $(ARGS)

fuzz: $(INSTALLED) ## random learners on random data, for as long as one likes (ARGS="--cases 20000 --start 0 --minutes 60")
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

lint: $(INSTALLED) ## ruff (rules and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## let ruff sort the imports and lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH_INSTALLED) ## time against references, as ratios within one run (ARGS="--quick", or names)
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(DOCS_INSTALLED) ## build the pages into docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

check: ## exactly what continuous integration runs: lint, test-all, demo, reproduce --quick
	bash .ci/run

clean: ## remove what was made, but not .venv and reproduce_output
	rm -rf build dist demo_output bench_output coverage_output .coverage docs/_build docs/api docs/auto_examples docs/notebooks docs/sg_execution_times.rst
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
