"""One Spark session for all tests of the pipeline: a start costs seconds, a session nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metromq.pipeline import spark as spark_start
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing

# Compiling queries pays for millions of rows, not for tens; the tests of the command, kills and cluster do compile.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": f"{spark_start.java_options()} -XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_start.start("local[2]", memory="768m", app="metromq-tests", settings=QUICK)
    yield session
    spark_start.stop(session)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def landing(lake: Lake) -> Landing:
    return Landing(lake.landing)
