"""Spark looks for packages named `pyspark_*` and offers their `DefaultSource`: `format("metromq")` needs no set-up."""

from metromq.pipeline.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
