# make demo   set up, develop a noisy mosaic of a free photograph, write demo/demo.png
# make test   set up, then lint, types, layers and tests: what CI runs
# make check  the same without the tests
# make docs   build the documentation site into site/, with every warning an error

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check docs format clean

demo: $(READY)
	$(BIN)/debayes demo -o demo

test: check
	$(BIN)/pytest -q -n auto

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): pyproject.toml constraints.txt hatch_build.py src/debayes/engine/winograd.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "debayes needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[demo,ncnn,onnxruntime,openvino,peers,watch]" --group dev
	touch $@

$(VENV)/.docs: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt --group docs
	touch $@

clean:
	rm -rf $(VENV) demo build dist site
