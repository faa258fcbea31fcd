# Everything a new machine needs is Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
# Modules are compiled once, when they are first imported: every process that a test starts would do it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint test-long bench reproduce docs clean

help:
	@echo "make demo       install and run the main job on data that ships with scikit-learn"
	@echo "make test       install the development tools and run the tests"
	@echo "make lint       style, types and import contracts"
	@echo "make test-long  the tests that simulate for minutes or write gigabytes"
	@echo "make bench      ours against OpenDP, diffprivlib and NumPy, as ratios"
	@echo "make reproduce  the papers' tables and figures beside what was printed, into reproduction/report.html"
	@echo "make docs       build the documentation into site/"

# With the newest pip: those that come with Python take nearly twice as long for what follows.
$(RUN):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sottovoce needs Python 3.11 or newer")'
	$(PYTHON) -m venv --upgrade-deps $(VENV)

$(VENV)/.core: pyproject.toml | $(RUN)
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check -e .
	touch $@

# All at once, not on top of the core: to ask pip twice takes longer.
$(VENV)/.dev: pyproject.toml | $(RUN)
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check -e '.[dev]'
	touch $(VENV)/.core $@

# By itself, because it is large: style and types can be looked at meanwhile.
$(VENV)/.spark: $(VENV)/.dev
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check 'pyspark>=4.0'
	touch $@

setup: $(VENV)/.spark

demo: $(VENV)/.core
	$(BIN)/sottovoce demo

test: $(VENV)/.spark
	$(RUN) -m pytest -n 3 --dist loadgroup -m "not long"

test-long: $(VENV)/.spark
	$(RUN) -m pytest -n 2 --dist loadgroup -m long

lint: $(VENV)/.dev
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.spark
	$(RUN) benchmarks/run.py

reproduce: $(VENV)/.dev
	$(BIN)/sottovoce reproduce all

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site demo reproduction .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
