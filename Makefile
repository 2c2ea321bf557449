# make train: from nothing to a trained agent.   make test: every check and test.
# Both create .venv on first use and reuse it after.

PYTHON ?= python3
ARGS ?=
bin := .venv/bin

.PHONY: train test check format figures bench faults clean

train: .venv/ready
	$(bin)/t3d train $(ARGS)

test: check
	$(bin)/pytest

check: .venv/ready
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/lint-imports --no-cache

format: .venv/ready
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

# The pictures of docs/.
figures: .venv/ready
	$(bin)/python docs/draw_steps.py

# T3D beside its peers, each in a virtual environment of its own: docs/speed.md.
bench: .venv/ready
	$(bin)/python benchmarks/bench.py

# Kills, full disks, damaged and hostile files, broken environments: docs/faults.md. 40 minutes.
faults: .venv/ready
	$(bin)/python tests/faults/scorecard.py

.venv/ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "T3D needs Python 3.11 or newer; $(PYTHON) is older. Say make PYTHON=python3.12, for example."; exit 1; }
	@echo "Setting up .venv (once, about two minutes) ..."
	$(PYTHON) -m venv .venv
	$(bin)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv benchmarks/.venvs .mypy_cache .pytest_cache .ruff_cache .hypothesis
