"""A user's own PySpark session: the environment's Python started by its path, and no environment activated."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.pipeline import keep_running, register
from metromq.pipeline.source import JournalSource
from tests.pipeline.data import journal_of

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
import sys
from pyspark.sql import SparkSession

quick = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
spark = SparkSession.builder.master("local[1]").config(map={"spark.driver.host": "127.0.0.1", **quick}).getOrCreate()
try:
    print("before:", spark.read.format("metromq").load(sys.argv[1]).count())
except Exception as error:
    print("before:", "DATA_SOURCE_NOT_FOUND" in str(error))

from metromq.pipeline import register

register(spark)
rows = spark.read.format("metromq").load(sys.argv[1]).collect()
print("after:", len({row["offset"] for row in rows}))
"""


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A Python that has nothing of ours, as the system's has."""
    venv.create(tmp_path / "other", with_pip=False)
    return tmp_path / "other" / "bin" / "python3"


def test_the_source_without_an_activated_environment(other_python: Path, tmp_path: Path) -> None:
    journal_of(tmp_path / "b1" / "journal", 30).close()
    chosen = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    packages = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(folder).resolve()) for folder in packages if folder)
    environment["PATH"] = f"{other_python.parent}:/usr/local/bin:/usr/bin:/bin"
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "b1")]
    ran = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("\n")[:2] == ["before: True", "after: 30"]


class Session:
    """As much of a session as is asked."""

    def __init__(self, program: str, master: str) -> None:
        self.sparkContext = SimpleNamespace(pythonExec=program, master=master)
        self.known: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.known.append)


def registered(program: str, master: str = "local[2]") -> str:
    session: Any = Session(program, master)
    assert register(session) is session
    assert [source.name() for source in session.known] == ["metromq"]
    return str(session.sparkContext.pythonExec)


def test_a_python_that_somebody_chose_is_kept(other_python: Path, tmp_path: Path) -> None:
    assert registered("python3") == sys.executable
    link = tmp_path / "python"  # the same environment under another name
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    link.chmod(0o755)
    assert registered(str(link)) == str(link)
    assert registered(str(link), "spark://host:7077") == str(link)


@pytest.mark.parametrize("program", ["other", "/nowhere/python3"])
def test_a_chosen_python_that_cannot_run_it_is_named(program: str, other_python: Path) -> None:
    program = program.replace("other", str(other_python))
    with pytest.raises(UsageError, match=rf"the Python {program}, .*No .*set PYSPARK_PYTHON to one .*{sys.executable}"):
        registered(program)


LATE_PYTHON = """#!/bin/sh
case "$*" in *python_streaming_source_runner*)
    if mkdir "{once}" 2> /dev/null; then exec sleep 15; fi  # Spark waits for ten seconds
esac
exec "{python}" "$@"
"""


def test_a_stream_whose_python_starts_too_late(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark says of it is Spark's own; it ends the query, which `keep_running` starts again."""

    class LateSource(JournalSource):
        @classmethod
        def name(cls) -> str:
            return "metromq-late"

    program = tmp_path / "python"
    program.write_text(LATE_PYTHON.format(once=tmp_path / "once", python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    spark.dataSource.register(LateSource)
    journal_of(tmp_path / "b1" / "journal", 30).close()
    batches: dict[int, list[int]] = {}

    def keep(frame: Any, batch: int) -> None:
        batches[batch] = [row["offset"] for row in frame.select("offset").collect()]

    def start() -> Any:
        stream = spark.readStream.format("metromq-late").option("maxRowsPerBatch", "20").load(str(tmp_path / "b1"))
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    said: list[str] = []
    ended = keep_running(start, said.append)
    assert not ended.isActive
    assert sorted(offset for rows in batches.values() for offset in rows) == list(range(30))
    assert ["could not start a Python worker in time" in text for text in said] == [True]
