# make demo         develop a simulated raw of a free photograph; writes demo/demo.png
# make test         run everything that CI runs: formatting, lint, types, import rules, tests
# make check        the same without the tests
# make docs         build the documentation site into site/, with every warning an error
# make notebooks    run the notebooks of docs/notebooks, in their short form
# make wheel        build dist/*.whl for this Linux, for every Python 3, and have auditwheel check it
# make constraints  upgrade every package, and write the versions to constraints.txt; run `make test` after it
# make format       format the code and fix what ruff can fix
# make clean        remove the virtual environment, the demo and build outputs
#
# All but clean first set up a virtual environment in .venv. Another Python or folder: make PYTHON=python3.12 VENV=env

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check docs notebooks wheel constraints format clean

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

notebooks: $(VENV)/.notebooks
	DEBAYES_SHORT=1 $(BIN)/pytest -q -p no:xdist --nbmake --nbmake-timeout=300 docs/notebooks

wheel: $(VENV)/.wheel
	rm -rf build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --wheel-dir dist build/wheel/debayes-*-linux_*.whl
	$(BIN)/auditwheel show dist/debayes-*-py3-none-manylinux*.whl

constraints: $(READY)
	$(BIN)/pip install --quiet --upgrade --upgrade-strategy eager -e ".[all]" --group dev --group docs --group notebooks --group wheel
	$(BIN)/python .ci/constraints.py > constraints.new
	mv constraints.new constraints.txt

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): pyproject.toml constraints.txt hatch_build.py src/debayes/engine/winograd.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "debayes needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[all]" --group dev
	touch $@

$(VENV)/.docs $(VENV)/.notebooks $(VENV)/.wheel: $(VENV)/.%: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt --group $*
	touch $@

clean:
	rm -rf $(VENV) demo build dist site
