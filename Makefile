# Two commands for everybody: `make demo` and `make test`. Each sets up all it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench fuzz sbom licenses docs notebooks shape lock clean

$(READY): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hushgraph needs Python 3.11 or newer"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python tools/lock.py --cpu > $(VENV)/torch.lock
	@$(INSTALL) --require-hashes --no-deps -r $(VENV)/torch.lock 2> /dev/null || echo "No torch without GPU code at hand: the larger build follows"
	@$(INSTALL) --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -c 'import torch' 2> /dev/null || $(INSTALL) torch==2.13.0
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY)  ## train, audit and report on the built-in graph
	@$(BIN)/python examples/demo.py

test: $(READY)  ## all tests
	@$(BIN)/python -m pytest -n 2

lint: $(READY)  ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)  ## ratios measured side by side on this machine
	@$(BIN)/python benchmarks

fuzz: $(READY)  ## alter files of every kind and count what is not refused cleanly (COUNT of each, default 1000)
	@$(BIN)/python tools/fuzz.py --count $(or $(COUNT),1000)

sbom: $(READY)  ## a software bill of materials (CycloneDX) of the lock, in sbom.json
	@$(BIN)/python tools/supply_chain.py sbom

licenses: $(READY)  ## the licenses of all dependencies
	@$(BIN)/python tools/supply_chain.py licenses

docs: $(READY)  ## write the tables that follow from the registry, then build the site into site/
	@$(BIN)/python tools/docs.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

notebooks: $(READY)  ## run the notebooks of docs/notebooks and keep what they show
	@$(BIN)/python tools/notebooks.py

shape: $(READY)  ## docs/shape.md: the architecture in numbers, before and now
	@$(BIN)/python tools/shape.py

lock: $(READY)  ## requirements.lock from pyproject.toml, with hashes; versions stay unless UPGRADE=1
	@$(BIN)/python tools/lock.py $(if $(UPGRADE),--upgrade)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
