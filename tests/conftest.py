"""For all tests: Hypothesis draws the same examples everywhere, whatever the machine's speed; one Spark session."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("metromq", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("metromq")


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A start costs many seconds, its use nothing."""
    from metromq.pipeline import spark as spark_start
    from tests.pipeline.settings import QUICK

    session = spark_start.start("local[2]", memory="768m", app="metromq-tests", settings=QUICK)
    yield session
    spark_start.stop(session)
