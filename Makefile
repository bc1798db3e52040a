# mainstay: every command of the project. `make` alone lists them.
# Needs Python 3.11 or later with venv, and make; nothing else, and no root.

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check install
PYTEST := $(BIN)/python -m pytest -q -n auto --dist worksteal
READY := $(VENV)/.ready
ARGS  :=
KILLS := 1000
FORKS := 500
BROKERS := 100
RESTARTS := 20
PYTHONS :=
RAN   := .trace.json
COUNTED := .counted.json
, := ,

step = @printf '%-8s %s\n' '$(1)' '$(2)'
# Runs a command whose output matters only if it fails.
quiet = @$(1) > $(VENV)/last.log 2>&1 || { cat $(VENV)/last.log; exit 1; }

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-all check check-rest format format-check lint types layers \
	commits docs trace trace-check cover api bench bench-long bench-scale counts crash mutate dist hooks clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with everything the other commands need

$(READY): pyproject.toml tools/find-python tools/get-promtool tools/get-rabbitmq
	@PYTHON='$(PYTHON)' tools/find-python > /dev/null
	$(call step,setup,creating $(VENV); a minute or two)
	@test -x $(BIN)/python || "$$(PYTHON='$(PYTHON)' tools/find-python)" -m venv $(VENV)
	$(call quiet,$(PIP) --upgrade 'pip>=25.1')
	$(call quiet,$(PIP) --editable '.[cli$(,)trio]' --group dev)
	@tools/get-promtool $(VENV)/opt || true
	@tools/get-rabbitmq $(VENV)/opt || true
	@touch $@

demo: $(READY) ## run the main job against a failing local service
	@$(BIN)/mainstay demo $(ARGS)

test: $(READY) ## run all tests, in parallel; ARGS='-k breaker' narrows them
	$(call step,test,pytest)
	@$(if $(ARGS),,TRACE_REPORT=$(RAN)) $(PYTEST) $(ARGS)

test-all: $(READY) ## the tests on each Python, 3.11 to 3.14t, and the oldest libraries; PYTHONS='3.12 3.13' narrows them
	@$(BIN)/python tools/pythons.py --only '$(PYTHONS)' -- $(ARGS)
	@$(BIN)/python tools/oldest.py
	@$(BIN)/python tools/apart.py

check: format-check lint types layers commits test counts trace-check cover ## format, lint, types, layers, commits, tests, counts, trace, cover
	$(call step,check,all passed)

check-rest: format-check lint types layers commits counts trace-check cover ## what `make check` does besides the tests

format: $(READY) ## format the code and apply safe fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

format-check: $(READY)
	$(call step,format,ruff format --check)
	@$(BIN)/ruff format --quiet --diff .

lint: $(READY) ## ruff
	$(call step,lint,ruff check)
	@$(BIN)/ruff check --quiet .

types: $(READY) ## mypy strict, and pyright on tests/typing
	$(call step,types,mypy --strict)
	@$(BIN)/mypy --no-error-summary
	$(call step,types,pyright on tests/typing)
	$(call quiet,$(BIN)/pyright)

layers: $(READY) ## the layer rule, and the purity of the core
	$(call step,layers,import-linter)
	$(call quiet,$(BIN)/lint-imports --no-cache)

commits: $(READY) ## the messages of the commits, see CONTRIBUTING.md
	$(call step,commits,messages)
	@$(BIN)/python tools/commits.py

docs: $(READY) ## run the code of README.md and docs/ (part of `make test`)
	$(call step,docs,code of README.md and docs/)
	@$(PYTEST) tests/test_docs.py $(ARGS)

trace: $(READY) ## requirement → tests that passed in the last `make test`; ARGS=--json for programs
	@$(BIN)/python -m tools.trace $(ARGS)

trace-check: $(READY)
	$(call step,trace,requirements)
	@$(BIN)/python -m tools.trace --quiet

cover: $(READY) ## every branch of core/, by the tests of core/ alone
	$(call step,cover,branches of src/mainstay/core)
	@$(BIN)/coverage erase
	$(call quiet,$(BIN)/coverage run -m pytest -q -n auto --dist worksteal tests/core)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --include='src/mainstay/core/*'

api: $(READY) ## write api.txt anew; review the diff
	@$(BIN)/python tools/api.py --write

bench: $(VENV)/.bench ## the benchmark tables, against peers; five minutes
	@$(BIN)/python -m bench $(ARGS)

bench-long: $(VENV)/.bench ## the tables that need servers, wait in real time or fill a store; half an hour
	@$(BIN)/python -m bench --long $(ARGS)

bench-scale: $(VENV)/.bench ## how cost grows with size, as exponents; ARGS=--quick for two minutes, ARGS=--full for 10⁷ records
	@$(BIN)/python -m bench.scale $(ARGS)

counts: $(READY) ## the parts of the benchmark that count instead of time: frames, statements, bytes
	$(call step,counts,python -m bench --counted)
	@$(BIN)/python -m bench --counted --report $(COUNTED)

crash: $(READY) ## break processes, stores, disks, clocks, brokers; KILLS=0 FORKS=0 BROKERS=0 RESTARTS=0 ARGS='--only pause:nats' narrows it
	@test $(KILLS) = 0 || $(BIN)/python -m tests.crash.campaign --kills $(KILLS)
	@test $(KILLS) = 0 || $(BIN)/python -m tests.crash.sagas --kills $(KILLS)
	@test $(KILLS) = 0 || $(BIN)/python -m tests.crash.pipeline
	@test $(KILLS) = 0 || $(BIN)/python -m tests.crash.outbox $(KILLS)
	@test $(RESTARTS) = 0 || $(BIN)/python -m tests.crash.restarts $(RESTARTS)
	@test $(KILLS) = 0 || $(BIN)/python -m tests.crash.backlog
	@test $(FORKS) = 0 || $(BIN)/python -m tests.crash.forks $(FORKS)
	@test $(BROKERS) = 0 || $(BIN)/python -m tests.crash.brokers --trials $(BROKERS)
	@$(BIN)/python -m tests.crash.faults --faults 2000 $(ARGS)

mutate: $(VENV)/.mutate ## change the core one operator at a time; the tests must notice
	@$(BIN)/mutmut run $(ARGS)
	@$(BIN)/mutmut results

$(VENV)/.bench $(VENV)/.mutate $(VENV)/.dist $(VENV)/.hooks: $(VENV)/.%: $(READY)
	$(call step,setup,the $* group)
	$(call quiet,$(PIP) --group $*)
	@touch $@

dist: $(VENV)/.dist ## build sdist and wheel; run README.md with the wheel in an empty environment
	@$(BIN)/python tools/dist.py

hooks: $(VENV)/.hooks ## install the checks that git runs at each commit
	@$(BIN)/pre-commit install

clean: ## remove .venv, .venvs, caches and reports
	@rm -rf $(VENV) .venvs build dist htmlcov mutants .coverage .coverage.* .hypothesis $(RAN) $(COUNTED)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
