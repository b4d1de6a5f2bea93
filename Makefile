# A fresh machine needs make and Python 3.11 or newer with pip. Everything else comes into .venv,
# pinned and checked against its hash.

PYTHON ?= python3

venv := .venv
bin  := $(venv)/bin
log  := $(venv)/setup.log
# Debian keeps ensurepip in a package apart, so the venv is made without a pip of its own and
# that of $(PYTHON) installs into it, where no "externally managed" mark stands in the way.
pip  := $(PYTHON) -m pip --python $(bin)/python --disable-pip-version-check

# command $(call or_stop,what failed,next step)
or_stop = || { echo 'make: $(1)' >&2; echo '  next: $(2)' >&2; exit 1; }
# $(call logged,command,what failed): nothing is shown when all is well
logged  = $(1) >$(log) 2>&1 || { tail -n 15 $(log) >&2; false; } \
	$(call or_stop,$(2),read above or in $(log). Then run make again; "make clean" starts afresh)

on_node := --node examples/node/node.yaml --kubelet examples/node/kubelet.yaml
comma   := ,

# On CI root gets what the virtual machines, the browser and the checks of the alerts need.
# Elsewhere these tests are skipped where it is missing, and say how to get it.
ci_tools := $(if $(filter true,$(CI)),$(shell [ `id -u` = 0 ] && command -v apt-get >/dev/null && echo vm-tools browser-tools))

.PHONY: help demo check test soak vm-tools browser-tools lint image bench setup clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo      show the main job on the bundled examples'
	@echo 'make check     lint, then the tests that need no virtual machine and no browser'
	@echo 'make test      lint, then all tests'
	@echo 'make soak      an agent under churn, faults and hostile cgroups for some minutes'
	@echo 'make vm-tools  as root: what the tests on a real kernel need'
	@echo 'make browser-tools  as root: what the tests in a real browser need'
	@echo 'make lint      style, types and import contracts'
	@echo 'make image     as root: an OCI image, for containerd or any other runtime to import'
	@echo 'make bench     measure'
	@echo 'make clean     remove everything make made'

# $(call show,arguments): a command as one would type it, and what it prints
show = @printf '\n\033[1m$$ memqos %s\033[0m\n' '$(1)' && $(bin)/memqos $(1)

demo: $(venv)/.stamp
	$(call show,explain examples/shop.yaml $(on_node))
	$(call show,explain examples/one.yaml --capacity 16Gi --why)
	$(call show,explain examples/one.yaml --capacity 16Gi --compare 1.22$(comma)1.27$(comma)1.36$(comma)1.37)
	$(call show,plan --snapshot tests/nodes/numa.json --policy None) || [ $$? -eq 2 ]  # as plan says that there is something to change
	$(call show,why pod/api-1 -n shop --records examples/records)
	$(call show,audit examples/cluster/dump.json --usage examples/cluster/metrics.json)
	@$(bin)/memqos explain examples/ide.yaml $(on_node) -o svg > $(venv)/ide.svg
	@printf '\nThe picture of a pod is in $(venv)/ide.svg; made with explain -o svg.\n'

check: lint
	@$(bin)/python -m pytest -n auto --dist worksteal -rfE --ignore tests/vm/test_in_vm.py --ignore tests/browser

test: lint $(ci_tools)
	@$(bin)/python -m pytest -n auto --dist worksteal -rfEs

soak: $(venv)/.stamp-dev
	@$(bin)/python -m tests.soak

vm-tools:
	@$(PYTHON) -m tests.vm.harness.tools

browser-tools:
	@$(PYTHON) -m tests.browser.chromium

lint: $(venv)/.stamp-dev
	@$(bin)/ruff check
	@$(bin)/ruff format --check
	@$(bin)/mypy
	@$(bin)/lint-imports --no-logo

image: $(venv)/.stamp
	@$(PYTHON) -m deploy.image.build --setuptools-of $(bin)/python build/memqos-image.tar

bench: $(venv)/.stamp
	@$(bin)/python bench/run.py

setup: $(venv)/.stamp-dev

clean:
	@rm -rf $(venv) build dist src/memqos.egg-info
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The command alone: what the demo needs.
$(venv)/.stamp: requirements.txt requirements-build.txt pyproject.toml | $(bin)/python
	@$(call logged,$(pip) install --require-hashes -r requirements.txt -r requirements-build.txt,the pinned packages could not be installed)
	@$(call logged,$(pip) install --no-build-isolation --no-deps --editable .,memqos itself could not be installed)
	@$(bin)/python -m compileall -q src
	@touch $@

# The tools on top: what the tests need.
$(venv)/.stamp-dev: requirements-dev.txt $(venv)/.stamp
	@$(call logged,$(pip) install --require-hashes -r requirements-dev.txt,the pinned tools could not be installed)
	@touch $@

$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		$(call or_stop,$(PYTHON) is missing or older than Python 3.11,make PYTHON=/path/to/python3.11)
	@$(PYTHON) -c 'import pip, sys; sys.exit([int(n) for n in pip.__version__.split(".")[:2]] < [22, 3])' 2>/dev/null \
		$(call or_stop,$(PYTHON) has no pip or one older than 22.3,install or upgrade it (python3-pip on Debian))
	@echo 'Setting up $(venv), once.'
	@$(PYTHON) -m venv --without-pip $(venv) \
		$(call or_stop,no virtual environment could be made in $(venv),see why above and run make again)
