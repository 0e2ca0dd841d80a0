"""What `run` tells while it works, and the brokers that it records itself."""

import threading
import time
import urllib.request
from pathlib import Path

import pytest

from metromq.errors import UsageError
from metromq.pipeline.ingest import Taken
from metromq.pipeline.landing import MESSAGES, Landing, Rejected
from metromq.pipeline.progress import Progress, line, serve_metrics
from metromq.pipeline.recorder import recorder_lock
from metromq.pipeline.shipper import shipping
from metromq.telemetry.spool import drop_oldest, spool_window, spooled
from metromq.telemetry.windows import TelemetryRow
from tests.pipeline.data import T0_US, fill, journal_of, land, window


def test_the_line() -> None:
    assert line(0, 0.0, {}) == "0 rows, 0 rows/s; waiting: none"
    assert line(12_000, 1500.4, {"a": 0, "b": 0}) == "12,000 rows, 1,500 rows/s; waiting: none"
    assert line(1, 1, {"a": 3, "b": 1000, "c": 0}) == "1 rows, 1 rows/s; waiting: b 1,000, a 3, 1 others none"
    many = {f"b{number}": number for number in range(8)}
    assert line(1, 1, many).endswith("waiting: b7 7, b6 6, b5 5, b4 4, 3 others 6, 1 others none")


def test_rows_rate_and_what_waits(landing: Landing) -> None:
    now = [100.0]
    progress = Progress(landing, lambda: now[0])
    now[0] = 105.0
    progress.took(Taken(500, 0, 0, (), {"b1": 300, "b2": 200}))
    assert progress.rate() == 100.0
    now[0] = 114.0
    progress.took(Taken(100, 0, 0, (Rejected("x", "y"),), {"b1": 100}))
    assert progress.rate() == 60.0
    now[0] = 123.9
    assert progress.rate() == 10.0
    land(landing, "b2", 0, 30)
    land(landing, "b3", 0, 5)
    assert progress.waiting() == {"b1": 0, "b2": 30, "b3": 5}
    assert progress.line() == "600 rows, 10 rows/s; waiting: b2 30, b3 5, 1 others none"


def test_prometheus_reads_it(landing: Landing) -> None:
    progress = Progress(landing, time.monotonic)
    progress.took(Taken(5, 0, 0, (Rejected("x", "y"),), {"b1": 5}))
    land(landing, "b1", 5, 2)
    close, port = serve_metrics(progress, "127.0.0.1", 0)
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    finally:
        close()
    for wanted in (
        'metromq_pipeline_rows_total{broker="b1"} 5.0',
        'metromq_pipeline_waiting_rows{broker="b1"} 2.0',
        "metromq_pipeline_rejected_files_total 1.0",
        "metromq_pipeline_batches_total 1.0",
    ):
        assert wanted in text


def test_several_brokers_are_shipped_from_one_process(tmp_path: Path, landing: Landing) -> None:
    data = tmp_path / "data"
    journals = [journal_of(data / name / "journal", 10) for name in ("b1", "b2")]
    spool_window(data / "b1", window("b1", T0_US, [TelemetryRow("topic", "a", publications=1)]))

    def landed() -> dict[str, int]:
        found: dict[str, int] = {}
        for file in landing.files():
            found[f"{file.kind} {file.broker}"] = found.get(f"{file.kind} {file.broker}", 0) + file.rows
        return found

    with shipping([str(data)], landing, True, print):
        assert landed() == {"messages b1": 10, "messages b2": 10, "telemetry b1": 1}
        fill(journals[0], 5)
    assert landed()["messages b1"] == 10
    with shipping([str(data)], landing, False, print):
        assert landed()["messages b1"] == 15
        fill(journals[1], 7)
    assert landed()["messages b2"] == 17
    assert not spooled(data / "b1")
    for journal in journals:
        journal.close()


def test_a_broker_with_a_recorder_of_its_own_is_refused(tmp_path: Path, landing: Landing) -> None:
    journal_of(tmp_path / "b1" / "journal", 1).close()
    with (
        recorder_lock(tmp_path / "b1", threading.Event()),
        pytest.raises(UsageError, match="another recorder"),
        shipping([str(tmp_path)], landing, True, print),
    ):
        pass
    with pytest.raises(UsageError, match="holds no journal"), shipping([str(tmp_path / "x")], landing, True, print):
        pass
    assert [file.kind for file in landing.files()] in ([], [MESSAGES])


def test_windows_that_nobody_fetches_are_bounded(tmp_path: Path) -> None:
    for number in range(5):
        spool_window(tmp_path, window("b1", T0_US + number, [TelemetryRow("topic", "a")]))
    drop_oldest(tmp_path, 2)
    assert [path.name[:20] for path in spooled(tmp_path)] == [f"{T0_US + number:020d}" for number in (3, 4)]
