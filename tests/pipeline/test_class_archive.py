"""Spark's classes from an archive of Java's, which the first command that starts Spark has made in the background."""

import subprocess
import sys
from pathlib import Path

import pytest

from metromq.pipeline import make_archive_soon
from metromq.pipeline import spark as spark_start
from tests.pipeline.processes import until


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


def test_the_first_command_has_it_made_and_the_next_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, loaded = tmp_path / "lake", tmp_path / "loaded"
    lake.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = spark_start.class_archive(spark_start.find_java())
    first = _ask(lake, loaded)
    assert first.stdout.split() == ["n", "7"]
    assert f"once ({archive}" in first.stderr
    assert make_archive_soon() is None  # one is being made
    until(lambda: "\n" in archive.with_suffix(".log").read_text(), "the archive")
    assert archive.with_suffix(".log").read_text().endswith("Spark takes it from now on\n")
    answer = _ask(lake, loaded)
    assert answer.stdout.split() == ["n", "7"]
    assert "background" not in answer.stderr
    ours = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line]
    kept = [line for line in ours if "shared objects file (top)" in line]
    assert len(kept) > len(ours) // 2, f"{len(kept)} of {len(ours)}"


def test_what_failed_is_not_tried_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = spark_start.class_archive(spark_start.find_java())
    archive.parent.mkdir(parents=True)
    archive.with_suffix(".log").write_text("this Java keeps no archive of classes")
    assert make_archive_soon() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    (tmp_path / "a file").write_text("")
    assert make_archive_soon() is None


def test_an_archive_that_java_cannot_take_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, loaded = tmp_path / "lake", tmp_path / "loaded"
    lake.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = spark_start.class_archive(spark_start.find_java())
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"torn")
    assert _ask(lake, loaded).stdout.split() == ["n", "7"]
