# Each target is one script in scripts/ or one command; `make` lists them.

MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick check mutants up down soak bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Payments and orders in one process: SQLite and an embedded log, nothing to install
	@scripts/demo

test: ## Every test, against real PostgreSQL, Redis, Kafka and Prometheus
	@scripts/test

test-quick: ## The tests that need no server
	@scripts/test quick

check: ## Format, lints, dependencies, features, licences, documentation
	@scripts/check

mutants: ## Take out each protection in turn: its test must fail
	@scripts/mutants

up: ## Payments and orders on PostgreSQL, Kafka, Redis, with traces and metrics
	@scripts/up

down: ## Stop what `make up` started
	@scripts/down

soak: ## The long forms of the tests; make soak MINUTES=60
	@scripts/soak $(MINUTES)

bench: ## Ratios side by side, in release mode; make bench BENCH=bad-keys for one
	@scripts/bench $(BENCH)
