"""Counting, rolling and the way through the spool."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.pipeline import telemetry as telemetry_module
from metromq.pipeline.spool import spool_window, spooled
from metromq.pipeline.telemetry import DELAY_BUCKETS, Telemetry, TelemetryRow, bucket_of, decode_window

SECOND = 1_000_000


def test_a_window_counts_what_happened_in_it() -> None:
    counts = Telemetry("b1", "north", life=5)
    assert counts.roll(3 * SECOND) is None
    counts.published("a", "alice", 10)
    counts.published("a", "alice", 20)
    counts.published("a", "bob", 5)
    counts.delivered("a", local=3, remote=1, size=10)
    counts.subscribed("a", 4)
    counts.unsubscribed("a")
    counts.connected()
    counts.queued(1000)
    counts.linked("b2", 2, 64, 300)
    counts.service_consumed("maps", "a", 7)
    counts.service_served("maps", "d1", 9)
    window = counts.roll(10 * SECOND)
    assert window is not None
    assert (window.broker, window.site, window.start_us, window.seconds, window.sequence) == ("b1", "north", 0, 10.0, 5)
    rows = {(row.subject, row.name, row.detail): row for row in window.rows}
    assert rows["topic", "a", ""] == TelemetryRow("topic", "a", "", 3, 35, 2, 4, 3, 1, 30, 1, 1)
    assert rows["site", "north", ""].connects == 1
    assert rows["site", "north", ""].delay_counts[bucket_of(1000)] == 1
    assert (rows["link", "b2", ""].messages, rows["link", "b2", ""].bytes) == (2, 64)
    assert rows["service-topic", "maps", "a"].bytes == 7
    assert rows["service-device", "maps", "d1"].bytes == 9
    assert counts.roll(20 * SECOND) is None  # nothing happened since


def test_a_window_that_is_closed_early_leaves_room_for_the_rest_of_it() -> None:
    counts = Telemetry("b1", "north", life=5)
    counts.roll(0)
    counts.connected()
    early = counts.roll(SECOND, force=True)
    counts.connected()
    rest = counts.roll(10 * SECOND)
    assert early is not None
    assert rest is not None
    assert early.start_us == rest.start_us
    assert early.sequence != rest.sequence


def test_too_many_topics_are_added_up(monkeypatch: object) -> None:
    counts = Telemetry("b1", "north", life=0)
    counts.roll(0)
    for number in range(telemetry_module.MAX_TOPICS + 5):
        counts.published(f"t{number}", "p", 1)
    window = counts.roll(10 * SECOND)
    assert window is not None
    assert len(window.rows) == telemetry_module.MAX_TOPICS + 1
    assert next(row for row in window.rows if row.name == "").publications == 5


@settings(deadline=None, max_examples=50)
@given(st.integers(-5, 2**40))
def test_delays_fall_into_their_bucket(delay: int) -> None:
    bucket = bucket_of(delay)
    if bucket == 0:
        assert delay <= 0
    elif bucket < DELAY_BUCKETS - 1:
        assert 2 ** (bucket - 1) <= delay < 2**bucket
    else:
        assert delay >= 2 ** (bucket - 1)


def test_spool_keeps_windows_until_they_are_shipped(tmp_path: Path) -> None:
    counts = Telemetry("b1", "north", life=3)
    counts.roll(0)
    counts.linked("b2", 1, 1, 1)
    window = counts.roll(10 * SECOND)
    assert window is not None
    assert spooled(tmp_path) == []
    path = spool_window(tmp_path, window)
    assert spooled(tmp_path) == [path]
    assert decode_window(path.read_bytes()) == window
