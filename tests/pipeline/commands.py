"""`metromq pipeline` as a user types it, but on the session that all tests share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from metromq.cli.main import group
from metromq.cli.pipeline import loading, queries, upkeep


@contextmanager
def on_session(spark: SparkSession) -> Iterator[None]:
    """The commands start no Spark of their own."""

    @contextmanager
    def session(master: str, memory: str, conf: Sequence[str]) -> Iterator[SparkSession]:
        yield spark

    with pytest.MonkeyPatch.context() as patch:
        for module in (queries, upkeep, loading):
            patch.setattr(module, "spark_session", session)
        yield


def pipeline(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["pipeline", *arguments], catch_exceptions=False)


def answer(spark: SparkSession, *arguments: str) -> str:
    """What a command prints that must succeed."""
    with on_session(spark):
        ran = pipeline(*arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout
