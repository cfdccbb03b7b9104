# Verbs for people and for CI. Everything is installed into .venv; nothing else is touched.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo

.PHONY: help install demo online test census slow chaos kills faults models golden notebooks slurm ssh gpu image image-packages lint types format clean

help:
	@echo "make demo       install, then train a DLRM on a local cluster, from data to predictions"
	@echo "make online     a model that keeps learning from data that drift, and its versions, in two minutes"
	@echo "make test       lint, types and tests (what CI runs)"
	@echo "make census     the census job on the real data, faults included: CENSUS=DIR"
	@echo "make slow       the tests that take longer: killed tasks, gs://, a browser, how leases spread"
	@echo "make chaos      random faults to RUNS=100 jobs from FIRST=0 on, each must complete: CENSUS=DIR"
	@echo "make kills      jobs killed KILLS=50 times around their saves, workers in every mode, tables that grow"
	@echo "make faults     storage that misbehaves at every call of a run: POINTS=0 (all) of each kind"
	@echo "make models     models of many kinds compared with Keras's fit, in one process and on a cluster"
	@echo "make golden     render the kept requests to platforms again, show what has changed"
	@echo "make notebooks  execute the notebooks again and keep what they show: CENSUS=DIR"
	@echo "make slurm      jobs on a real Slurm, which it installs (apt, as root) and starts on this machine"
	@echo "make ssh        jobs on machines that a real OpenSSH reaches, each in a network of its own (apt, as root)"
	@echo "make gpu        train, check and measure on this machine's NVIDIA GPUs: GPU_ARGS=--runs=1"
	@echo "make image      build the container image, or print how: IMAGE=tfps KIND=cpu or gpu"
	@echo "make image-packages  pin again what the images install"
	@echo "make format     let ruff rewrite the code's layout"
	@echo "make clean      remove what the verbs above made, .venv included"

$(VENV)/installed: pyproject.toml setup.py
	@echo "installing into $(VENV): TensorFlow and what the tests need, some minutes and 3.6 GB"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

install: $(VENV)/installed

demo: install
	rm -rf $(DEMO)
	$(BIN)/python -m trainer.generate --config=configs/criteo.py --records=500000 --shards=8 \
	  --output=$(DEMO)/train
	$(BIN)/python -m trainer.generate --config=configs/criteo.py --records=100000 --shards=4 \
	  --seed=1 --output=$(DEMO)/eval
	$(BIN)/python -m cloud.local --workers=2 --ps=2 -- --config=configs/criteo.py \
	  --data.train=$(DEMO)/train --data.eval=$(DEMO)/eval --job_dir=$(DEMO)/job --train.epochs=2
	$(BIN)/python -m trainer.predict --model=$(DEMO)/job/export --data=$(DEMO)/eval \
	  --output=$(DEMO)/predictions.csv
	head -6 $(DEMO)/predictions.csv
	$(BIN)/python -m trainer.report $(DEMO)/job

# docs/online.md.
ONLINE := runs/online
online: install
	$(BIN)/python -m benchmarks.online --output=$(ONLINE)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: install
	$(BIN)/mypy

# Three processes for two cores: for a quarter of the time a test waits for its programs. Each keeps
# the tests that it has rewritten for the others, so nothing may forbid __pycache__.
test: export PYTHONDONTWRITEBYTECODE =
test: lint types
	$(BIN)/pytest -m 'not slow and not models and not slurm and not ssh' -n 3 --dist loadfile --no-loadscope-reorder --durations=20

# The census job on the real data (UCI Adult): make census CENSUS=DIR with adult.data and adult.test.
census: install
	TFPS_CENSUS=$(abspath $(CENSUS)) $(BIN)/pytest -m slow tests/integration/test_census.py

# What `make test` leaves out, on clusters of up to 12 processes; nothing else should be running.
# TFPS_BROWSER has what needs a browser fail without one, which is else skipped.
# Last come the tests that measure how evenly workers are busy.
slow: install
	TFPS_BROWSER=1 $(BIN)/pytest -m 'slow and not (alone or models)' -n 2 --dist loadfile --no-loadscope-reorder --durations=20
	$(BIN)/pytest -m 'slow and alone' --durations=20

# Of a small census job, on drawn data where CENSUS is not given; KEPT has an outcome per seed and
# the output of those that failed. OUTCOMES, a file, collects outcomes of several calls.
RUNS := 100
FIRST := 0
KEPT := runs/chaos
chaos: install
	rm -f $(KEPT)/seed-*
	TFPS_CHAOS_RUNS=$(RUNS) TFPS_CHAOS_FIRST=$(FIRST) TFPS_CHAOS_KEPT=$(abspath $(KEPT)) \
	  $(if $(CENSUS),TFPS_CENSUS=$(abspath $(CENSUS))) \
	  $(BIN)/pytest -v -n 3 --dist load tests/integration/test_chaos.py; status=$$?; \
	  $(BIN)/python -m tests.integration.chaos_table $(KEPT) $(OUTCOMES); exit $$status

# The tests of `make slow` that kill at random moments, with fewer of them there.
KILLS := 50
kills: install
	TFPS_KILLS=$(KILLS) $(BIN)/pytest -v tests/integration/test_killed_saves.py \
	  tests/integration/test_killed_workers.py tests/integration/test_chief_works.py \
	  tests/integration/test_dynamic_tables.py tests/integration/test_followed_data.py

# Each call of a short run meets each kind of fault: some 2,500 runs of 4 CPU-seconds. POINTS=20 for
# that many of each kind.
POINTS := 0
faults: install
	$(BIN)/python -m tests.faults.exploration --points=$(POINTS)
	TFPS_EVERY_REQUEST=1 $(BIN)/pytest -m slow tests/faults/test_parts.py

# The table of docs/keras.md.
MODELS := runs/keras_models
models: install
	rm -rf $(MODELS)
	TFPS_KERAS_KEPT=$(abspath $(MODELS)) $(BIN)/pytest -n 2 tests/keras_models \
	  tests/integration/test_keras_models_on_cluster.py; status=$$?; \
	  $(BIN)/python -m tests.keras_models.kept $(MODELS); exit $$status

golden: install
	$(BIN)/python -m tests.golden

# On the real data (UCI Adult), and on records that are drawn.
notebooks: install
	$(BIN)/python -m tests.notebooks $(if $(CENSUS),$(abspath $(CENSUS)))

# Some 15 minutes. As root: it installs Slurm's packages where they are not there, names the nodes in
# /etc/hosts while the tests run, and ends the daemons with them.
slurm: install
	$(BIN)/python -m tests.system_packages slurm
	$(BIN)/pytest -v -m slurm --durations=20

# Some 10 minutes. As root: it installs OpenSSH's server where it is not there, and makes networks with
# machines of their own while the tests run.
ssh: install
	$(BIN)/python -m tests.system_packages ssh
	$(BIN)/pytest -v -m ssh --durations=20

# docs/gpu.md. It installs what is missing itself, once it has seen a GPU.
GPU_ARGS :=
gpu:
	$(PYTHON) -m benchmarks.gpu.start $(GPU_ARGS)

DOCKER := docker
IMAGE := tfps
KIND := cpu
BUILD = $(DOCKER) build --build-arg=KIND=$(KIND) --tag=$(IMAGE) .
image:
	@if $(DOCKER) info > /dev/null 2>&1; then $(BUILD); \
	else echo "No container engine answers here. Where one does, run"; echo "  $(BUILD)"; fi

image-packages: install
	$(BIN)/python docker/lock.py

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
