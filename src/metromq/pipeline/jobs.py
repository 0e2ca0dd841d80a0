"""The streaming job: landing area to tables, for ever or once; one per lake, whoever was killed before."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.pipeline import landing_source
from metromq.pipeline.ingest import Ingest, Taken
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.spark import java_pid

ORPHAN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How `run` behaves; rows and files bound a micro-batch and with it the memory."""

    once: bool = False
    trigger_seconds: float = 0.5
    max_rows: int = 500_000
    max_files: int = 200
    refresh_seconds: float = 30.0
    landing: str | None = None


def run(
    spark: SparkSession,
    lake: Lake,
    options: RunOptions,
    report: Callable[[Taken], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Take in all there is (`once`), or follow until `stopped`."""
    area = Landing(options.landing or lake.landing)
    with lake_lock(lake, java_pid(spark)):
        spark.dataSource.register(landing_source.LandingSource)
        ingest = Ingest(spark, lake, area, report)
        stream = (
            spark.readStream.format(landing_source.NAME)
            .option("path", area.root)
            .option("maxRows", str(options.max_rows))
            .option("maxFiles", str(options.max_files))
            .load()
        )
        writer = stream.writeStream.foreachBatch(ingest.take).option(
            "checkpointLocation", str(lake.root / "_checkpoints" / "landing")
        )
        if options.once:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime=f"{int(options.trigger_seconds * 1000)} milliseconds").start()
        try:
            while not query.awaitTermination(0.5):
                if stopped():
                    break
        finally:
            query.stop()


@contextmanager
def lake_lock(lake: Lake, java: int) -> Iterator[None]:
    """One ingest per lake. A killed Python leaves its Java alive for a moment: wait for that, it may still write a checkpoint."""
    lake.root.mkdir(parents=True, exist_ok=True)
    with open(lake.root / "_ingest.lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"another `metromq pipeline run` works on {lake.root} ({file.read().strip()}); stop it first"
            ) from None
        file.seek(0)
        _await_end(file.read())
        file.truncate(0)
        file.write(json.dumps({"python": os.getpid(), "java": java, "java_started": _started(java)}))
        file.flush()
        yield
        file.truncate(0)


def _await_end(note: str) -> None:
    if not note:
        return
    left = json.loads(note)
    deadline = time.monotonic() + ORPHAN_SECONDS
    while _started(left["java"]) == left["java_started"]:
        if time.monotonic() > deadline:
            raise UsageError(f"the Java process {left['java']} of a killed run still lives; end it, then start again")
        time.sleep(0.05)


def _started(pid: int) -> str:
    """When a process started, in ticks: with the number it names a process for ever; empty: it is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = status.rsplit(")", 1)[1].split()
    return "" if fields[0] == "Z" else fields[19]
