# Everything a new machine needs is Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
INSTALL := $(RUN) -m pip install --quiet --no-compile --disable-pip-version-check --no-deps
# Nothing but what requirements/ names, in the very files whose digests stand there; wheels only, so no program of theirs runs.
LOCKED := $(INSTALL) --require-hashes --only-binary :all:
OPENDP := $(patsubst requirements/opendp/%.txt,%,$(wildcard requirements/opendp/*.txt))
LOCKS := $(filter-out requirements/lowest.txt,$(wildcard requirements/*.txt))
# Modules are compiled once, when they are first imported: every process that a test starts would do it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint test-long test-opendp test-judge test-lowest bench bench-speed reproduce docs lock audit sbom clean

help:
	@echo "make demo         install and run the main job on data that ships with scikit-learn"
	@echo "make test         install the development tools and run the tests"
	@echo "make lint         style, types and import contracts"
	@echo "make test-long    the tests that simulate for minutes or write gigabytes"
	@echo "make test-opendp  the laws of the samplers, with every version of OpenDP that is allowed"
	@echo "make test-judge   measured losses, judged by the auditor of jax-privacy"
	@echo "make test-lowest  a few releases with the oldest packages that are allowed"
	@echo "make bench        ours against OpenDP, diffprivlib and NumPy, as ratios"
	@echo "make bench-speed  times of the main questions over their peers', and how they grow with rows, columns and people"
	@echo "make reproduce    the papers' tables and figures beside what was printed, into reproduction/report.html"
	@echo "make docs         build the documentation into site/"
	@echo "make lock         renew requirements/: the newest packages that pyproject.toml allows, with their digests"
	@echo "make audit        ask for known vulnerabilities of the locked packages"
	@echo "make sbom         list the locked packages as CycloneDX, into build/sbom/"

$(RUN):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sottovoce needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# First a new pip: those that come with Python take nearly twice as long for what follows.
$(VENV)/.build: requirements/build.txt | $(RUN)
	$(LOCKED) -r $<
	touch $@

$(VENV)/.core: requirements/core.txt pyproject.toml $(VENV)/.build
	$(LOCKED) -r $<
	$(INSTALL) --no-build-isolation -e .
	touch $@

# All at once, not on top of the core: to ask pip twice takes longer.
$(VENV)/.dev: requirements/dev.txt pyproject.toml $(VENV)/.build
	$(LOCKED) -r $<
	$(INSTALL) --no-build-isolation -e .
	touch $(VENV)/.core $@

# By itself, because it is large: style and types can be looked at meanwhile. Spark has no wheel, and is built by what is here.
$(VENV)/.spark: requirements/spark.txt $(VENV)/.dev
	$(LOCKED) --no-binary pyspark --no-build-isolation -r $<
	touch $@

$(VENV)/.supply: requirements/supply.txt $(VENV)/.dev
	$(LOCKED) -r $<
	touch $@

$(VENV)/.lowest: requirements/lowest.txt pyproject.toml $(VENV)/.build
	$(LOCKED) -r $<
	$(INSTALL) --no-build-isolation -e .
	touch $@

setup: $(VENV)/.spark

demo: $(VENV)/.core
	$(BIN)/sottovoce demo

test: $(VENV)/.spark
	$(RUN) -m pytest -n 3 --dist loadgroup -m "not long"

test-long: $(VENV)/.spark $(VENV)/.supply test-opendp test-judge
	$(RUN) -m pytest -n 2 --dist loadgroup -m long

test-opendp: $(OPENDP:%=test-opendp-%)

test-opendp-%: requirements/opendp/%.txt $(VENV)/.dev
	$(LOCKED) --upgrade --target build/opendp/$* -r $<
	PYTHONPATH=build/opendp/$* $(RUN) -c 'import opendp; assert "build/opendp/$*/" in opendp.__file__'
	PYTHONPATH=build/opendp/$* $(RUN) -m pytest tests/noise/test_samplers.py

# Its auditor is one file that needs no JAX, so JAX is not installed.
test-judge: requirements/judge/jax-privacy.txt $(VENV)/.dev
	$(LOCKED) --upgrade --target build/judge -r $<
	SOTTOVOCE_JUDGE=build/judge $(RUN) -m pytest tests/audit/test_outside_judge.py

test-lowest:
	$(MAKE) VENV=build/lowest build/lowest/.lowest
	build/lowest/bin/python tests/supply/smoke.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check src tests tools benchmarks requirements
	$(BIN)/ruff check src tests tools benchmarks requirements
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.spark
	$(RUN) benchmarks/run.py

bench-speed: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(RUN) benchmarks/speed.py
	OPENBLAS_NUM_THREADS=1 $(RUN) benchmarks/growth.py

reproduce: $(VENV)/.dev
	$(BIN)/sottovoce reproduce all

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# One resolution for every system and Python >= 3.11, of which each file holds a part: no two files disagree.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
PART := $(COMPILE) --constraint build/everything.txt

lock: $(VENV)/.supply
	$(COMPILE) pyproject.toml --all-extras --group build --group supply -o build/everything.txt
	$(PART) --group build -o requirements/build.txt
	$(PART) --group supply -o requirements/supply.txt
	$(PART) pyproject.toml -o requirements/core.txt
	$(PART) pyproject.toml --extra dev -o requirements/dev.txt
	$(PART) pyproject.toml --extra spark -o requirements/spark.txt
	$(COMPILE) pyproject.toml --extra all --extra dask --extra duckdb --extra plots --extra postgres --extra sql --extra web \
		--resolution lowest-direct -o requirements/lowest.txt
	for version in $(OPENDP); do \
		echo "opendp==$$version" | $(COMPILE) --no-deps - -o requirements/opendp/$$version.txt || exit 1; done
	echo "jax-privacy>=2,<3" | $(COMPILE) --no-deps - -o requirements/judge/jax-privacy.txt

audit: $(VENV)/.supply
	$(RUN) requirements/audit.py

sbom: $(LOCKS:requirements/%.txt=build/sbom/%.json)

build/sbom/%.json: requirements/%.txt pyproject.toml $(VENV)/.supply
	mkdir -p $(@D)
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible --of JSON -o $@ $<

clean:
	rm -rf $(VENV) build dist site demo reproduction .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
