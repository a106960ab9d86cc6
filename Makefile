# Each command makes its own environment first, in .venv, and again only when the dependencies have changed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# A worker that has nothing left to do takes tests from another one. Threads of BLAS that wait for each other would take
# their time from the other workers.
pytest = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Byte code is kept even where the environment forbids it: hundreds of processes would compile the package again.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help book pdf paper supplement check test bench links clean lint package everything

help:
	@echo "make book   execute the chapters and build the book in _build/html"
	@echo "make pdf    typeset the same book, without the reference, as _build/egm.pdf; needs XeLaTeX"
	@echo "make paper  typeset what was found as an article, _build/paper.pdf"
	@echo "make supplement"
	@echo "            pack both with the executed chapters and the sources as _build/egm-supplement-<version>.zip"
	@echo "make check  lint, types, layers, and the package's tests and examples but for slow ones: a first verdict"
	@echo "make test   run every test: the package, the chapters and the built book"
	@echo "make bench  compare egm with other programs: accuracy and time, six minutes"
	@echo "make links  look up every external link, for which it needs a network"
	@echo "make clean  remove the book and the environment"

book: $(READY)
	@$(BIN)/python -m tools.build

pdf: $(READY)
	@$(BIN)/python -m tools.pdf

paper: $(READY)
	@$(BIN)/python -m tools.pdf paper

supplement: $(READY)
	@$(BIN)/python -m tools.supplement

check: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 lint package

test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 lint everything

lint: $(READY)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy

package: $(READY)
	@$(pytest) -m "not slow" egm tests/egm

everything: $(READY)
	@$(pytest)

bench: $(READY)
	@$(BIN)/python -m benchmarks

links: $(READY)
	@$(BIN)/python -m tools.links

clean:
	rm -rf .venv _build

$(READY): pyproject.toml requirements.txt tools/chi2comb.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("egm needs Python 3.11 or later, and $(PYTHON) is " \
		+ sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make environments: install its venv module (on Debian and Ubuntu: python3-venv)." >&2; exit 1; }
	@echo "Setting up .venv, once; this takes a minute or two."
	@rm -rf .venv && $(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r requirements.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m tools.chi2comb
	@touch $@
