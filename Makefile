# Everything runs in .venv, made on first use.  Caches of wheels and engine environments lie in
# $VLLM_EAGLE3_PATCHES_CACHE or ~/.cache/vllm-eagle3-patches and are only ever an accelerator.
PYTHON3 ?= python3
PYTHON := .venv/bin/python

.PHONY: setup test lint patches docs bench clean
.DEFAULT_GOAL := test

.venv/.made: pyproject.toml
	$(PYTHON3) -m venv .venv
	$(PYTHON) -m pip install --quiet --upgrade pip
	$(PYTHON) -m pip install --quiet --editable '.[test,lint]'
	touch $@

setup: .venv/.made

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test: lint
	$(PYTHON) -m pytest tests --ignore=tests/engine --numprocesses 2

patches: setup
	$(PYTHON) tools/make_patches.py

docs: setup
	$(PYTHON) tools/make_docs.py
	$(PYTHON) tools/make_supported.py --survey

bench: setup
	$(PYTHON) benchmarks/bench.py
	$(PYTHON) benchmarks/bench_explain.py
	$(PYTHON) benchmarks/bench_rehearse.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

-include engine.mk
