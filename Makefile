# Each target sets up what it needs in a fresh clone and does nothing twice; the logic of the set-up
# is scripts/setup.sh, which returns at once when .venv matches the pinned list.
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Compiled tests and modules are kept: without, each run compiles 700 files in each of its processes.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help setup serve test check bench clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: ## Make .venv with the pinned packages and ScopeKV itself (.venv/bin/scopekv)
	@scripts/setup.sh

serve: setup ## Start the engine, the gateway and two demo users; Ctrl-C stops everything (PORT=8081)
	@exec $(BIN)/scopekv up --demo $(if $(PORT),--port $(PORT))

test: setup ## Run every test, real engine included
	@scripts/browser.sh
	@$(BIN)/pytest -q -n 2 --dist loadscope -m "not engine"
	@$(BIN)/pytest -q -m engine

check: setup ## Format, lint, types, import rules and the fast tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict -n 2
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q -n 2 --dist loadscope -m "not engine and not slow" --hypothesis-profile=check \
	  --ignore=tests/engine --ignore=tests/contracts

bench: setup ## Run the worked example and the benchmarks; figures go to .scopekv/bench
	@scripts/bench.sh

clean: ## Remove the venv with its model folder, and the caches of the tools
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	@find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
