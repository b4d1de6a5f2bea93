# A fresh machine needs make and Python 3.11 or newer with pip. Everything else comes into .venv,
# pinned and checked against its hash.

PYTHON ?= python3
ARCH   ?= amd64

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

# Compiled files are kept: where they are not, each run of the tests compiles all of them again.
unexport PYTHONDONTWRITEBYTECODE

# Many tests of make check wait for something: one more than there are processors.
workers = $(shell expr `nproc` + 1)

on_node := --node examples/node/node.yaml --kubelet examples/node/kubelet.yaml
comma   := ,

# On CI root gets what the virtual machines, the browser, the shells and the checks of the alerts need.
# Elsewhere these tests are skipped where it is missing, and say how to get it.
ci_tools := $(if $(filter true,$(CI)),$(shell [ `id -u` = 0 ] && command -v apt-get >/dev/null && echo vm-tools browser-tools terminal-tools))

.PHONY: help demo demo-lab check test test-matrix soak vm-tools browser-tools terminal-tools lint docs \
	image kubectl-plugin sbom publish changelog release test-pythons test-arm64 bench setup clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo      show the main job on the bundled examples'
	@echo 'make demo-lab  see throttling and the guard at work in a virtual machine: about a minute'
	@echo 'make check     lint, then the tests that need no virtual machine and no browser'
	@echo 'make test      lint, then all tests'
	@echo 'make test-matrix  all tests on a real kernel, on Debian 12, 13 and testing'
	@echo 'make soak      an agent under churn, faults and hostile cgroups for some minutes'
	@echo 'make vm-tools  as root: what the tests on a real kernel need'
	@echo 'make browser-tools  as root: what the tests in a real browser need'
	@echo 'make terminal-tools  as root: what the tests in a real terminal need'
	@echo 'make lint      style, types, import contracts and spelling'
	@echo 'make docs      the docs as a site with search, in build/site; broken links fail'
	@echo 'make image     as root: an OCI image, for containerd or any other runtime to import (ARCH=arm64)'
	@echo 'make kubectl-plugin  archives of kubectl memqos, and the manifest for krew'
	@echo 'make sbom      what is in the image (CycloneDX)'
	@echo 'make publish REGISTRY=…  print what pushes the images; RUN=yes runs it'
	@echo 'make changelog  the fragments of changes/ as a section of CHANGELOG.md'
	@echo 'make release   as root: tag, and build all files of a release into dist; pushes nothing'
	@echo 'make test-pythons  as root: unit tests with the Pythons of Debian 12, 13 and testing'
	@echo 'make test-arm64  as root: run the image for arm64 under qemu-user'
	@echo 'make bench     measure'
	@echo 'make clean     remove everything make made'

# $(call show,arguments): a command as one would type it, bold on a terminal, and what it prints
show = @[ -t 1 ] && bold='\033[1m' plain='\033[0m' || bold= plain=; \
	printf "\n$$bold"'$$ memqos %s'"$$plain\n" '$(1)' && $(bin)/memqos $(1)

demo: $(venv)/.stamp
	$(call show,explain examples/shop.yaml $(on_node))
	$(call show,explain examples/one.yaml --capacity 16Gi --why)
	$(call show,explain examples/one.yaml --capacity 16Gi --compare 1.22$(comma)1.27$(comma)1.36$(comma)1.37)
	$(call show,plan --snapshot tests/nodes/numa.json --policy None) || [ $$? -eq 2 ]  # as plan says that there is something to change
	$(call show,why pod/api-1 -n shop --records examples/records)
	$(call show,audit examples/cluster/dump.json --usage examples/cluster/metrics.json)
	@$(bin)/memqos explain examples/ide.yaml $(on_node) -o svg > $(venv)/ide.svg
	@printf '\nThe picture of a pod is in $(venv)/ide.svg; made with explain -o svg.\n'

demo-lab: $(venv)/.stamp
	$(call show,lab run throttling --variant 0.9 --variant 0.5 --variant 0.5-guard) || [ $$? -eq 2 ]

check: lint
	@$(bin)/python -m pytest -n $(workers) --dist worksteal -rfE -m 'not vm' --ignore tests/browser

test: lint $(ci_tools)
	@$(bin)/python -m pytest -n auto --dist worksteal -rfEs

test-matrix: lint $(ci_tools)
	@MEMQOS_VM_MATRIX=1 $(bin)/python -m pytest -n auto --dist worksteal -rfEs tests/vm

soak: $(venv)/.stamp-dev
	@$(bin)/python -m tests.soak

vm-tools:
	@PYTHONPATH=src $(PYTHON) -m tests.vm.harness.tools

browser-tools:
	@$(PYTHON) -m tests.browser.chromium

terminal-tools:
	@$(PYTHON) -m tests.terminal.tmux

lint: $(venv)/.stamp-dev
	@$(bin)/ruff check
	@$(bin)/ruff format --check
	@$(bin)/mypy
	@$(bin)/lint-imports --no-logo
	@$(bin)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs deploy examples src --skip '*.pyc,*.json,*.jsonl,*.svg'

docs: $(venv)/.stamp-docs
	@$(bin)/sphinx-build -W --keep-going -q -d build/doctrees docs build/site
	@echo 'Open build/site/index.html.'

image: $(venv)/.stamp
	@$(PYTHON) -m deploy.image.build --setuptools-of $(bin)/python --arch $(ARCH) build/memqos-image-$(ARCH).tar

kubectl-plugin: $(venv)/.stamp
	@$(PYTHON) -m deploy.kubectl.build --setuptools-of $(bin)/python build/kubectl

sbom: $(venv)/.stamp-dev
	@$(bin)/python -m deploy.image.sbom build/memqos-image-$(ARCH).tar build/memqos-image-$(ARCH).cdx.json

publish:
	@[ -n '$(REGISTRY)' ] $(call or_stop,no registry is named,make publish REGISTRY=registry.example.com/platform)
	@$(PYTHON) -m deploy.publish $(REGISTRY) $(if $(filter yes,$(RUN)),--run)

changelog: $(venv)/.stamp-dev
	@$(bin)/towncrier build --yes

release: $(venv)/.stamp-dev
	@[ -n '$(URL)' ] $(call or_stop,no address of the files is given,make release URL=https://example.com/memqos/releases)
	@$(PYTHON) -m deploy.release --tools-of $(bin)/python --url $(URL)

test-pythons: $(venv)/.stamp
	@$(PYTHON) -m tests.pythons --setuptools-of $(bin)/python $(PYTHONS)

test-arm64: $(venv)/.stamp-dev
	@[ -f build/memqos-image-arm64.tar ] || $(MAKE) image ARCH=arm64
	@$(bin)/python -m pytest -rs tests/unit/test_arm64.py

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

# What the site needs; neither the command nor the tests do.
$(venv)/.stamp-docs: requirements-docs.txt $(venv)/.stamp
	@$(call logged,$(pip) install --require-hashes -r requirements-docs.txt,the pinned packages of the docs site could not be installed)
	@touch $@

$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		$(call or_stop,$(PYTHON) is missing or older than Python 3.11,make PYTHON=/path/to/python3.11)
	@$(PYTHON) -c 'import pip, sys; sys.exit([int(n) for n in pip.__version__.split(".")[:2]] < [22, 3])' 2>/dev/null \
		$(call or_stop,$(PYTHON) has no pip or one older than 22.3,install or upgrade it (python3-pip on Debian))
	@echo 'Setting up $(venv), once.'
	@$(PYTHON) -m venv --without-pip $(venv) \
		$(call or_stop,no virtual environment could be made in $(venv),see why above and run make again)
