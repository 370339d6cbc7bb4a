# Everything runs in .venv, which `make install` makes from requirements.lock. No active environment is needed or used.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
UV_OUTPUT := $(shell test -t 2 || echo --quiet)  # progress bars for a person, no list of 270 packages in a file
WORKERS ?= auto
export TF_USE_LEGACY_KERAS := 0
export TF_CPP_MIN_LOG_LEVEL := 2
unexport PYTHONPATH VIRTUAL_ENV PYTHONHOME
unexport PYTHONDONTWRITEBYTECODE  # every test process would compile 300 files again, in 3 s
check_python = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "ctrpipe needs Python 3.11; set PYTHON=/path/to/python3.11"; exit 2; }

.PHONY: help install demo test-fast test-changed test test-all flink flink-test spark spark-test contract fuzz attack soak image image-test lint docs lock peers clean
help:           ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/:/'

install: .venv/.installed  ## .venv with exactly the locked versions, and the command .venv/bin/ctrpipe

# pip installs uv, which then installs everything in a third of pip's time or less, from pip's index where pip has one of its own.
# Both check every hash. Where uv fails, pip does all of it. Bytecode is compiled here, not at everyone's first import.
.venv/.installed: requirements.lock setup.py pyproject.toml
	$(check_python)
	@echo "Installing the locked packages into .venv (about 4 GB on disk) ..."
	@$(PYTHON) -m venv .venv
	@awk '/^[^ #]/ {in_uv = /^uv==/} in_uv' requirements.lock > .venv/uv.lock
	@$(PIP) install --no-deps --require-hashes -r .venv/uv.lock
	@index="$$($(PIP) config list | sed -n "s/^[^=]*[.]index.url='\(.*\)'$$/\1/p" | tail -1)"; \
	env $${index:+UV_DEFAULT_INDEX="$$index"} $(BIN)/uv pip install --python $(BIN)/python $(UV_OUTPUT) \
	    --no-deps --require-hashes --compile-bytecode -r requirements.lock \
	|| { echo "uv failed; pip installs them, which takes a few minutes ..."; $(PIP) install --no-deps --require-hashes -r requirements.lock; }
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
	@echo "Installed: $(BIN)/ctrpipe"

demo: install   ## the main job: a generated log, trained, gated, served, asked
	$(BIN)/ctrpipe demo

pytest := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: install  ## the quick tests, 3 minutes on 4 cores: while you work
	$(pytest) -m "not slow and not large"

test-changed: install  ## of `make test`, the files that have not passed since something that they depend on changed; never in CI
	$(pytest) -m "not large" --changed

test: install   ## the tests, 15 minutes on 4 fast cores and 45 on 2 slow ones: before a change is handed in, and in CI
	$(pytest) -m "not large"

test-all: install  ## every case of the large matrices (models x precisions x backends), a long fuzz and a soak
	$(pytest)
	$(MAKE) flink-test
	$(MAKE) spark-test
	$(MAKE) fuzz REQUESTS=20000 GRPC=2000 MINUTES=10
	$(MAKE) attack
	$(MAKE) soak MINUTES=5

# Flink as PyPI has it, and Beam's runner for it as Maven Central has it: 0.6 GB in .flink, by python3.11 and mvn.
flink: .flink/.installed  ## what `make flink-test` runs: downloads Flink and Beam's job server into .flink

.flink/.installed: tests/clusters/flink.xml
	$(check_python)
	@rm -rf .flink && mkdir -p .flink/download
	$(PYTHON) -m pip download --quiet --no-deps --dest .flink/download apache-flink-libraries==1.19.3
	tar -xzf .flink/download/*.tar.gz -C .flink/download
	mv .flink/download/apache-flink-libraries-*/deps/lib .flink/lib
	rm -rf .flink/download
	mvn -B -q -f tests/clusters/flink.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.flink/job-server
	@touch $@

# Spark as PyPI has it, and Beam's runner for it as Maven Central has it: 0.4 GB in .spark, by python3.11 and mvn.
spark: .spark/.installed  ## what `make spark-test` runs: downloads Spark and Beam's job server into .spark

.spark/.installed: tests/clusters/spark.xml
	$(check_python)
	@rm -rf .spark && mkdir -p .spark/download
	$(PYTHON) -m pip download --quiet --no-deps --dest .spark/download pyspark==3.5.6
	tar -xzf .spark/download/*.tar.gz -C .spark/download
	mv .spark/download/pyspark-*/deps/jars .spark/jars
	rm -rf .spark/download
	mvn -B -q -f tests/clusters/spark.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.spark/job-server
	@touch $@

flink-test: export CTRPIPE_CLUSTER_TEST := flink
flink-test: install  ## a run, scoring and a lost task manager on a Flink cluster of this machine; `make flink` first
	$(BIN)/python -m pytest -rs tests/clusters

spark-test: export CTRPIPE_CLUSTER_TEST := spark
spark-test: install  ## the same on a Spark cluster of this machine; `make spark` first
	$(BIN)/python -m pytest -rs tests/clusters

# URL=http://HOST:PORT GRPC=HOST:PORT: a server that serves the folder of `python -m tests.contract.models FOLDER`.
# SERVER=/usr/bin/tensorflow_model_server: that binary, started with the tests' flags.
contract: export CTRPIPE_CONTRACT_URL := $(URL)
contract: export CTRPIPE_CONTRACT_GRPC := $(GRPC)
contract: export CTRPIPE_CONTRACT_SERVER := $(SERVER)
contract: export CTRPIPE_CONTRACT_TABLE := 1
contract: install  ## TF Serving's contract, item by item; also of another server: URL=... GRPC=..., or SERVER=...
	$(BIN)/python -m pytest tests/contract

fuzz: install   ## broken requests to the server: REQUESTS=100000 over REST, GRPC=10000, at most MINUTES=30
	$(BIN)/python -m tests.fuzz --requests $(or $(REQUESTS),100000) --grpc $(or $(GRPC),10000) --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(if $(URL),--url $(URL)) $(if $(GRPC_ADDRESS),--grpc_address $(GRPC_ADDRESS))

attack: install  ## clients that want the server's memory, time and connections, each with its bound; also URL=... GRPC=...
	$(BIN)/python -m tests.attack $(if $(URL),--url $(URL)) $(if $(GRPC),--grpc_address $(GRPC)) $(foreach name,$(ONLY),--only $(name))

soak: install   ## steady load on the server for MINUTES=30; fails where its memory grows
	$(BIN)/python -m tests.fuzz.soak --minutes $(or $(MINUTES),30)

# BASE=python:3.11-slim-trixie@sha256:..., or another image of Python 3.11 with glibc 2.28; ENGINE=docker; IMAGE_FLAGS: what
# else its build is given. An authority of your own, in SSL_CERT_FILE, is trusted while packages are fetched.
ENGINE ?= $(notdir $(firstword $(shell command -v podman docker)))
TAG ?= 1
build_image = $(ENGINE) build $(if $(filter podman,$(ENGINE)),--ignorefile kubeflow/Dockerfile.dockerignore) $(if $(BASE),--build-arg BASE=$(BASE)) \
    $(if $(SSL_CERT_FILE),--secret id=certificates$(comma)src=$(SSL_CERT_FILE)) $(IMAGE_FLAGS) -f kubeflow/Dockerfile
comma := ,
image:          ## the images localhost/ctrpipe:1 and localhost/ctrpipe-serving:1, by podman or docker: BASE=... TAG=...
	@test -n "$(ENGINE)" || { echo "make image: neither podman nor docker is installed; install one of them"; exit 2; }
	$(build_image) --target pipeline -t localhost/ctrpipe:$(TAG) .
	$(build_image) --target serving -t localhost/ctrpipe-serving:$(TAG) .

image-test: install  ## what `make image` has built, run without rights: demo, server, scores, every step of a pipeline
	CTRPIPE_IMAGE=localhost/ctrpipe:$(TAG) CTRPIPE_SERVING_IMAGE=localhost/ctrpipe-serving:$(TAG) $(BIN)/python -m pytest -rs tests/image

lint: install docs  ## ruff, mypy, and the documents built strictly
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

docs: export NO_MKDOCS_2_WARNING := 1
docs: install   ## the documents as a site that needs no network: build/site/index.html
	$(BIN)/mkdocs build --strict

# Not in the lock: the extras `gpu`, whose wheels take 3 GB, and `hub`, without which all tests run.
locked := $(foreach extra,kubeflow jax text tune tfrs,--extra $(extra)) --group dev
lock: install  ## requirements.lock and the peers' files from their *.in; what is locked stays where it still fits
	$(BIN)/uv pip compile pyproject.toml $(locked) --override overrides.txt --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes --quiet -o requirements.lock
	for image in pipeline serving; do $(BIN)/python kubeflow/image_locks.py $$image > kubeflow/$$image.lock || exit 1; done
	sed -n 's/^tensorflow==\([^ ]*\).*/tensorflow-cpu==\1/p' requirements.lock | $(BIN)/uv pip compile - --no-deps --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes --no-header --no-annotate --quiet >> kubeflow/serving.lock
	for peer in fuxictr deepctr_torch recbole huggingface faiss scann; do \
	    $(BIN)/uv pip compile benchmarks/peers/$$peer.in --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes --custom-compile-command "make lock" --quiet -o benchmarks/peers/$$peer.txt || exit 1; \
	done

peers: $(foreach name,fuxictr deepctr_torch recbole huggingface faiss scann,.peers/$(name)/.installed)  ## environments of the libraries that benchmarks/ compares with

.peers/%/.installed: benchmarks/peers/%.txt
	$(check_python)
	$(PYTHON) -m venv .peers/$*
	@echo "Installing $* and what it needs (up to 2 GB on disk) ..."
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

clean:          ## remove what make and the demo made
	rm -rf .venv demo build *.egg-info
