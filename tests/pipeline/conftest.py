"""Lakes for tests of the pipeline, and object stores for all of them: a start costs seconds, its use nothing."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.object_store import BUCKET, object_store

from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from tests.pipeline.azure_store import CONTAINER, azure_store


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """On a path, or where a test says: `@pytest.mark.parametrize("lake", ["path", "s3", "azure"], indirect=True)`."""
    where = getattr(request, "param", "path")
    return Lake(tmp_path / "lake" if where == "path" else request.getfixturevalue(where))


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


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with azure_store(tmp_path_factory.mktemp("azure")) as environment:
        yield environment


@pytest.fixture
def azure(azure_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in azure_server.items():
        monkeypatch.setenv(name, value)
    return f"abfs://{CONTAINER}/{uuid.uuid4().hex}/lake"
