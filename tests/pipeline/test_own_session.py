"""A user's own PySpark session: the environment's Python started by its path, and no environment activated."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metromq.errors import UsageError
from metromq.pipeline import register
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
