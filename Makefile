# The commands of the house. `make city` shows MetroMQ at work, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONPATH := src

.PHONY: city test style types unit compiled bench lab chaos clean

city: $(VENV)/.city
	$(BIN)/metromq demo

test: $(VENV)/.dev style types unit compiled

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/pytest

clean:
	rm -rf $(VENV) build dist src/*.egg-info
