# make demo    develop a simulated raw of a free photograph; writes demo/demo.png
# make test    run everything that CI runs: formatting, lint, types, import rules, tests
# make check   the same without the tests
# make format  format the code and fix what ruff can fix
# make clean   remove the virtual environment, the demo and build outputs
#
# All but clean first set up a virtual environment in .venv. Another Python or folder: make PYTHON=python3.12 VENV=env

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
