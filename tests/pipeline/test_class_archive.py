"""Spark's classes from an archive of Java's, as `metromq pipeline prepare` makes it."""

import subprocess
import sys
from pathlib import Path

import pytest

from metromq.pipeline import make_class_archive
from metromq.pipeline import spark as spark_start


def _ask(lake: Path, loaded: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        "-m",
        "metromq.cli.main",
        "pipeline",
        "sql",
        "--lake",
        str(lake),
        "--spark",
        "SELECT 7 AS n",
    ]
    log = (
        f"spark.driver.extraJavaOptions={spark_start.java_options()} {spark_start.LIGHT} -Xlog:class+load:file={loaded}"
    )
    return subprocess.run([*command, "--conf", log], capture_output=True, text=True, check=True)


def test_spark_takes_its_classes_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, loaded = tmp_path / "lake", tmp_path / "loaded"
    lake.mkdir()
    if not spark_start.is_prepared():
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        make_class_archive()
    answer = _ask(lake, loaded)
    assert answer.stdout.split() == ["n", "7"]
    assert "pipeline prepare" not in answer.stderr
    ours = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line]
    kept = [line for line in ours if "shared objects file (top)" in line]
    assert len(kept) > len(ours) // 2, f"{len(kept)} of {len(ours)}"


def test_an_archive_that_java_cannot_take_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, loaded = tmp_path / "lake", tmp_path / "loaded"
    lake.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = spark_start.class_archive(spark_start.find_java())
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"torn")
    assert _ask(lake, loaded).stdout.split() == ["n", "7"]
