# Two commands matter: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core-installed
TRAIN := $(VENV)/.train-installed
TEST := $(VENV)/.test-installed

.PHONY: demo demo-quick test check format clean

demo: $(TRAIN)
	$(BIN)/latticemind demo

demo-quick: $(CORE)
	$(BIN)/latticemind demo --quick

test: $(TEST)
	$(BIN)/latticemind models fetch smollm2-135m
	$(BIN)/pytest -n auto

check: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs build *.egg-info

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(CORE): $(BIN)/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(TRAIN): $(CORE)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train]'
	@touch $@

$(TEST): $(TRAIN)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray,test]'
	@touch $@
