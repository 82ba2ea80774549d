# The verbs of this project, the same for people and CI. Each sets itself up on a machine with Python 3.11+, make and
# git; what is slow to make is made once and kept in the cache (${XDG_CACHE_HOME:-~/.cache}/lora-sidecar).
.DEFAULT_GOAL := help
.PHONY: help demo test e2e check fix conformance bench bench-agent bench-aggregator bench-injector docs pins chart image manifests clean-cache
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
RUN := venv=$$(scripts/venv); "$$venv/bin/python"
ENGINE ?= simulated
IMAGE ?=
VERSION ?= 0.5.21
ARGS ?=

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-16s %s\n", $$1, $$2}'

demo: ## Show the main job, end to end, on a real API server (ENGINE=real: on a real SGLang too)
	@$(RUN) -m tests.demo --engine $(ENGINE) $(ARGS)

test: ## Run every test that needs no real SGLang, with the real control plane (ARGS="-k word")
	@$(RUN) -m pytest -m "not real_engine and not e2e" $(ARGS)

e2e: ## Run the chart and the image on a real one-node cluster of this machine (root), or on E2E_KUBECONFIG's
	@$(RUN) -m pytest tests/e2e $(ARGS)

conformance: ## Run the engine's contract suite on the real SGLang (VERSION=0.5.21)
	@$(RUN) -m pytest tests/conformance --engine=real --engine-version=$(VERSION) $(ARGS)

check: ## Lint, types, layers, generated docs, chart
	@$(RUN) -m ruff check . && "$$venv/bin/python" -m ruff format --check . && "$$venv/bin/python" -m mypy \
		&& "$$venv/bin/lint-imports" --no-cache && "$$venv/bin/python" -m scripts.docs --check \
		&& "$$venv/bin/python" -m tests.chart lint

fix: ## Let ruff mend what it can
	@$(RUN) -m ruff check --fix . && $(RUN) -m ruff format .

bench: bench-agent bench-aggregator bench-injector ## Measure every budget

bench-agent: ## Measure the agent against its budgets: one JSON line a figure
	@$(RUN) -m tests.bench.agent $(ARGS)

bench-aggregator: ## Measure the aggregator against its budgets, with 1,000 pods (some minutes)
	@$(RUN) -m tests.bench.aggregator $(ARGS)

bench-injector: ## Measure the injector against its budgets
	@$(RUN) -m tests.bench.injector $(ARGS)

chart: ## Pack the Helm chart into dist/
	@$(RUN) -m tests.chart package

image: ## Build the image with buildah or docker (TAG=registry/lora-sidecar:tag BASE=python:3.13-slim)
	@$(RUN) -m scripts.image $(if $(TAG),--tag "$(TAG)") $(if $(BASE),--base "$(BASE)")

manifests: ## Write everything as plain manifests into dist/ (IMAGE=registry/lora-sidecar:tag KUBERNETES=1.34)
	@$(RUN) -m tests.chart manifests --image "$(IMAGE)" $(if $(KUBERNETES),--kubernetes "$(KUBERNETES)")

docs: ## Write the generated pages of docs/
	@$(RUN) -m scripts.docs

pins: ## Resolve the dependencies anew into requirements/
	@$(RUN) -m scripts.pins

clean-cache: ## Remove everything that the verbs have cached
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/lora-sidecar"
