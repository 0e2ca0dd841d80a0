"""The streaming job: landing area to tables, for ever or once; one per lake, whoever was killed before."""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Final

from deltalake.exceptions import CommitFailedError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from metromq.errors import LakeConflict, MetroError, UsageError
from metromq.pipeline import landing_source
from metromq.pipeline.ingest import Ingest, Taken
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import compact, remove_orphans
from metromq.pipeline.patience import Say, patiently
from metromq.pipeline.refreshing import refresh
from metromq.pipeline.spark import java_pid

ORPHAN_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How `run` behaves; rows and files bound a micro-batch and with it the memory."""

    once: bool = False
    trigger_seconds: float = 0.5
    max_rows: int = 500_000
    max_files: int = 200
    refresh_seconds: float = 30.0  # 0: no statistics
    compact_seconds: float = 3600.0  # 0: small files stay; a stream makes a few every second
    landing: str | None = None


def run(
    spark: SparkSession,
    lake: Lake,
    options: IngestOptions,
    report: Callable[[Taken], None],
    stop: Event | None = None,
    say: Say = lambda text: None,
    lock: "LakeLock | None" = None,
) -> None:
    """Take in all there is (`once`), or follow until `stop` is set; the statistics follow at their own pace.

    `lock`: the caller holds it already, from before it started Spark.
    """
    stop = stop or Event()
    with nullcontext(lock) if lock is not None else lake_lock(lake) as held:
        held.names(java_pid(spark))
        remove_orphans(lake)
        keeper = _Keeper(spark, lake, options, say)
        area = Landing(options.landing or lake.landing)
        gate = _Gate(Ingest(spark, lake, area, report, say))
        if not options.once:
            keeper.start()
        try:
            patiently(lambda: _follow(spark, lake, area, options, gate, lambda: stop.is_set() or keeper.failed), say)
        except StreamingQueryException as error:
            if isinstance(gate.failure, MetroError):
                raise gate.failure from None  # in our own words, without Java's
            raise MetroError(f"the stream failed: {_cause(str(error))}") from error
        finally:
            gate.close()
            keeper.finish()
        if options.once and options.refresh_seconds:
            say("refreshing the statistics")
            patiently(lambda: refresh(spark, Lake(lake.root)), say)


def _follow(
    spark: SparkSession, lake: Lake, area: Landing, options: IngestOptions, gate: "_Gate", ends: Callable[[], object]
) -> None:
    query = _start(spark, lake, area, options, gate)
    try:
        while not query.awaitTermination(0.25) and not ends():
            pass
        gate.close()
    finally:
        query.stop()


def _cause(text: str) -> str:
    """The last Python error in a Java stack trace is what went wrong; the rest tells where."""
    errors = [line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception|Conflict)\b", line)]
    return errors[-1] if errors else text.splitlines()[0]


class _Gate:
    """Lets batches through until it is closed, which waits for the one at work: Spark would break it off."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._lock = Lock()
        self._closed = False
        self.failure: Exception | None = None  # what ended a batch: Spark passes on only its text

    def take(self, names: DataFrame, batch: int) -> None:
        with self._lock:
            if self._closed:
                raise MetroError("the stream is stopping; the next run loads this batch")
            try:
                self._ingest.take(names, batch)
            except Exception as error:
                self.failure = error
                raise

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _start(spark: SparkSession, lake: Lake, area: Landing, options: IngestOptions, gate: _Gate) -> StreamingQuery:
    spark.dataSource.register(landing_source.LandingSource)
    stream = (
        spark.readStream.format(landing_source.NAME)
        .option("path", area.root)
        .option("maxRows", str(options.max_rows))
        .option("maxFiles", str(options.max_files))
        .load()
    )
    checkpoint = str(lake.root / "_checkpoints" / "landing")
    writer = stream.writeStream.foreachBatch(gate.take).option("checkpointLocation", checkpoint)
    if options.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(options.trigger_seconds * 1000)} milliseconds").start()


class _Keeper(Thread):
    """Statistics and small files beside the stream, so that they delay no message; it has its own view of the lake."""

    def __init__(self, spark: SparkSession, lake: Lake, options: IngestOptions, say: Say) -> None:
        super().__init__(name="metromq-keeper", daemon=True)
        self._say = say
        self._spark = spark
        self._lake = Lake(lake.root)
        self._options = options
        self._end = Event()
        self.failed: Exception | None = None

    def run(self) -> None:
        compacted = time.monotonic()
        while not self._end.wait(self._options.refresh_seconds or IDLE_SECONDS):
            try:
                if self._options.refresh_seconds:
                    patiently(lambda: refresh(self._spark, self._lake), self._say, self._end.wait)
                if 0 < self._options.compact_seconds <= time.monotonic() - compacted:
                    compact(self._lake)
                    compacted = time.monotonic()
            except (LakeConflict, CommitFailedError):
                continue  # someone compacts or expires; the next round finds the lake as it is then
            except Exception as error:
                if not self._end.is_set():
                    self.failed = error  # `finish` raises it where the user sees it
                return

    def finish(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()
        if self.failed is not None:
            raise self.failed


class LakeLock:
    """Held; `names` writes down which Java works for the holder, for whoever comes after a kill."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def names(self, java: int) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write(json.dumps({"python": os.getpid(), "java": java, "java_started": _started(java)}))
        self._file.flush()


@contextmanager
def lake_lock(lake: Lake) -> Iterator[LakeLock]:
    """One ingest per lake. A killed Python leaves its Java alive for a moment, which may still write: wait for it."""
    lake.root.mkdir(parents=True, exist_ok=True)
    with open(lake.root / "_ingest.lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"another `metromq pipeline run` is working on {lake.root} ({file.read().strip()}); stop it first"
            ) from None
        file.seek(0)
        _await_end(file.read())
        try:
            yield LakeLock(file)
        finally:
            file.truncate(0)


def _await_end(note: str) -> None:
    left = json.loads(note) if note else {"python": os.getpid()}
    if left["python"] == os.getpid():
        return  # this process's own Java, after a run that failed
    deadline = time.monotonic() + ORPHAN_SECONDS
    while _started(left["java"]) == left["java_started"]:
        if time.monotonic() > deadline:
            raise UsageError(
                f"the Java process {left['java']} of a killed run is still running; stop it, then start again"
            )
        time.sleep(0.05)


def _started(pid: int) -> str:
    """When a process started, in ticks: with the number it names a process for ever; empty: it is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = status.rsplit(")", 1)[1].split()
    return "" if fields[0] == "Z" else fields[19]
