# Needs Python 3.11 or newer, pip and make; everything else is installed into environments of its own below this folder.
PYTHON ?= python3
# Python compiles a module when it is first imported: to compile all of both frameworks takes longer than all else here.
PIP_FLAGS ?= -qq --disable-pip-version-check --no-input --no-compile
JOBS ?= 2

DEMO := .venv-demo
DEV := .venv
PINS := pyproject.toml constraints.txt

# Hundreds of processes of the tests import the project: each would compile all of its sources.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo examples quick test test-all gpu wheels check site kills soak schemas generated clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(DEMO)/installed  ## plan, explain and train a GAN on real digits, from nothing (PyTorch only)
	$(DEMO)/bin/python examples/demo.py

examples: $(DEMO)/examples  ## train more examples and judge what they reach
	$(DEMO)/bin/python examples/judge.py

# The slice says most for its time: layers and tables, whole plans, diagnostics and emitted sources, hand-written loops of some rows.
# Building a wheel says little for its own, and what looks at every import or kind of op takes long. Of emitted sources it has the examples'.
QUICK := tests/architecture $(foreach slow,wheel imports kinds,--ignore=tests/architecture/test_$(slow).py) tests/golden $(foreach row,accumulated_gradients deferred_updates skipped_steps missing_gradients,tests/features/test_$(row).py)
quick: $(DEV)/installed  ## check format, lint, types and layers, and run the tests that say most: a minute and a half
	$(DEV)/bin/ruff format --check --quiet .
	@$(DEV)/bin/pyright --pythonpath $(DEV)/bin/python & types=$$!; \
	  $(DEV)/bin/python -m pytest -q -n $(JOBS) --dist loadgroup -k "not conformance and not benchmarks" $(QUICK); tests=$$?; wait $$types && exit $$tests

# loadgroup keeps tests that share a costly fixture on one worker. tests/conftest.py gives each process one thread.
# At its end pytest lists the slowest tests.
test: $(DEV)/installed  ## run the tests, with both frameworks: all but the long set
	$(DEV)/bin/python -m pytest -q -n $(JOBS) --dist loadgroup

test-all: test  ## run the tests, then the long set: all other cases, more random specs, kills, demo and examples (docs/correctness.md)
	$(DEV)/bin/python -m tests.suite.long

# Nothing is installed: it runs with the interpreter that has PyTorch. What that lacks comes from wheels, if they are there.
GPU_DEVICE ?= cuda
GPU_SECONDS ?= 540
GPU_PAGE ?= docs/gpu.md
WHEELS ?= build/wheels
gpu:  ## run what the tests prove on a GPU, offline, with PYTHON's own PyTorch, and write docs/gpu.md
	@missing=$$($(PYTHON) -m tests.gpu --missing) && if [ -n "$$missing" ] && [ -d "$(WHEELS)" ]; then \
	  $(PYTHON) -m pip install $(PIP_FLAGS) --no-index --find-links "$(WHEELS)" --target build/gpu --upgrade $$missing; fi
	STEPGRAPH_GPU_SITE=build/gpu $(PYTHON) -m tests.gpu --device $(GPU_DEVICE) --seconds $(GPU_SECONDS) --out $(GPU_PAGE)

FOR ?= 3.12
wheels:  ## fetch what `make gpu` may lack on a machine without a network, for another Python (FOR=3.12): build/wheels
	$(base) -m pip download $(PIP_FLAGS:--no-compile=) --dest $(WHEELS) --only-binary=:all: --python-version $(FOR) \
	  -c constraints.txt $$($(base) -m tests.gpu --wheels)

check: $(DEV)/installed  ## check format, lint, types and layers
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/ruff check .
	$(DEV)/bin/pyright --pythonpath $(DEV)/bin/python
	$(DEV)/bin/lint-imports

site: $(DEV)/installed  ## build the docs as a site, with a gallery of the examples: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(DEV)/bin/python -m mkdocs build

kills: $(DEV)/installed  ## kill runs 50 times for each of eight specs, 10 times on TensorFlow, and compare their folders
	OMP_NUM_THREADS=1 $(DEV)/bin/python -m tests.resilience 50
	OMP_NUM_THREADS=1 $(DEV)/bin/python -m tests.resilience 10 --backend tensorflow

SOAK_SECONDS ?= 600
soak: $(DEV)/installed  ## compare more random specs with the oracle (SOAK_SECONDS=600), after those tried already
	OMP_NUM_THREADS=1 $(DEV)/bin/python -m tests.properties.soak --seconds $(SOAK_SECONDS)

schemas: $(DEV)/installed  ## regenerate schemas/*.json
	$(DEV)/bin/python -m graphspec.write.jsonschema schemas
	$(DEV)/bin/python -m compiler.plan.schema schemas

# In this order: pages are written from the schemas' models and docstrings, goldens from all of it.
GENERATORS := graphspec.functions features.table peers.page docs.reference compiler.test_golden golden.test_valid golden.test_invalid golden.emitted
generated: schemas  ## regenerate all that is generated: schemas, pages, goldens; read the diff afterwards
	@for each in $(GENERATORS); do echo "python -m tests.$$each"; $(DEV)/bin/python -m tests.$$each || exit 1; done
	@git diff --stat

clean:  ## remove the environments
	rm -rf $(DEMO) $(DEV)

# $(call install,FOLDER,EXTRA EXTRA ...) makes the environment afresh whenever a pin changes, so that nothing old stays in it.
# The machine's own pip fills it: `venv` alone would need ensurepip, which Debian packages apart from Python.
# An activated environment of this folder is about to be removed, so the interpreter that made it takes its place.
# Hatchling comes first, by its pinned version, because pip's build isolation would fetch an unpinned one.
base = $(shell $(PYTHON) -c 'import os, sys; print(sys._base_executable if os.path.basename(sys.prefix) in ("$(DEMO)", "$(DEV)") else sys.executable)')
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stepgraph needs Python 3.11 or newer, for example: make PYTHON=python3.11")'
	@echo "stepgraph: making $(1) with the versions of constraints.txt; this takes minutes the first time"
	@if [ -d $(1) ] && [ ! -e $(1)/made-by-make ]; then echo "stepgraph: $(1) was made by something else; remove it first" >&2; exit 1; fi
	@rm -rf $(1) && $(base) -m venv --without-pip $(1) && touch $(1)/made-by-make
	@$(base) -m pip --python $(1)/bin/python install $(PIP_FLAGS) -c constraints.txt hatchling
	@for extra in $(2); do \
	  echo "stepgraph: installing stepgraph[$$extra]"; \
	  $(base) -m pip --python $(1)/bin/python install $(PIP_FLAGS) -c constraints.txt --no-build-isolation --editable ".[$$extra]" || exit 1; \
	done
	@touch $(1)/installed
endef

$(DEMO)/installed: $(PINS)
	$(call install,$(DEMO),torch)

# The demo's environment with what the examples need besides.
$(DEMO)/examples: $(DEMO)/installed
	@$(base) -m pip --python $(DEMO)/bin/python install $(PIP_FLAGS) -c constraints.txt --no-build-isolation --editable ".[examples]"
	@touch $@

$(DEV)/installed: $(PINS)
	$(call install,$(DEV),torch tensorflow dev coming-from)
