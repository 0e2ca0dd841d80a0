"""Journals read over the network: the same rows as from the disk, and clear words when something stands in the way."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from metromq.cli.main import group
from metromq.config import Auth, Config, JournalConfig, Listener, ReplayConfig
from metromq.errors import ConnectionLost, ConnectRefused, UsageError
from metromq.journal import Journal
from metromq.journal.identity import read_id
from metromq.moments import text_of
from metromq.pipeline import broker_lines, network
from metromq.pipeline.broker_lines import BrokerPlace
from metromq.pipeline.network import NetworkOptions
from metromq.pipeline.source import JournalBatchReader, JournalOptions, JournalStreamReader, read_slice
from metromq.protocol import reasons
from metromq.protocol.replay import BUSY, FetchAnswer, FetchRequest, failed
from metromq.protocol.session import Hub, HubSettings, Snapshot
from tests.certificates import make_certificates
from tests.pipeline.data import T0_US, fill, journal_of
from tests.pipeline.test_source import LiveBroker

pytestmark = pytest.mark.timeout(600)


def config(data: Path, **changes: object) -> Config:
    listeners = (Listener(host="127.0.0.1", port=0),)
    settings: dict[str, Any] = {"name": data.name, "data_dir": data, "listeners": listeners}
    # Retention would remove what these tests wrote with old times.
    settings |= {"replay": ReplayConfig(enabled=True), "journal": JournalConfig(keep_s=1e12)}
    return Config(**{**settings, **changes})


@contextmanager
def brokers(*configs: Config) -> Iterator[list[str]]:
    """Their addresses."""
    with ExitStack() as stack:
        yield [f"127.0.0.1:{stack.enter_context(LiveBroker(one)).port}" for one in configs]


@pytest.fixture
def city(tmp_path: Path) -> Path:
    for name, count in (("b1", 3000), ("b2", 7)):
        journal_of(tmp_path / "city" / name / "journal", count).close()
    return tmp_path / "city"


def rows(options: Any) -> list[dict[str, Any]]:
    batches = [batch for part in options.slices(options.bounds()) for batch in read_slice(part)]
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: (row["broker"], row["offset"]))


def test_rows_are_the_same_as_from_the_disk(city: Path) -> None:
    with brokers(config(city / "b1"), config(city / "b2")) as places:
        fetched = rows(NetworkOptions({"brokers": ",".join(places), "rowsPerPartition": "700"}))
    assert len(fetched) == 3007
    assert fetched == rows(JournalOptions({"path": str(city)}))


def test_answers_that_are_decoded_together(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several to a batch, the rest at the end, and those that wait when the connection is lost are not."""
    monkeypatch.setattr(network, "FETCH_BYTES", 10 << 10)
    monkeypatch.setattr(network, "BATCH_BYTES", 35 << 10)
    monkeypatch.setattr(network, "RETRY_S", 0.01)
    listen, answers = broker_lines.BrokerLine.answer, 0

    def answer(line: broker_lines.BrokerLine) -> FetchAnswer:
        nonlocal answers
        answers += 1
        if answers == 7:
            raise ConnectionLost("a planted loss")
        return listen(line)

    with brokers(config(city / "b1")) as [place]:
        (part,) = NetworkOptions({"brokers": place}).slices(NetworkOptions({"brokers": place}).bounds())
        monkeypatch.setattr(broker_lines.BrokerLine, "answer", answer)
        batches = list(read_slice(part))
    found = pa.Table.from_batches(batches)
    assert found["offset"].to_pylist() == list(range(3000))
    assert found.to_pylist() == rows(JournalOptions({"path": str(city / "b1"), "broker": "b1"}))
    assert answers > 20
    assert 5 < len(batches) < answers / 3


def test_a_stream_resumes_exactly_and_tells_its_lag(spark: SparkSession, city: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    lags: list[dict[str, int]] = []

    def keep(frame: Any, batch: int) -> None:
        seen.extend((row["broker"], row["offset"]) for row in frame.collect())

    def drain(place: str) -> None:
        stream = spark.readStream.format("metromq").option("brokers", place).option("maxRowsPerBatch", "2000").load()
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        for progress in query.recentProgress:
            source = progress["sources"][0]
            newest, end = json.loads(source["latestOffset"]), json.loads(source["endOffset"])
            lags.append({name: newest[name] - end[name] for name in newest})

    with brokers(config(city / "b1")) as [place]:
        drain(place)
    with brokers(config(city / "b1")) as [place]:  # at another port
        drain(place)
    assert sorted(seen) == [("b1", number) for number in range(3000)]
    assert [list(lag.values()) for lag in lags[:2]] == [[1000], [0]]


def test_where_a_stream_starts(city: Path) -> None:
    b1, b2 = (f"{name}/{read_id(city / name / 'journal')}" for name in ("b1", "b2"))
    with brokers(config(city / "b1"), config(city / "b2")) as places:

        def start(**given: str) -> dict[str, int]:
            reader = JournalStreamReader(NetworkOptions({"brokers": ",".join(places), **given}))
            return dict(reader.initialOffset())

        assert start() == {b1: 0, b2: 0}
        assert start(startingOffsets="latest") == {b1: 3000, b2: 7}
        assert start(startingOffsets='{"b1": 1200, "b2": "latest"}') == {b1: 1200, b2: 7}
        by_time = start(startingTimestamp=text_of(T0_US + 1000 * 1_000_000))
        assert 0 < by_time[b1] <= 1000  # a little early: clocks are set back now and then
        assert by_time[b2] == 7
        assert start(startingTimestamp=str((T0_US + 1000 * 1_000_000) // 1000)) == by_time
        with pytest.raises(UsageError, match="startingOffsets names b3; the brokers are b1, b2"):
            start(startingOffsets='{"b3": 5}')
        with pytest.raises(UsageError, match="startingOffsets must be"):
            start(startingOffsets="soon")
        with pytest.raises(UsageError, match="startingOffsets says 8 for b2, whose journal ends at 7"):
            start(startingOffsets='{"b2": 8}')
        reader = JournalStreamReader(NetworkOptions({"brokers": ",".join(places)}))
        assert reader.latestOffset({b1: 0, b2: 0}, ReadMaxRows(10)) == {b1: 5, b2: 5}
        assert reader.reportLatestOffset() == {b1: 3000, b2: 7}


def test_a_read_starts_where_a_stream_would(city: Path) -> None:
    def count(**given: str) -> int:
        parts = JournalBatchReader(NetworkOptions({"brokers": ",".join(places), **given})).partitions()
        return sum(batch.num_rows for part in parts for batch in read_slice(part))

    with brokers(config(city / "b1"), config(city / "b2")) as places:
        assert count() == 3007
        assert count(startingOffsets='{"b1": 2990, "b2": "latest"}') == 10
        assert count(startingOffsets="latest") == 0
        assert 2000 <= count(startingTimestamp=text_of(T0_US + 1000 * 1_000_000)) < 3000
    assert list(JournalBatchReader(JournalOptions({"path": str(city), "startingOffsets": "latest"})).partitions()) == []


def test_a_read_of_nothing_is_empty(spark: SparkSession, city: Path, tmp_path: Path) -> None:
    """Spark makes up a partition where a read has none."""
    with brokers(config(city / "b2"), config(tmp_path / "new")) as (place, new):
        read = spark.read.format("metromq").option("brokers", place)
        assert read.option("startingTimestamp", "2500-01-01T00:00:00Z").load().collect() == []
        assert spark.read.format("metromq").option("brokers", new).load().collect() == []


def test_a_broker_that_is_away_does_not_stop_the_others(city: Path) -> None:
    with ExitStack() as stack:
        [first] = stack.enter_context(brokers(config(city / "b1")))
        with brokers(config(city / "b2")) as [second]:
            reader = JournalStreamReader(NetworkOptions({"brokers": f"{first},{second}"}))
            start = reader.initialOffset()
            assert len(start) == 2
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sorted(end.values()) == [0, 3000]
    assert reader.latestOffset(end, ReadAllAvailable()) == end, "the stream waits"


def test_a_read_that_is_to_be_complete_leaves_no_broker_out(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream takes the missing part later; a job that ends, or a read, would not, and nobody would know."""
    monkeypatch.setattr(network, "PATIENCE_S", 0.2)
    monkeypatch.setattr(network, "RETRY_S", 0.01)
    with ExitStack() as stack:
        [first] = stack.enter_context(brokers(config(city / "b1")))
        with brokers(config(city / "b2")) as [second]:
            options = NetworkOptions({"brokers": f"{first},{second}"})
            start = options.initial()
        for work in (
            JournalStreamReader(options).prepareForTriggerAvailableNow,
            JournalStreamReader(options).initialOffset,
            JournalBatchReader(options).partitions,
        ):
            with pytest.raises(UsageError, match=f"{second} cannot be asked: .*leave it out of `brokers`"):
                work()
        again = JournalStreamReader(NetworkOptions({"brokers": f"{first},{second}"}))
        with pytest.raises(UsageError, match=r"none of .* is the broker b2"):  # a checkpoint has a batch of both
            again.partitions(start, {name: 7 for name in start})
        without = JournalStreamReader(NetworkOptions({"brokers": first}))
        without.prepareForTriggerAvailableNow()
        assert sorted(without.latestOffset(start, ReadAllAvailable()).values()) == [0, 3000]


def test_a_broker_that_answers_late_is_waited_for(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "RETRY_S", 0.01)
    asked: list[str] = []
    real = broker_lines.ask_once

    def late(place: BrokerPlace, request: FetchRequest) -> FetchAnswer:
        asked.append(str(place))
        if len(asked) <= 2:
            raise ConnectionLost("it has just been started")
        if len(asked) == 3:
            return failed(BUSY, "the process that reads the journal ended: ask again")
        return real(place, request)

    monkeypatch.setattr(network, "ask_once", late)
    with brokers(config(city / "b1"), config(city / "b2")) as places:
        reader = JournalStreamReader(NetworkOptions({"brokers": ",".join(places)}))
        reader.prepareForTriggerAvailableNow()
        assert asked == [places[0]] * 4 + places[1:]
        start = dict.fromkeys(reader.latestOffset({}, ReadMaxRows(2)), 0)
        del asked[:]  # from here on nobody answers: the job must not end as if there were nothing
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sorted(end.values()) == [7, 3000]
        assert sum(part.end - part.start for part in reader.partitions(start, end)) == 3007


def test_a_journal_that_has_lost_all_its_records(city: Path) -> None:
    """Retention removed everything, and nothing new has come: a reader that was behind hears of it all the same."""
    journal = Journal.open(city / "b3" / "journal", segment_bytes=1 << 14)
    fill(journal, 400)
    journal.sync()
    for _ in range(2):
        journal.write_snapshot(Snapshot(Hub(HubSettings(), None, "b3")).pieces())()
    journal.remove_before(journal.next_offset, 0, 0.0, 0.0)
    assert journal.first_offset == journal.next_offset == 400
    journal.close()
    name = f"b3/{read_id(city / 'b3' / 'journal')}"
    with brokers(config(city / "b3")) as [place]:
        for options in (NetworkOptions({"brokers": place}), JournalOptions({"path": str(city / "b3")})):
            reader = JournalStreamReader(options)
            reader.prepareForTriggerAvailableNow()
            end = reader.latestOffset({name: 100}, ReadAllAvailable())
            with pytest.raises(UsageError, match=r"offsets 100 to 399 are gone .*set failOnDataLoss=false"):
                [list(read_slice(part)) for part in reader.partitions({name: 100}, end)]
            assert reader.latestOffset(end, ReadAllAvailable()) == end == {name: 400}
            assert reader.latestOffset({}, ReadAllAvailable()) == {}


def test_what_stands_in_the_way_is_said(city: Path, tmp_path: Path) -> None:
    with (
        brokers(config(city / "b2", replay=ReplayConfig())) as [place],
        pytest.raises(UsageError, match="replay is off"),
    ):
        NetworkOptions({"brokers": place}).bounds()
    (tmp_path / "acl").write_text("topic read #\n")
    auth = Auth(acl_file=tmp_path / "acl", allow_anonymous=True)
    with (
        brokers(config(city / "b2", auth=auth)) as [place],
        pytest.raises(UsageError, match=r"topic write \$replay/fetch"),
    ):
        NetworkOptions({"brokers": place}).bounds()
    with brokers(config(city / "b2")) as [place], pytest.raises(UsageError, match="are both the broker b2"):
        NetworkOptions({"brokers": f"{place},localhost:{place.rpartition(':')[2]}"}).bounds()


def test_a_stream_that_goes_on_with_a_wrong_password_ends(city: Path, tmp_path: Path) -> None:
    """A broker that is away is waited for; one that refuses would be waited for in vain."""
    (tmp_path / "passwords").write_text("pipeline:secret\n")
    assert CliRunner().invoke(group, ["passwd", "-U", str(tmp_path / "passwords")]).exit_code == 0
    auth = Auth(password_file=tmp_path / "passwords", allow_anonymous=False)
    with brokers(config(city / "b2", auth=auth)) as [place]:
        given = {"brokers": place, "username": "pipeline"}
        start = NetworkOptions(given | {"password": "secret"}).initial()
        assert list(start.values()) == [0]
        wrong = JournalStreamReader(NetworkOptions(given | {"password": "secrets"}))
        full = ConnectRefused("too many connects at once", reasons.CONNECTION_RATE_EXCEEDED)
        assert network._may_pass(full)  # as the broker says: try again in a second
        with pytest.raises(UsageError, match=f"{place} refuses to be asked: .*wrong username or password"):
            wrong.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("maxRowsPerBatch", "0", "maxRowsPerBatch must be a whole number from 1"),
        ("maxRowsPerBatch", "many", "not 'many'"),
        ("rowsPerPartition", "0", "rowsPerPartition must be"),
        ("failOnDataLoss", "no", "failOnDataLoss must be true or false, not 'no'"),
    ],
)
def test_options_are_checked(name: str, value: str, words: str) -> None:
    for kind, given in ((NetworkOptions, {"brokers": "h"}), (JournalOptions, {"path": "x"})):
        kind({**given, "maxRowsPerBatch": "1", "failOnDataLoss": "False"})
        with pytest.raises(UsageError, match=words):
            kind({**given, name: value})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tls", "yes", "tls must be true or false, not 'yes'"),
        ("brokers", "h:65536", "brokers must look like"),
        ("brokers", "h:1883,", "brokers must look like"),
        ("startingTimestamp", "yesterday", "startingTimestamp must be a time such as .*, not 'yesterday'"),
        ("startingTimestamp", "9" * 20, "startingTimestamp must be a time"),
        ("startingTimestamp", "²", "startingTimestamp must be a time"),
    ],
)
def test_options_of_the_network_are_checked(name: str, value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        NetworkOptions({"brokers": "h", name: value})


def test_a_stream_starts_at_one_place() -> None:
    with pytest.raises(UsageError, match="not at both"):
        NetworkOptions({"brokers": "h", "startingOffsets": "latest", "startingTimestamp": "2026-11-18T00:00:00Z"})


def test_over_tls(city: Path, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates")
    door = Listener("tls", "127.0.0.1", 0, cert_file=made.server.cert, key_file=made.server.key)
    with brokers(config(city / "b2", listeners=(door,))) as [place]:
        assert len(rows(NetworkOptions({"brokers": place, "cafile": str(made.ca)}))) == 7


def test_a_journal_that_was_replaced(city: Path) -> None:
    with brokers(config(city / "b2")) as [place]:
        options = NetworkOptions({"brokers": place})
        [planned] = options.slices(options.bounds())
    port = int(place.rpartition(":")[2])
    shutil.rmtree(city / "b2")
    journal_of(city / "b2" / "journal", 3).close()
    with brokers(config(city / "b2", listeners=(Listener(host="127.0.0.1", port=port),))):
        with pytest.raises(UsageError, match=r"offsets 0 to 6 of b2, journal .* are gone"):
            list(read_slice(planned))
        planned.fail_on_loss = False
        assert list(read_slice(planned)) == []


def test_what_retention_removed(city: Path) -> None:
    journal = Journal.open(city / "b3" / "journal", segment_bytes=1 << 14)
    while len(list((city / "b3" / "journal").glob("*.seg"))) < 6:
        fill(journal, 50)
        journal.sync()
    for _ in range(2):
        journal.write_snapshot(Snapshot(Hub(HubSettings(), None, "b3")).pieces())()
    assert journal.remove_before(journal.next_offset, 1 << 15, 1e12, 0.0)
    journal.close()
    with brokers(config(city / "b3")) as [place]:
        options = NetworkOptions({"brokers": place})
        [(name, (first, end))] = options.bounds().items()
        assert first > 0
        [planned] = options.slices({name: (0, end)})
        with pytest.raises(UsageError, match=f"offsets 0 to {first - 1} are gone .*set failOnDataLoss=false"):
            list(read_slice(planned))
        planned.fail_on_loss = False
        found = [row for batch in read_slice(planned) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == list(range(first, end))
