# make install   .venv with everything, pinned by requirements.lock
# make demo      break a training job on this machine and show the answer (mycroft demo)
# make test      lint, types and all tests, on real Kafka and the real ClickHouse engine
# make bench     figures of the README, on this machine
# make matrix    faults × topologies × networks on the testbed, through the whole pipeline
# make screenshots  the pictures in docs/images, from a run that is lived again
# make lock      renew requirements.lock after a change of pyproject.toml

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILE := .cache/uv/bin/uv pip compile pyproject.toml --universal --python-version 3.10 --generate-hashes \
  --no-emit-index-url --no-annotate --no-header --quiet
APT := apt-get install -y --no-install-recommends

.PHONY: install demo test lint bench matrix screenshots lock clean kafka-tools native-tools operator-tools compose-tools

install: $(INSTALLED)

$(INSTALLED): requirements.lock pyproject.toml setup.py $(wildcard native/collector/* native/plugin/* native/testbed/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "mycroft needs Python 3.10 or newer; name one with: make PYTHON=python3.12 install"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && $(APT) python3-venv; } \
	  || { echo "Python's venv module is missing: install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m streams.compile
	@touch $@

demo: install
	$(BIN)/mycroft demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror native/*/*.cpp native/*/*.h

# Apache Kafka itself comes through Maven; these two are what that takes.
kafka-tools:
	@command -v java >/dev/null && command -v mvn >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && $(APT) openjdk-17-jre-headless maven; } \
	  || echo "java or mvn is missing: the tests on Apache Kafka will be skipped (install openjdk-17-jre-headless and maven)"

# GoogleTest, for the tests of the plugin.
native-tools:
	@[ -e /usr/include/gtest/gtest.h ] || [ -e /usr/local/include/gtest/gtest.h ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && $(APT) libgtest-dev; } \
	  || { echo "GoogleTest is missing: install libgtest-dev"; exit 2; }

# A browser for the reports, Alertmanager and kcat for what reads the alerts.
TOOLS := chromium chromium-driver prometheus-alertmanager kcat
operator-tools:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	  && command -v prometheus-alertmanager >/dev/null && command -v kcat >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && RUNLEVEL=1 $(APT) $(TOOLS); } \
	  || echo "one of $(TOOLS) is missing: tests that need it will be skipped"

# Docker, for the test that brings up docker-compose.yml; mmdebstrap for what stands in for images that cannot be pulled.
compose-tools:
	@command -v docker >/dev/null && { docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; } \
	  && { docker version >/dev/null 2>&1 || { command -v dockerd && command -v mmdebstrap; } >/dev/null; } \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && $(APT) docker.io docker-compose iptables mmdebstrap; } \
	  || echo "Docker is missing: the test of docker-compose.yml will be skipped (install docker.io and docker-compose)"

# Settings of docker-compose.yml, once: a random password wherever a line of the example ends in =.
.env:
	@umask 077; while IFS= read -r line; do case $$line in \
	  \#*) echo "$$line";; \
	  *=) echo "$$line$$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')";; \
	  *) echo "$$line";; esac; done < .env.example > .env
	@echo "made .env with passwords of its own"

test: lint kafka-tools native-tools operator-tools compose-tools
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n 2

bench: install
	$(BIN)/python -m benchmarks

# What of the faults, and with which seed: make matrix ARGS="--faults kill --seed 7" (--help tells all).
matrix: install
	$(BIN)/python -m benchmarks.matrix $(ARGS)

# The pictures in docs/images.
screenshots: install operator-tools
	$(BIN)/python -m tests.integration.screenshots

lock:
	$(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet uv
	$(COMPILE) --extra dev -o requirements.lock
	$(COMPILE) --extra image -c requirements.lock -o requirements.image.lock

clean:
	rm -rf $(VENV) .cache build *.egg-info
