"""The data source `metromq`: journals in, exactly; messages out, acknowledged."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from metromq.broker import Broker
from metromq.config import Config, JournalConfig, Listener
from metromq.errors import UsageError
from metromq.journal import Journal, JournalReader
from metromq.journal.identity import read_id
from metromq.pipeline.option_values import check_spelling
from metromq.pipeline.publish import Sink
from metromq.pipeline.source import READ_OPTIONS, JournalOptions, JournalStreamReader, read_slice, share
from metromq.protocol.session.records import decode_message
from tests.certificates import make_certificates
from tests.pipeline.data import bodies, fill, journal_of

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def city(tmp_path: Path) -> Iterator[Path]:
    """Two brokers' data directories."""
    writers = [journal_of(tmp_path / "city" / name / "journal", count) for name, count in (("b1", 30), ("b2", 7))]
    yield tmp_path / "city"
    for journal in writers:
        journal.close()


def test_batch_read(spark: SparkSession, city: Path) -> None:
    rows = spark.read.format("metromq").option("rowsPerPartition", "8").load(str(city))
    assert rows.rdd.getNumPartitions() == 4 + 1
    found = {(row["broker"], row["offset"]): row for row in rows.collect()}
    assert found.keys() == {("b1", n) for n in range(30)} | {("b2", n) for n in range(7)}
    twin = decode_message(bodies(0, 30)[11]).message
    row = found["b1", 11]
    assert (row["topic"], bytes(row["payload"]), row["qos"]) == (twin.topic, twin.payload, twin.qos)
    one = spark.read.format("metromq").option("broker", "north").load(str(city / "b1"))
    assert {row["broker"] for row in one.collect()} == {"north"}


def test_a_read_of_nothing_is_empty(spark: SparkSession, city: Path, tmp_path: Path) -> None:
    """Spark makes up a partition where a read has none."""
    journal_of(tmp_path / "new" / "journal", 0).close()
    assert spark.read.format("metromq").option("startingOffsets", "latest").load(str(city)).collect() == []
    assert spark.read.format("metromq").load(str(tmp_path / "new")).collect() == []


def test_stream_read_resumes_exactly(spark: SparkSession, city: Path, tmp_path: Path) -> None:
    seen: list[list[tuple[str, int]]] = []

    def keep(frame: Any, batch: int) -> None:
        seen.append([(row["broker"], row["offset"]) for row in frame.collect()])

    def drain() -> None:
        stream = spark.readStream.format("metromq").option("maxRowsPerBatch", "20").load(str(city))
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    drain()
    assert [len(batch) for batch in seen] == [20, 17]  # b2 needs less than its half, b1 gets the rest
    fresh = journal_of(city / "b3" / "journal", 5)
    drain()
    fresh.close()
    everything = [pair for batch in seen for pair in batch]
    wanted = {("b1", n) for n in range(30)} | {("b2", n) for n in range(7)} | {("b3", n) for n in range(5)}
    assert sorted(everything) == sorted(wanted)


def test_offsets_of_a_stream(city: Path) -> None:
    reader = JournalStreamReader(JournalOptions({"path": str(city)}))
    b1, b2 = (f"{name}/{read_id(city / name / 'journal')}" for name in ("b1", "b2"))
    start = reader.initialOffset()
    assert start == {b1: 0, b2: 0}
    assert reader.latestOffset(start, ReadAllAvailable()) == {b1: 30, b2: 7}
    assert reader.latestOffset(start, ReadMaxRows(10)) == {b1: 5, b2: 5}
    assert reader.latestOffset({b1: 30, b2: 7}, ReadMaxRows(10)) == {b1: 30, b2: 7}
    assert list(reader.partitions({b1: 30, b2: 7}, {b1: 30, b2: 7})) == []
    latest = JournalStreamReader(JournalOptions({"path": str(city), "startingOffsets": "latest"}))
    assert latest.initialOffset() == {b1: 30, b2: 7}


def test_a_checkpoint_of_an_older_version_goes_on(city: Path) -> None:
    """It names brokers only, and means the journal that reaches as far as it says."""
    reader = JournalStreamReader(JournalOptions({"path": str(city)}))
    b1, b2 = (f"{name}/{read_id(city / name / 'journal')}" for name in ("b1", "b2"))
    end = reader.latestOffset({"b1": 12, "b2": 9}, ReadAllAvailable())
    assert end == {b1: 30, "b2": 9, b2: 7}  # b2 ends before: its directory holds another journal now
    spans = {(item.key.broker, item.start, item.end) for item in reader.partitions({"b1": 12, "b2": 9}, end)}
    assert spans == {("b1", 12, 30), ("b2", 0, 7)}


def test_a_journal_that_was_replaced(city: Path) -> None:
    options = JournalOptions({"path": str(city)})
    reader = JournalStreamReader(options)
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    (city / "b2" / "journal").rename(city.parent / "old")
    journal_of(city / "b2" / "journal", 3).close()
    lost = next(item for item in planned if item.key.broker == "b2")
    with pytest.raises(UsageError, match="holds another journal now: offsets 0 to 6"):
        list(read_slice(lost))
    lost.fail_on_loss = False
    assert list(read_slice(lost)) == []
    end = reader.latestOffset({name: 30 if name[:2] == "b1" else 7 for name in start}, ReadAllAvailable())
    fresh = f"b2/{read_id(city / 'b2' / 'journal')}"
    assert (len(end), end[fresh]) == (3, 3)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_a_batch_is_shared_fairly(waiting: dict[str, int], most: int) -> None:
    granted = share(waiting, most)
    assert sum(granted.values()) == min(most, sum(waiting.values()))
    assert all(0 <= granted[broker] <= waiting[broker] for broker in waiting)
    short = [granted[broker] for broker in waiting if granted[broker] < waiting[broker]]
    if short:
        assert max(granted.values()) <= min(short) + 1  # nobody gets more while another starves


def test_offsets_that_are_gone(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "b1" / "journal", segment_bytes=4096)
    fill(journal, 300)
    for _ in range(2):
        journal.write_snapshot([b"state"])()
    journal.remove_before(journal.next_offset, keep_bytes=0, keep_seconds=0.0, now=1e12)
    options = JournalOptions({"path": str(tmp_path)})
    (gone,) = options.slices({"b1": (0, 300)})
    with pytest.raises(UsageError, match="failOnDataLoss"):
        list(read_slice(gone))
    (kept,) = JournalOptions({"path": str(tmp_path), "failOnDataLoss": "false"}).slices({"b1": (0, 300)})
    assert sum(batch.num_rows for batch in read_slice(kept)) == 300 - journal.first_offset
    fill(journal, 5)
    (beyond,) = options.slices({"b1": (300, 310)})
    with pytest.raises(UsageError, match="another journal"):
        list(read_slice(beyond))
    journal.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "needs a path"), ({"path": "x", "startingOffsets": "noon"}, "earliest or latest")],
)
def test_options_are_checked(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        JournalOptions(options)


@pytest.mark.parametrize("option", ["startingOffset", "startingoffset", "max_rows_per_batch", "failOnDataloss "])
def test_a_misspelt_option_is_named(option: str) -> None:
    with pytest.raises(UsageError, match=r"there is no option .*; did you mean"):
        check_spelling({"path": "x", option: "1"}, READ_OPTIONS)


def test_options_of_ours_and_of_spark_are_not_misspelt() -> None:
    check_spelling({*READ_OPTIONS, *(name.lower() for name in READ_OPTIONS), "checkpointLocation"}, READ_OPTIONS)


def test_a_path_without_journals_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no journal"):
        JournalOptions({"path": str(tmp_path)}).bounds()


def test_sinks_are_checked() -> None:
    with pytest.raises(UsageError, match="qos must be 1 or 2"):
        Sink.from_options({"qos": "0"})
    for name, value in (("tls", "yes"), ("port", "many"), ("port", "70000"), ("maxInflight", "0"), ("qos", "one")):
        with pytest.raises(UsageError, match=f"{name} must be"):
            Sink.from_options({name: value})
    assert [Sink.from_options(given).tls for given in ({}, {"TLS": "True"}, {"cafile": "x"})] == [False, True, True]
    assert Sink.from_options({"tls": "true"}).port == 8883
    sink = Sink.from_options({"host": "h", "port": "1", "maxInflight": "5"})
    assert (sink.host, sink.port, sink.max_inflight) == ("h", 1, 5)
    assert sink.check(("topic", "payload", "retain")) == ("topic", "payload", "retain")
    for columns in (("topic",), ("topic", "payload", "colour")):
        with pytest.raises(UsageError, match="columns topic and payload"):
            sink.check(columns)


class LiveBroker:
    """A broker on loopback, in a thread of its own."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.port = 0

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with Broker(self._config) as broker:
            self.port = broker.port
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "LiveBroker":
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()


def live_broker(data: Path, listener: Listener | None = None) -> LiveBroker:
    listener = listener or Listener(host="127.0.0.1", port=0)
    journal = JournalConfig(record_qos0=True)
    return LiveBroker(Config(name="live", data_dir=data, listeners=(listener,), journal=journal))


def journalled(data: Path) -> list[tuple[str, bytes, int]]:
    reader = JournalReader(data / "journal")
    found = [decode_message(body).message for _, body in reader.read(0, 10_000)]
    reader.close()
    return [(message.topic, message.payload, message.qos) for message in found]


def test_rows_are_published_and_acknowledged(spark: SparkSession, tmp_path: Path) -> None:
    with live_broker(tmp_path / "live") as broker:
        rows = spark.range(60).selectExpr("concat('spark/', id % 3) topic", "cast(id as string) payload")
        target = {"host": "127.0.0.1", "port": str(broker.port), "maxInflight": "7"}
        rows.write.format("metromq").options(**target).mode("append").save()
        assert len(journalled(tmp_path / "live")) == 60
        source = tmp_path / "rows"
        rows.where("id < 10").selectExpr(
            "topic", "cast(payload as binary) payload", "2 qos", "true retain"
        ).write.parquet(str(source))
        stream = spark.readStream.schema("topic string, payload binary, qos int, retain boolean").parquet(str(source))
        writer = stream.writeStream.format("metromq").options(**target).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    found = journalled(tmp_path / "live")
    assert sorted(found[:60]) == sorted((f"spark/{n % 3}", str(n).encode(), 1) for n in range(60))
    assert sorted(found[60:]) == sorted((f"spark/{n % 3}", str(n).encode(), 2) for n in range(10))


def test_rows_are_published_over_tls(spark: SparkSession, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates")
    door = Listener("tls", "127.0.0.1", 0, cert_file=made.server.cert, key_file=made.server.key)
    with live_broker(tmp_path / "live", door) as broker:
        rows = spark.range(3).selectExpr("'secret' topic", "cast(id as string) payload")
        target = {"host": "127.0.0.1", "port": str(broker.port)}
        rows.write.format("metromq").options(**target, tls="true", cafile=str(made.ca)).mode("append").save()
        with pytest.raises(Exception, match="certificate verify failed"):
            rows.write.format("metromq").options(**target, tls="true").mode("append").save()
    assert sorted(journalled(tmp_path / "live")) == [("secret", b"%d" % number, 1) for number in range(3)]
