"""Spark's Java classes, read and checked once for all: with this archive of Java's, Spark starts in half the time."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from metromq.errors import UsageError
from metromq.pipeline import spark
from metromq.pipeline.lake import Lake
from metromq.pipeline.maintain import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DUMP_S = 600.0  # on a busy machine; ten seconds otherwise
_QUIETLY = "-Xlog:cds=error -Xlog:cds+dynamic=error"  # it names hundreds of classes that it cannot keep


def make_class_archive(memory: str = spark.DEFAULT_MEMORY) -> Path:
    """Start Spark, let it write and read a little, and keep the classes that it took; where they are."""
    archive = spark.class_archive(spark.find_java())
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="making-") as folder:
        written = Path(folder) / archive.name
        archive.unlink(missing_ok=True)  # Java makes none while it takes one
        options = f"{spark.java_options()} {spark.LIGHT} {_QUIETLY} -XX:ArchiveClassesAtExit={written}"
        session = spark.start("local[*]", memory, settings={"spark.driver.extraJavaOptions": options})
        try:
            _do_a_little(session, Lake(Path(folder) / "lake"))
        finally:
            spark.stop(session, _DUMP_S)
        if not written.exists():
            raise UsageError("this Java keeps no archive of classes; Spark starts as before")
        written.replace(archive)
    return archive


def make_archive_soon() -> Path | None:
    """Have a process in the background make the archive; None: it is there, or was tried before. What that process has
    to say is in a file beside the archive, by which the next command knows that it need not start another."""
    archive = spark.class_archive(spark.find_java())
    if archive.exists():
        return None
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with archive.with_suffix(".log").open("x") as log:
            subprocess.Popen(
                [sys.executable, "-m", "metromq.cli.main", "pipeline", "prepare", "--in-background"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is not meant for it
            )
    except OSError:  # tried before, or there is no place for it
        return None
    return archive


def _do_a_little(session: "SparkSession", lake: Lake) -> None:
    """What commands do: tables are written and asked."""
    columns = {
        "offset": "id",
        "time": "timestamp_micros(1767225600000000 + id * 1000000)",
        "kind": "'publish'",
        "topic": "concat('1/2/sensor', id % 10)",
        "payload": "cast('21.5' as binary)",
        "qos": "1",
        "retain": "false",
        "publisher": "'nobody'",
        "journal": "'none'",
        "day": "DATE'2026-01-01'",
        "broker": "concat('b', id % 2)",
    }
    schema = lake.read(session, "messages", []).schema
    types = {item.name: item.dataType.simpleString() for item in schema}
    wanted = [f"cast({columns.get(name, 'null')} as {kind}) {name}" for name, kind in types.items()]
    rows = session.range(100).selectExpr(*wanted)
    lake.commit("messages", lake.write_files(rows, "messages"))
    ask(session, lake, "SELECT broker, count(*) AS n, max(time) FROM messages GROUP BY broker ORDER BY broker", 10)
