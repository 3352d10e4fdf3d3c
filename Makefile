# Few, short targets. Everything a fresh machine needs is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint check soak campaigns upkeep bench clean
.PRECIOUS: .venv/.installed-%

.venv/.installed-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[$*]'
	@touch $@

demo: .venv/.installed-demo  ## the main job, on a server of its own
	@$(BIN)/python -m redis_ckpt.demo

test: .venv/.installed-test  ## every test, with branch coverage
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term --cov-fail-under=95

lint: .venv/.installed-lint  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

soak: .venv/.installed-test  ## 4 processes write, 1 sweeps, then every thread is verified; SOAK_SECONDS=60
	$(BIN)/python -m tests.soak.soak --seconds $(or $(SOAK_SECONDS),60)

campaigns: .venv/.installed-test  ## kills, failovers, a bad network, full memory: half an hour, then the table of docs/reliability.md
	$(BIN)/python -m tests.campaigns all --scale full
	$(BIN)/python -m tests.campaigns report

upkeep: .venv/.installed-test  ## the figures of docs/upkeep.md
	$(BIN)/python -m bench.upkeep

bench: .venv/.installed-bench  ## every saver side by side, then docs/bench/results.md; BENCH_QUICK=1 for a trial run
	$(BIN)/python -m bench

clean:
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
