# Everything runs in .venv, which `make install` makes from the lock of its Python in locks/. No active environment is needed
# or used. PYTHON=/path/to/python: another than the newest that fits.
PYTHONS := 3.11 3.12 3.13
BIN := .venv/bin
WORKERS ?= auto
export TF_USE_LEGACY_KERAS := 0
export TF_CPP_MIN_LOG_LEVEL := 2
unexport PYTHONPATH VIRTUAL_ENV PYTHONHOME
unexport PYTHONDONTWRITEBYTECODE  # every test process would compile 300 files again, in 3 s
# In a recipe: $$python is then the interpreter that was asked for, or the newest that fits, looked for there and then.
find_python = python="$(or $(PYTHON),$$(sh tools/find_python.sh))" && test -n "$$python"

.PHONY: help install demo test-fast test-changed test test-all flink flink-test spark spark-test azurite hdfs contract fuzz attack soak image image-test lint docs lock dist peers clean
help:           ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/:/'

install: .venv/.installed  ## .venv with exactly the locked versions, and the command .venv/bin/ctrpipe

.venv/.installed: $(PYTHONS:%=locks/%.lock) setup.py pyproject.toml tools/install.py
	@$(find_python) && "$$python" tools/install.py .venv
	@touch $@

demo: install   ## the main job: a generated log, trained, gated, served, asked
	$(BIN)/ctrpipe demo

pytest := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: install  ## the quick tests, 5 minutes on 2 cores: while you work
	$(pytest) -m "not slow and not large"

test-changed: install  ## of `make test`, the files that have not passed since something that they depend on changed; never in CI
	$(pytest) -m "not large" --changed

test: install   ## the tests that CI runs: before a change is handed in
	$(pytest) -m "not large"

test-all: install  ## every case of the large matrices (models x precisions x backends), a long fuzz and a soak
	$(pytest)
	$(MAKE) flink-test
	$(MAKE) spark-test
	$(MAKE) fuzz REQUESTS=20000 GRPC=2000 MINUTES=10
	$(MAKE) attack
	$(MAKE) soak MINUTES=5

# Flink as PyPI has it, and Beam's runner for it as Maven Central has it: 0.6 GB in .flink, by pip and mvn.
flink: .flink/.installed  ## what `make flink-test` runs: downloads Flink and Beam's job server into .flink

.flink/.installed: tests/clusters/flink.xml
	@rm -rf .flink && mkdir -p .flink/download
	$(find_python) && "$$python" -m pip download --quiet --no-deps --dest .flink/download apache-flink-libraries==1.19.3
	tar -xzf .flink/download/*.tar.gz -C .flink/download
	mv .flink/download/apache-flink-libraries-*/deps/lib .flink/lib
	rm -rf .flink/download
	mvn -B -q -f tests/clusters/flink.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.flink/job-server
	@touch $@

# Spark as PyPI has it, and Beam's runner for it as Maven Central has it: 0.4 GB in .spark, by pip and mvn.
spark: .spark/.installed  ## what `make spark-test` runs: downloads Spark and Beam's job server into .spark

.spark/.installed: tests/clusters/spark.xml
	@rm -rf .spark && mkdir -p .spark/download
	$(find_python) && "$$python" -m pip download --quiet --no-deps --dest .spark/download pyspark==3.5.6
	tar -xzf .spark/download/*.tar.gz -C .spark/download
	mv .spark/download/pyspark-*/deps/jars .spark/jars
	rm -rf .spark/download
	mvn -B -q -f tests/clusters/spark.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.spark/job-server
	@touch $@

azurite: .azurite/.installed  ## what the tests of abfs:// run (`make test-all`): Microsoft's emulator into .azurite, by npm

.azurite/.installed:
	npm install --silent --no-audit --no-fund --prefix .azurite azurite@3.35.0
	@touch $@

# Hadoop as Maven Central has it, and the C sources of its libhdfs as crates.io has them: 80 MB in .hdfs, by mvn and cargo.
hdfs: .hdfs/.installed  ## what the tests of hdfs:// run (`make test-all`): Hadoop into .hdfs, by mvn, cargo and cc; needs a JDK

HDFS_C = .hdfs/crates/hdfs-sys/libhdfs
.hdfs/.installed: tests/hdfs/pom.xml tests/hdfs/Cargo.toml
	@rm -rf .hdfs && mkdir -p .hdfs/native
	mvn -B -q -f tests/hdfs/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.hdfs/jars
	cp tests/hdfs/Cargo.toml .hdfs/Cargo.toml
	cd .hdfs && cargo vendor --quiet crates > config.toml
	@java=$${JAVA_HOME:-$$(dirname $$(dirname $$(readlink -f $$(command -v javac))))} && set -x && \
	cc -shared -fPIC -fcommon -O2 -w -o .hdfs/native/libhdfs.so -I$(HDFS_C) \
	    $$(find $(HDFS_C)/hdfs_3_3 -type d -not -path "*windows*" -printf "-I%p ") -I$$java/include -I$$java/include/linux \
	    $$(find $(HDFS_C)/hdfs_3_3 -name "*.c" -not -path "*windows*") -L$$java/lib/server -ljvm -Wl,-rpath,$$java/lib/server
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
VERSION ?= $(shell $(BIN)/python setup.py --version 2> /dev/null)
build_image = $(ENGINE) build $(if $(filter podman,$(ENGINE)),--ignorefile kubeflow/Dockerfile.dockerignore) $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(VERSION),--build-arg VERSION=$(VERSION)) \
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

# Not in the locks: the extras `gpu`, whose wheels take 3 GB, and `hub`, `mlflow` and `wandb`, whose tests are skipped without them.
locked := $(foreach extra,kubeflow jax text tune avro sql lakes tfrs,--extra $(extra)) --group dev
compile := $(BIN)/uv pip compile --generate-hashes --custom-compile-command "make lock" --quiet
old_glibc := --python-version 3.11 --python-platform x86_64-manylinux_2_28
new_glibc = --python-version $(1) --python-platform x86_64-manylinux_2_39
lock: install  ## locks/ and the peers' files from pyproject.toml and their *.in; what is locked stays where it still fits
	$(compile) pyproject.toml $(locked) --override overrides.txt $(old_glibc) -o locks/3.11.lock
	$(compile) pyproject.toml $(locked) --override overrides.txt $(call new_glibc,3.12) -o locks/3.12.lock
	$(compile) pyproject.toml $(locked) --override overrides.txt $(call new_glibc,3.13) -o locks/3.13.lock
	for image in pipeline serving; do $(BIN)/python kubeflow/image_locks.py $$image > kubeflow/$$image.lock || exit 1; done
	sed -n 's/^tensorflow==\([^ ]*\).*/tensorflow-cpu==\1/p' locks/3.11.lock | $(compile) - --no-deps $(old_glibc) --no-header --no-annotate >> kubeflow/serving.lock
	for peer in fuxictr deepctr_torch recbole huggingface faiss scann; do \
	    $(compile) benchmarks/peers/$$peer.in $(old_glibc) -o benchmarks/peers/$$peer.txt || exit 1; \
	done

dist: install   ## dist/: the source distribution and the wheel of the last commit, the same bytes each time, checked by twine
	$(BIN)/python tools/dist.py dist
	$(BIN)/twine check --strict dist/*

peers: $(foreach name,fuxictr deepctr_torch recbole huggingface faiss scann,.peers/$(name)/.installed)  ## environments of the libraries that benchmarks/ compares with

# Their locks are for Python 3.11, which some of them need.
.peers/%/.installed: benchmarks/peers/%.txt
	@python3.11 -c 'import ensurepip' || { echo "make peers: the peers need python3.11 with its module ensurepip"; exit 2; }
	python3.11 -m venv .peers/$*
	@echo "Installing $* and what it needs (up to 2 GB on disk) ..."
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

clean:          ## remove what make and the demo made
	rm -rf .venv demo build dist *.egg-info
