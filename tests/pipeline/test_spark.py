"""Finding a Java: the user's own, the system's, the one from PyPI, or a message that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.pipeline import spark as spark_start


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers `-version` like a Java, and prints its arguments otherwise."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; else echo "$@"; fi\n'
    )
    java.chmod(0o755)
    return folder


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(spark_start, "bundled_java", lambda: None)
    return tmp_path


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert spark_start.java_version(str(fake_java(tmp_path, text) / "bin" / "java")) == version


def test_what_is_no_java(tmp_path: Path) -> None:
    assert spark_start.java_version(str(tmp_path / "java")) is None
    assert spark_start.java_version(sys.executable) is None


def test_the_users_own_comes_first(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, system = fake_java(no_java / "own", "21.0.1"), fake_java(no_java / "system", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(own))
    monkeypatch.setenv("PATH", f"{system}/bin:/bin")
    assert spark_start.find_java() == str(own)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(no_java / "old", "11.0.2")))
    assert spark_start.find_java() == str(system)


def test_the_one_from_the_package_index_is_the_last_resort(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_start, "bundled_java", lambda: "/somewhere")
    assert spark_start.find_java() == "/somewhere"


def test_no_java_at_all(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match=r"no java was found\): install Java 17, 21 or 25 .* pip install 'metromq\[jdk\]'"
    ):
        spark_start.find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(no_java / "old", "11.0.2")))
    with pytest.raises(UsageError, match="is Java 11"):
        spark_start.find_java()


def test_the_shim_drops_one_option(tmp_path: Path) -> None:
    home = spark_start.write_shim(str(fake_java(tmp_path / "real", "21")), tmp_path / "shim")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "Main", "--conf", "x=y z"]
    out = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True).stdout
    assert out == "-Xmx1g -cp a b:c Main --conf x=y z\n"


@pytest.mark.timeout(600)
def test_the_environment_is_left_as_it_was(spark: SparkSession) -> None:
    assert spark.version.startswith("4.")
    assert "metromq-spark" not in os.environ.get("JAVA_HOME", "")


def test_nobody_else_imports_spark() -> None:
    modules = "metromq, metromq.cli.main, metromq.cli.pipeline, metromq.broker, metromq.client"
    code = f"import sys, {modules}; print({{'pyspark', 'pyarrow', 'numpy'}} & sys.modules.keys())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "set()\n"
