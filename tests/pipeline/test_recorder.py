"""The recorder: what the journal has, lands; what was landed is not asked for again; what is gone is said."""

import asyncio
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metromq.broker import Broker
from metromq.client import Client
from metromq.config import Config, Listener, RecorderConfig
from metromq.errors import UsageError
from metromq.journal import Journal, reservation
from metromq.pipeline.journals import landed_position
from metromq.pipeline.landing import Landing
from metromq.pipeline.recorder import Landed, Recorder, recorder_lock, sync_segments
from metromq.telemetry.spool import held_position, spool_window, spooled
from metromq.telemetry.windows import TelemetryRow, TelemetryWindow
from tests.pipeline.data import fill, journal_of
from tests.pipeline.processes import until


def landed_offsets(landing: Landing, broker: str = "b1") -> list[int]:
    offsets: list[int] = []
    for file in landing.files():
        if file.kind == "messages" and file.broker == broker:
            offsets += pq.read_table(landing.where(file), columns=["offset"])["offset"].to_pylist()
    return offsets


def test_steps_follow_the_journal(tmp_path: Path, landing: Landing) -> None:
    journal = journal_of(tmp_path / "journal", 25)
    recorder = Recorder("b1", tmp_path / "journal", landing, spool=tmp_path, roll_rows=10)
    assert recorder.step() == Landed(10, 0, full=True)
    assert held_position(tmp_path, 0.0, 0.0) == 10
    assert recorder.step() == Landed(10, 0, full=True)
    assert recorder.step() == Landed(5, 0, full=False)
    assert recorder.step() == Landed(0, 0, full=False)
    fill(journal, 3)
    assert recorder.step() == Landed(3, 0, full=False)
    assert landed_offsets(landing) == list(range(28))
    recorder.close()
    journal.close()


def test_a_new_recorder_goes_on_where_the_old_one_was_killed(tmp_path: Path, landing: Landing) -> None:
    journal = journal_of(tmp_path / "journal", 10)
    first = Recorder("b1", tmp_path / "journal", landing)
    first.step()
    fill(journal, 5)
    note = Path(landing.root) / "messages" / "b1" / f"_position-{journal.name}.json"
    stale = note.read_bytes()
    first.step()
    note.write_bytes(stale)  # killed after the file landed, before the note was written
    assert landed_position(landing, first.key) == 15
    fill(journal, 5)
    second = Recorder("b1", tmp_path / "journal", landing)
    second.step()
    assert landed_offsets(landing) == list(range(20))
    landing.remove(landing.files())  # taken in by Spark
    assert Recorder("b1", tmp_path / "journal", landing).position == 20
    journal.close()


def test_offsets_that_retention_took_are_reported_once(tmp_path: Path, landing: Landing) -> None:
    journal = Journal.open(tmp_path / "journal", segment_bytes=4096)
    fill(journal, 100)
    recorder = Recorder("b1", tmp_path / "journal", landing, roll_rows=20)
    recorder.step()
    write = journal.write_snapshot([b"state"])
    fill(journal, 200)
    write()
    write = journal.write_snapshot([b"state"])
    write()
    journal.remove_before(journal.next_offset, keep_bytes=0, keep_seconds=0.0, now=1e12)
    gone_to = journal.first_offset
    assert gone_to > 20
    landed = recorder.step()
    assert landed.lost == (20, gone_to - 1)
    assert landing.read_note(recorder.key)["lost"] == [[20, gone_to - 1]]
    late = Recorder("b2", tmp_path / "journal", landing)
    assert late.step().lost is None  # recording began later: nothing that was promised is lost
    journal.close()


def test_offsets_left_out_after_a_power_cut_are_no_loss(
    tmp_path: Path, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_of(tmp_path / "journal", 10)
    recorder = Recorder("b1", tmp_path / "journal", landing)
    recorder.step()
    journal.abandon()
    monkeypatch.setattr(reservation, "boot", lambda: "another")
    journal = Journal.open(tmp_path / "journal")
    after = journal.next_offset
    fill(journal, 3)
    assert after > 10
    assert recorder.step() == Landed(3, 0, full=False)
    note = landing.read_note(recorder.key)
    assert (note["lost"], note["unused"]) == ([], [[10, after - 1]])
    assert landed_offsets(landing) == [*range(10), *range(after, after + 3)]
    recorder.close()
    journal.close()


def test_telemetry_is_shipped_and_leaves_the_spool(tmp_path: Path, landing: Landing) -> None:
    row = TelemetryRow("topic", "a", publications=1, publishers=1)
    spool_window(tmp_path / "data", TelemetryWindow("b1", "north", 0, 10.0, 1, (row,)))
    recorder = Recorder("b1", tmp_path / "journal", landing, spool=tmp_path / "data")
    assert recorder.step() == Landed(0, 1, full=False)
    assert spooled(tmp_path / "data") == []
    (file,) = landing.files()
    assert (file.kind, file.first, file.last) == ("telemetry", 0, 1)
    (landed,) = pq.read_table(landing.where(file)).to_pylist()
    assert (landed["subject"], landed["name"], landed["publications"], landed["site"]) == ("topic", "a", 1, "north")


def test_windows_of_the_manager_land_under_its_own_name(tmp_path: Path, landing: Landing) -> None:
    """Ingest rejects a file whose rows are of another broker than its name says."""
    row = TelemetryRow("service-topic", "noise", "noise/pier/level", bytes=2)
    spool_window(tmp_path / "data", TelemetryWindow("manager", "manager", 0, 10.0, 1, (row,)))
    spool_window(tmp_path / "data", TelemetryWindow("../b2", "manager", 0, 10.0, 2, (row,)))
    recorder = Recorder("b1", tmp_path / "journal", landing, spool=tmp_path / "data")
    recorder.step()
    assert [(file.kind, file.broker) for file in landing.files()] == [("telemetry", "manager")]
    assert spooled(tmp_path / "data") == [], "one that cannot name files is set aside"


def test_a_window_that_cannot_be_read_is_named_and_does_not_stop_the_rest(tmp_path: Path, landing: Landing) -> None:
    row = TelemetryRow("topic", "a", publications=1, publishers=1)
    broken = spool_window(tmp_path / "data", TelemetryWindow("b1", "north", 0, 10.0, 1, (row,)))
    broken.write_bytes(b"")  # a machine that lost power
    spool_window(tmp_path / "data", TelemetryWindow("b1", "north", 10_000_000, 10.0, 2, (row,)))
    spool_window(tmp_path / "data", TelemetryWindow("b1", "north", -10_000_000, 10.0, 3, (row,)))  # before 1970
    spool_window(tmp_path / "data", TelemetryWindow("b1", "north", 20_000_000, 10.0, -1, (row,)))
    recorder = Recorder("b1", tmp_path / "journal", landing, spool=tmp_path / "data")
    told: list[str] = []
    stop = threading.Event()
    stop.set()
    recorder.run(stop, tell=told.append)
    sentence = next(text for text in told if text.startswith(f"{broken} cannot be read: "))
    assert sentence.endswith("; it was set aside")
    assert len(told) == 3
    assert [(file.kind, file.first) for file in landing.files()] == [("telemetry", 10_000_000)]
    assert spooled(tmp_path / "data") == []
    assert (broken.parent / "unreadable" / broken.name).exists()
    recorder.run(stop, tell=told.append)
    assert len(told) == 3


def test_it_follows_and_ships_the_rest_at_a_stop(tmp_path: Path, landing: Landing) -> None:
    journal = journal_of(tmp_path / "journal", 7)
    stop = threading.Event()
    recorder = Recorder("b1", tmp_path / "journal", landing, roll_rows=3)
    following = threading.Thread(target=recorder.run, args=(stop, 0.001))
    following.start()
    try:
        until(lambda: len(landed_offsets(landing)) == 7, "landing")
        fill(journal, 4)
    finally:
        stop.set()  # what is in the journal before the stop still lands
        following.join()
    assert landed_offsets(landing) == list(range(11))
    recorder.close()
    journal.close()


def test_told_to_stop_before_it_begins(tmp_path: Path, landing: Landing) -> None:
    journal = journal_of(tmp_path / "journal", 7)
    stop = threading.Event()
    stop.set()
    Recorder("b1", tmp_path / "journal", landing, roll_rows=3).run(stop, 0.001)
    assert landed_offsets(landing) == list(range(7))
    journal.close()


def test_segments_are_synced_from_the_one_that_holds_the_offset(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", segment_bytes=4096)
    fill(journal, 100)
    sync_segments(tmp_path / "journal", 50)
    sync_segments(tmp_path / "journal", 0)
    journal.close()


def test_one_recorder_at_a_time(tmp_path: Path) -> None:
    stop, told = threading.Event(), threading.Event()
    told.set()
    with recorder_lock(tmp_path, stop):
        with pytest.raises(UsageError, match="another recorder"), recorder_lock(tmp_path, told):
            raise AssertionError("two at a time")
        waiting = threading.Thread(target=lambda: recorder_lock(tmp_path, stop).__enter__())
        waiting.start()
    waiting.join(60)  # it gets its turn
    assert not waiting.is_alive()


def test_a_recorder_ends_with_its_parent(tmp_path: Path, landing: Landing) -> None:
    journal = journal_of(tmp_path / "journal", 4)
    Recorder("b1", tmp_path / "journal", landing).run(threading.Event(), 0.001, parent=-1)
    assert landed_offsets(landing) == list(range(4))
    journal.close()


def test_a_broker_that_stops_at_once_has_all_recorded(tmp_path: Path) -> None:
    """Its recorder has hardly been started then, and the signal to stop may kill it."""
    recorder = RecorderConfig(lake=str(tmp_path / "lake"))
    config = Config("b1", tmp_path / "data", listeners=(Listener(port=0),), recorder=recorder)

    async def story() -> None:
        async with Broker(config) as broker, Client("127.0.0.1", broker.port) as client:
            await client.publish("a", b"1", qos=1)
            await client.publish("a", b"2", qos=2)

    asyncio.run(story())
    assert landed_offsets(Landing(str(tmp_path / "lake" / "landing"))) == [0, 1]
