# make train: from nothing to a trained agent.   make test: every check and test.
# Both create .venv on first use and reuse it after.

PYTHON ?= python3
ARGS ?=
bin := .venv/bin

.PHONY: train test check browser format figures bench faults clean

train: .venv/ready
	$(bin)/t3d train $(ARGS)

test: check browser
	$(bin)/pytest

check: .venv/ready
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/lint-imports --no-cache

# The pages are tested in a real browser. Where there is none, Debian's is installed.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { echo "Installing chromium, for the tests of the pages (once) ..."; apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  { echo "chromium cannot be installed from here: do it (sudo apt-get install chromium), and make test again."; exit 1; }

format: .venv/ready
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

# The pictures of docs/.
figures: .venv/ready
	$(bin)/python docs/draw_steps.py
	$(bin)/python docs/link_steps.py

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
