# make train: from a fresh clone to a trained agent.   make test: every check and test.
# Both create .venv on first use and reuse it after. make train installs only what it needs,
# make test adds the rest.

PYTHON ?= python3
ARGS ?=
bin := .venv/bin

# Install extras of pyproject.toml. pip's output is shown only if it fails. --no-compile: most modules
# are never imported, and those that are compile on first use (so nothing may forbid that).
unexport PYTHONDONTWRITEBYTECODE
install = $(bin)/python -m pip install --quiet --no-compile --disable-pip-version-check \
	--constraint constraints.txt --editable '.[$(1)]' >.venv/pip.log 2>&1 || { cat .venv/pip.log; exit 1; }

.PHONY: train test check browser format figures bench faults clean

train: .venv/ready-train
	$(bin)/t3d train $(ARGS)

test: check browser
	$(bin)/pytest

check: .venv/ready-test
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

format: .venv/ready-test
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

# The pictures of docs/.
figures: .venv/ready-test
	$(bin)/python docs/draw_steps.py
	$(bin)/python docs/draw_td7.py
	$(bin)/python benchmarks/draw_minutes.py
	$(bin)/python docs/link_steps.py

# T3D beside its peers, each in a virtual environment of its own: docs/speed.md.
bench: .venv/ready-test
	$(bin)/python benchmarks/bench.py

# Kills, full disks, damaged and hostile files, broken environments: docs/faults.md. Hours.
faults: .venv/ready-test
	$(bin)/python tests/faults/scorecard.py

.venv/ready-train: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or run make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "T3D needs Python 3.11 or newer; $(PYTHON) is older. Run make PYTHON=python3.12, for example."; exit 1; }
	@echo "Setting up .venv to train (once, about a minute) ..."
	@$(PYTHON) -m venv .venv
	@$(call install,start)
	@rm -rf .venv/lib*/python*/site-packages/torch/test  # 83 MB of test programs in PyTorch's wheel
	@touch $@

.venv/ready-test: .venv/ready-train
	@echo "Setting up .venv to test (once, about a minute) ..."
	@$(call install,dev)
	@touch $@

clean:
	rm -rf .venv benchmarks/.venvs .mypy_cache .pytest_cache .ruff_cache .hypothesis
