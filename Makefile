# `make tune` and `make test` are all there is to it: .venv is made on the way.
# PYTHON=python3 runs a target with that interpreter as it is instead, installing nothing.
# VENV_PYTHON=python3.12 makes .venv with that interpreter instead of python3.

ifdef PYTHON
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
READY := autotopk/runtime/_launcher.abi3.so autotopk/_predict.abi3.so
else
PYTHON := .venv/bin/python
READY := .venv/installed
endif
VENV_PYTHON ?= python3
OLDEST_TRITON := 3.6.0
WITH_OLDEST_TRITON = PYTHONPATH=$(CURDIR)/.venv/triton-$(OLDEST_TRITON):$(PYTHONPATH)
PYTEST := $(PYTHON) -m pytest
PARALLEL := -n auto --maxprocesses 8
ARGS ?=
FILE ?= winners.bundle
OUT ?= autotopk/packs

.PHONY: tune bench export kernels test test-slow test-gpu test-aot docs dist lint format venv clean

tune: $(READY)  ## measure on this machine and keep the winners
	$(PYTHON) -m autotopk tune $(ARGS)

bench: $(READY)  ## what autotopk.topk costs beside torch.topk
	$(PYTHON) -m autotopk bench $(ARGS)

export: $(READY)  ## write this machine's winners and their kernels to FILE
	$(PYTHON) -m autotopk export $(FILE)

kernels: $(READY) .venv/triton-$(OLDEST_TRITON)  ## compile the kernels that are shipped into OUT; needs no GPU, uses all cores
	$(WITH_OLDEST_TRITON) $(PYTHON) -m scripts.kernels --out $(OUT) $(ARGS)

test: $(READY) .venv/triton-$(OLDEST_TRITON)  ## everything that needs no GPU: plain, interpreted, oldest Triton
	$(PYTEST) $(PARALLEL) -m "not gpu and not interpret and not slow"
	TRITON_INTERPRET=1 $(PYTEST) $(PARALLEL) -m "interpret and not slow"
	$(WITH_OLDEST_TRITON) $(PYTEST) $(PARALLEL) -m "compile and not tilelang and not slow"

test-slow: $(READY) .venv/triton-$(OLDEST_TRITON)  ## what takes minutes: wider sweeps, mutated files, load
	$(PYTEST) -m "slow and not gpu and not interpret" $(ARGS)
	TRITON_INTERPRET=1 $(PYTEST) -m "interpret and slow" $(ARGS)
	$(WITH_OLDEST_TRITON) $(PYTEST) -m "compile and slow and not tilelang" $(ARGS)

test-gpu: $(READY)  ## what needs a GPU, one process
	$(PYTEST) -m gpu $(ARGS)

test-aot: $(READY)  ## models with top-k in C++ on a GPU: answers, and times beside torch.topk's
	$(PYTHON) -m scripts.aot $(ARGS)

docs: $(READY)  ## the pages as a site, in build/site; what is wrong with a link is an error
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml --site-dir $(CURDIR)/build/site

dist: $(READY)  ## what an index takes, in dist: the sources and a manylinux wheel, checked
	rm -rf dist build/wheel
	$(PYTHON) -m build --outdir build/wheel .
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/auditwheel repair --wheel-dir dist build/wheel/*.whl
	mv build/wheel/*.tar.gz dist
	.venv/bin/abi3audit --strict dist/*.whl
	.venv/bin/twine check --strict dist/*

lint: venv  ## format, style, types, direction of imports
	.venv/bin/ruff format --check . && .venv/bin/ruff check .
	.venv/bin/mypy && .venv/bin/lint-imports

format: venv
	.venv/bin/ruff check --fix-only . && .venv/bin/ruff format .

venv: .venv/installed

# torch first and alone: resolved with the rest, another release of it may be tried, which costs gigabytes.
.venv/installed: pyproject.toml constraints.txt autotopk/runtime/_launcher.c autotopk/_predict.c
	@$(VENV_PYTHON) -c 'import sys; found = sys.version_info[:2]; found >= (3, 11) or sys.exit( \
		"$(VENV_PYTHON) is Python %d.%d, and autotopk needs 3.11 or later: make VENV_PYTHON=python3.12" % found)'
	@echo "installing into .venv: torch with its CUDA libraries, about 2.7 GB to download; then TileLang, nvcc and others, 0.3 GB"
	test -x .venv/bin/python || $(VENV_PYTHON) -m venv .venv
	.venv/bin/python -m pip install -c constraints.txt torch
	.venv/bin/python -m pip install -c constraints.txt -e ".[nvcc,dev]"
	touch $@

.venv/triton-%:
	$(PYTHON) -m pip install --quiet --no-deps --target $@ triton==$*

# What an installation does, for interpreters that nothing is installed into. Without a compiler, calls cost more.
%.abi3.so: %.c
	-$(CC) -O2 -shared -fPIC -I$(shell $(PYTHON) -c "import sysconfig; print(sysconfig.get_path('include'))") $< -o $@ -ldl -lm

clean:
	rm -rf build dist *.egg-info .hypothesis .*_cache autotopk/*.so autotopk/runtime/*.so .venv/installed
	find . -name __pycache__ -not -path "./.venv/*" -prune -exec rm -rf {} +
