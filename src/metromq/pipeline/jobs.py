"""The streaming job: landing area to tables, for ever or once; one per lake, whoever was killed before."""

import re
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Final

from deltalake.exceptions import CommitFailedError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from metromq.errors import LakeConflict, MetroError
from metromq.pipeline import lease
from metromq.pipeline.ingest import Ingest, Taken
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.landing_source import NAME, landing_source
from metromq.pipeline.maintain import compact, remove_orphans
from metromq.pipeline.models import Model, Payloads
from metromq.pipeline.own_tables import refresh_own
from metromq.pipeline.patience import Say, patiently
from metromq.pipeline.refreshing import refresh

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
    models: tuple[Model | Payloads, ...] = ()


def run(
    spark: SparkSession,
    lake: Lake,
    options: IngestOptions,
    report: Callable[[Taken], None],
    stop: Event | None = None,
    say: Say = lambda text: None,
    lock: lease.Held | None = None,
) -> None:
    """Take in all there is (`once`), or follow until `stop` is set; the statistics follow at their own pace.

    `lock`: the caller holds it already, from before it started Spark.
    """
    stop = stop or Event()
    with nullcontext(lock) if lock is not None else lake_lock(lake) as still_ours:
        remove_orphans(lake)
        keeper = _Keeper(spark, lake, options, say)
        area = Landing(options.landing or lake.landing)
        gate = _Gate(Ingest(spark, lake, area, report, say))

        def ends(still_ours: lease.Held) -> bool:
            still_ours()
            return stop.is_set() or keeper.failed is not None

        if not options.once:
            keeper.start()
        try:
            patiently(lambda: _follow(spark, area, options, gate, lambda: ends(still_ours)), say)
        except StreamingQueryException as error:
            if isinstance(gate.failure, MetroError):
                raise gate.failure from None  # in our own words, without Java's
            raise MetroError(f"the stream failed: {_cause(str(error))}") from error
        finally:
            gate.close()
            keeper.finish()
        if options.once and options.refresh_seconds:
            say("refreshing the statistics")
            patiently(lambda: _refresh(spark, Lake(lake.root), options, say), say)


def _refresh(spark: SparkSession, lake: Lake, options: IngestOptions, say: Say) -> None:
    refresh(spark, lake)
    refresh_own(spark, lake, options.models, say)


def _follow(
    spark: SparkSession, area: Landing, options: IngestOptions, gate: "_Gate", ends: Callable[[], bool]
) -> None:
    """Spark's checkpoint ends with the query: what is in the tables they know themselves, and what waits is there."""
    with tempfile.TemporaryDirectory(prefix="metromq-checkpoint-", ignore_cleanup_errors=True) as checkpoint:
        query = _start(spark, area, options, gate, checkpoint)
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


def _start(spark: SparkSession, area: Landing, options: IngestOptions, gate: _Gate, checkpoint: str) -> StreamingQuery:
    spark.dataSource.register(landing_source(area, options.max_rows, options.max_files))
    stream = spark.readStream.format(NAME).load()
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
                    patiently(self._refresh, self._say, self._end.wait)
                if 0 < self._options.compact_seconds <= time.monotonic() - compacted:
                    compact(self._lake)
                    compacted = time.monotonic()
            except (LakeConflict, CommitFailedError):
                continue  # someone compacts or expires; the next round finds the lake as it is then
            except Exception as error:
                if not self._end.is_set():
                    self.failed = error  # `finish` raises it where the user sees it
                return

    def _refresh(self) -> None:
        _refresh(self._spark, self._lake, self._options, self._say)

    def finish(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()
        if self.failed is not None:
            raise self.failed


def lake_lock(lake: Lake) -> AbstractContextManager[lease.Held]:
    """One ingest per lake."""
    return lease.held(lake.store.check(), "_ingest", "metromq pipeline run")
