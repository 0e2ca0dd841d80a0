"""Journals read over the network while things break: a real Spark stream, a broker process, clients of paho.

The observer knows what clients published and what the stream's batches brought; a batch that Spark repeats replaces
itself, as with any sink that knows batch numbers.
"""

import json
import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metromq.journal import Journal
from metromq.pipeline.patience import patiently
from metromq.protocol.session import Hub, HubSettings, Snapshot
from tests.clients.paho_client import V5, client
from tests.pipeline.processes import COMMAND, Program, until

pytestmark = pytest.mark.timeout(1200)
SMALL_SEGMENT = 1 << 16
CONFIG = """
name = "b1"
durability = "os"
[replay]
enabled = true
max_bytes_per_s = {pace}
[journal]
segment_bytes = {segment}
"""


class Served:
    """One broker at one address, killed, stopped and started again."""

    def __init__(self, folder: Path, pace: int = 0) -> None:
        self.data = folder / "b1"
        self._log = folder / "broker.log"
        self._config = folder / "metromq.toml"
        self._config.write_text(CONFIG.format(pace=pace, segment=SMALL_SEGMENT))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.sent: list[bytes] = []
        self.start()

    def start(self) -> None:
        words = ["serve", "--config", str(self._config), "--listen", f"127.0.0.1:{self.port}", "--data", str(self.data)]
        self.program = Program([*COMMAND, *words], self._log)
        until(self._answers, "the broker's start")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            assert self.program.says(""), "it runs"
            return False
        return True

    def publish(self, count: int) -> None:
        with client(self.port, V5) as who:
            infos = []
            for number in range(len(self.sent), len(self.sent) + count):
                text = b"%06d" % number + b"x" * 90
                infos.append(who.paho.publish(f"1/2/{number % 7}", text, 1))
                self.sent.append(text)
            for info in infos:
                info.wait_for_publish(60)


class Watch:
    """A query that keeps its batches by number."""

    def __init__(self, spark: SparkSession, served: Served, folder: Path, **options: str) -> None:
        self._spark = spark
        self._served = served
        self._folder = folder
        self._options = {"maxRowsPerBatch": "400", "rowsPerPartition": "200", **options}
        self.batches: dict[int, list[tuple[int, bytes]]] = {}
        self.query: Any = None

    def start(self, once: bool = False) -> None:
        def keep(frame: Any, batch: int) -> None:
            rows = frame.where("kind = 'publish'").select("offset", "payload").collect()
            self.batches[batch] = [(row["offset"], bytes(row["payload"])) for row in rows]

        source = self._spark.readStream.format("metromq").option("brokers", f"127.0.0.1:{self._served.port}")
        stream = source.options(**self._options).load()
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._folder / "checkpoint"))
        trigger = {"availableNow": True} if once else {"processingTime": "100 milliseconds"}
        self.query = writer.trigger(**trigger).start()

    def finish(self) -> None:
        """Everything that is there now, exactly as a job that is started again and again. On a busy machine Spark's
        Python workers do not start in time, which says nothing about the source: then it is started once more."""

        def work() -> None:
            self.start(once=True)
            self.query.awaitTermination()

        patiently(work, print)

    def got(self) -> Counter[bytes]:
        return Counter(payload for rows in self.batches.values() for _, payload in rows)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    made = Served(tmp_path, getattr(request, "param", 0))
    yield made
    made.program.clean_up()


@pytest.mark.parametrize("served", [60_000], indirect=True)  # so slow that a kill always meets a fetch
def test_a_broker_that_is_killed_while_it_is_read(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    served.publish(1500)
    watch = Watch(spark, served, tmp_path)
    try:
        watch.start()
        for _ in range(2):
            before = len(watch.batches)
            until(lambda before=before: len(watch.batches) > before, "a batch")  # type: ignore[misc]
            served.program.kill()
            served.start()
            served.publish(50)
        until(lambda: sum(watch.got().values()) >= len(served.sent), "the rest")
    finally:
        watch.stop()
    assert watch.got() == Counter(served.sent)


@pytest.mark.parametrize("served", [60_000], indirect=True)
def test_an_executor_that_is_killed_while_it_reads(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    """Alone on a machine Spark does not try a task again: the query ends, and goes on where it was."""
    served.publish(1200)
    watch = Watch(spark, served, tmp_path)
    watch.start()
    try:
        until(lambda: bool(readers_of(served)), "an executor that reads")
        for pid in readers_of(served):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not watch.query.isActive or sum(watch.got().values()) >= 1200, "an end")
    finally:
        watch.stop()
    watch.finish()
    assert watch.got() == Counter(served.sent)


def readers_of(served: Served) -> set[int]:
    """Processes of Spark that are connected to the broker, but for the one that plans."""
    found: set[int] = set()
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            places = [item.raddr.port for item in process.net_connections("tcp") if item.raddr]
        except psutil.Error:
            continue
        if "pyspark.daemon" in words and served.port in places:
            found.add(process.pid)
    return found


def test_what_expired_under_a_stream(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    served.publish(500)
    watch = Watch(spark, served, tmp_path)
    watch.finish()
    assert watch.got() == Counter(served.sent)
    served.publish(2500)
    served.program.stop()
    first = expire_all_but_the_newest(served.data / "journal")
    assert first > 500
    served.start()
    with pytest.raises(PySparkException, match=rf"offsets [57]00 to {first - 1} are gone .*set failOnDataLoss=false"):
        watch.finish()
    assert watch.got() == Counter(served.sent[:500]), "nothing came instead"
    going_on = Watch(spark, served, tmp_path, failOnDataLoss="false")
    going_on.batches = watch.batches
    going_on.finish()
    assert going_on.got() == Counter(served.sent[:500] + served.sent[first:])


def expire_all_but_the_newest(folder: Path) -> int:
    journal = Journal.open(folder, segment_bytes=SMALL_SEGMENT)
    for _ in range(2):
        journal.write_snapshot(Snapshot(Hub(HubSettings(), None, "b1")).pieces())()
    journal.remove_before(journal.next_offset, 0, 0.0, 0.0)
    first = journal.first_offset
    journal.close()
    return first


def test_a_data_directory_that_was_replaced(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    """The stream goes on with the new journal, from its beginning."""
    served.publish(300)
    watch = Watch(spark, served, tmp_path)
    watch.finish()
    served.program.stop()
    shutil.rmtree(served.data)
    served.start()
    served.publish(40)
    watch.finish()
    assert watch.got() == Counter(served.sent)
    ends = json.loads(watch.query.lastProgress["sources"][0]["endOffset"])
    assert sorted(ends.values()) == [40, 300]
