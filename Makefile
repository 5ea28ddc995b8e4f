# make demo   set up, develop a noisy mosaic of a free photograph, write demo/demo.png
# make test   set up, then lint, types, layers and tests: what CI runs
# make check  the same without the tests

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check format clean

demo: $(READY)
	$(BIN)/debayes demo -o demo

test: check
	$(BIN)/pytest -q -n auto

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): pyproject.toml constraints.txt hatch_build.py src/debayes/engine/winograd.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "debayes needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[demo,ncnn,onnxruntime,openvino,peers,watch]" --group dev
	touch $@

clean:
	rm -rf $(VENV) demo build dist
