# The proof on the real engine (tests/engine); included by Makefile, which defines PYTHON.
# What it builds lies in $VLLM_EAGLE3_PATCHES_CACHE or ~/.cache/vllm-eagle3-patches, and is reused.

.PHONY: engine-setup engine engine-all engine-report

engine-setup: setup
	$(PYTHON) tests/engine/environments.py

engine: engine-setup
	$(PYTHON) -m pytest tests/engine

engine-all: setup
	$(PYTHON) tests/engine/environments.py 0.15.0 0.15.1 0.16.0 0.17.0 0.17.1 0.32.0
	$(PYTHON) -m pytest tests/engine --everything

# docs/proof.md from the last run, which must have been green; after engine-all also
# docs/supported/engine-0.32.0.json, from which `make docs` says what is proved on the engine
engine-report: setup
	$(PYTHON) tests/engine/report.py docs/proof.md
