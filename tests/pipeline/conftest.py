"""One Spark session and one object store for all tests of the pipeline: a start costs seconds, its use nothing."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.object_store import BUCKET, object_store
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
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """On a path, or where a test says: `@pytest.mark.parametrize("lake", ["path", "s3"], indirect=True)`."""
    on_s3 = getattr(request, "param", "path") == "s3"
    return Lake(request.getfixturevalue("s3") if on_s3 else tmp_path / "lake")


@pytest.fixture
def landing(lake: Lake) -> Landing:
    return Landing(lake.landing)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a program that uses the store."""
    with object_store(tmp_path_factory.mktemp("s3")) as server:
        yield server.environment


@pytest.fixture
def s3(s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own in the store, whose settings this process has in its environment."""
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/lake"
