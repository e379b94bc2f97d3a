# Two commands matter: `make demo` and `make test`. Both make their own virtual environment and work offline once installed.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
# Another archive, and grades of its runs; without one, what was recorded on H200s.
ARCHIVE ?=
GRADES ?= $(if $(ARCHIVE),,leaderboard/recordings)
RECORDED := leaderboard/demo leaderboard/recordings/h200/archive
DEMO_VAR ?= var/demo
HOST_ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint bench screenshots clean service gpu-worker

$(VENV)/web.done: leaderboard/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "install the venv module first: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet -r leaderboard/requirements.txt
	@touch $@

$(VENV)/all.done: $(VENV)/web.done requirements.txt grading/requirements.txt tests/requirements.txt
	$(BIN)/python -m pip install --quiet -r requirements.txt -r tests/requirements.txt
	@touch $@

# Install the web tier, load the recorded archives, take a release, serve it. ARCHIVE=path serves another one.
demo: $(VENV)/web.done
	@PROOFLINE_VAR_DIR="$(CURDIR)/$(DEMO_VAR)" $(BIN)/python manage.py demo $(if $(ARCHIVE),"$(ARCHIVE)",$(RECORDED)) $(if $(GRADES),--grades "$(GRADES)") --port $(PORT)

$(VENV)/gpu.done: grading/requirements.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "install the venv module first: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet -r grading/requirements.txt
	@touch $@

# The web side of the grading service: takes what hosts say, wakes them, returns what they lose.
service: $(VENV)/web.done
	$(BIN)/python manage.py migrate -v0
	$(BIN)/python manage.py service

# On a GPU host: one worker per GPU. PROOFLINE_BROKER_URL and PROOFLINE_HOST_KEY (or host.key); HOST_ARGS="--device cpu".
gpu-worker: $(VENV)/gpu.done
	$(BIN)/python -m grading.host $(HOST_ARGS)

# Everything, torch and Triton included. Tests that need a server, the corpus, a browser or a GPU say so when they skip.
test: $(VENV)/all.done
	$(BIN)/python -m pytest -n 2 $(TESTS)

lint: $(VENV)/all.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py loaddecks --check

bench: $(VENV)/all.done
	$(BIN)/python -m tests.bench

# Every kind of page at three widths in both themes, from the demo archive, into var/screenshots.
screenshots: $(VENV)/all.done
	$(BIN)/python -m tests.tools.screenshots

clean:
	rm -rf $(VENV) var .pytest_cache .mypy_cache .ruff_cache
