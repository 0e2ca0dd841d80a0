"""The recorder: follows one broker's journal and telemetry and puts them into the lake's landing area.

It ships at least once, from its own durable position; the tables make it exactly once. It runs as a
process of its own, beside the broker, and never writes into the journal.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from metromq.errors import OffsetsGone, TelemetryDamaged, UsageError
from metromq.journal import JournalReader, read_id
from metromq.pipeline.decode import decode_batch
from metromq.pipeline.journals import key_of, landed_position, whereabouts
from metromq.pipeline.landing import MESSAGES, TELEMETRY, LandedFile, Landing, check_broker_name
from metromq.pipeline.schemas import LANDED_TELEMETRY
from metromq.telemetry import TelemetryWindow, read_window, set_aside, spooled, write_position

ROLL_ROWS: Final = 100_000
ROLL_BYTES: Final = 64 << 20
ROLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Landed:
    """What one step of the recorder did."""

    messages: int
    windows: int
    full: bool  # a whole file's worth: there may be more at once
    lost: tuple[int, int] | None = None  # offsets that retention or damage took before they were recorded
    unreadable: tuple[str, ...] = ()  # what was wrong with windows that were set aside


class Recorder:
    """One step lands what there is; `run` repeats it."""

    def __init__(
        self,
        broker: str,
        journal: Path,
        landing: Landing,
        spool: Path | None = None,
        roll_rows: int = ROLL_ROWS,
        start: int | None = None,
    ) -> None:
        self.broker = check_broker_name(broker)
        self._journal = journal
        self._landing = landing
        self._spool = spool
        self._roll_rows = roll_rows
        self._follow(start)

    def _follow(self, start: int | None = None) -> None:
        """The journal that is there now, from where its recording ended."""
        self._reader = JournalReader(self._journal)
        self._name = read_id(self._journal)
        self.key = key_of(self._landing, self.broker, self._journal)
        note = self._landing.read_note(self.key)
        self._first: int | None = note.get("first")
        self._lost: list[list[int]] = note.get("lost", [])
        self._unused: list[list[int]] = note.get("unused", [])
        self.position = landed_position(self._landing, self.key) if start is None else start

    def step(self) -> Landed:
        """Land what the journal and the spool hold beyond the position, up to one file's worth."""
        lost: tuple[int, int] | None = None
        try:
            records = self._read()
        except OffsetsGone as gone:
            lost = self._skip(gone.first, gone.unused)
            records = self._read()
        bodies = [body for _, body in records]
        if bodies:
            self._land(records[0][0], bodies)
        full = len(bodies) >= self._roll_rows or sum(map(len, bodies)) >= ROLL_BYTES
        windows, unreadable = self._ship_telemetry()
        return Landed(len(bodies), windows, full, lost, unreadable)

    def _read(self) -> list[tuple[int, bytes]]:
        """What is next in the journal; its name before and after tells that it was not replaced meanwhile."""
        while True:
            if read_id(self._journal) != self._name:
                self._reader.close()
                self._follow()
            records = self._reader.read(self.position, self._roll_rows, ROLL_BYTES)
            if read_id(self._journal) == self._name:
                return records

    def run(
        self,
        stop: threading.Event,
        seconds: float = ROLL_SECONDS,
        parent: int | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """Until `stop`, or until the process `parent` that started it is gone; `tell` hears what could not be read."""
        while True:
            last = stop.is_set() or (parent is not None and os.getppid() != parent)
            landed = self.step()
            for problem in landed.unreadable:
                tell(f"{problem}; it was set aside")
            if landed.full:
                continue
            if last:
                return
            stop.wait(seconds)

    def close(self) -> None:
        self._reader.close()

    def _land(self, first: int, bodies: list[bytes]) -> None:
        # Before it lands: a power cut must not leave the lake with messages that the broker has forgotten.
        sync_segments(self._journal, first)
        last = first + len(bodies) - 1
        file = LandedFile(MESSAGES, self.broker, first, last, self.key.journal)
        self._landing.put(file, decode_batch(self.broker, first, bodies, self.key.journal))
        if self._first is None:
            self._first = first
        self.position = last + 1
        self._note()

    def _skip(self, next_offset: int, unused: bool) -> tuple[int, int] | None:
        """Offsets that are not in the journal: nothing is lost if recording begins only now, or if none was used."""
        lost: tuple[int, int] | None = None
        if self._first is not None and unused:
            self._unused.append([self.position, next_offset - 1])
        elif self._first is not None:
            lost = (self.position, next_offset - 1)
            self._lost.append(list(lost))
        self.position = next_offset
        self._note()
        return lost

    def _note(self) -> None:
        note = {"position": self.position, "first": self._first, "lost": self._lost, "unused": self._unused}
        self._landing.write_note(self.key, note | {"id": self._name} | whereabouts(self._journal))
        if self._spool is not None:
            write_position(self._spool, self.position)

    def _ship_telemetry(self) -> tuple[int, tuple[str, ...]]:
        """How many windows landed, and why others could not: one bad file must not stop the ones behind it."""
        paths = spooled(self._spool) if self._spool is not None else []
        unreadable: list[str] = []
        for path in paths:
            try:
                window = read_window(path)
                owner = check_broker_name(window.broker)  # the city's manager leaves its windows here too
            except (TelemetryDamaged, UsageError) as error:
                set_aside(path, str(error))
                unreadable.append(str(error))
                continue
            file = LandedFile(TELEMETRY, owner, window.start_us, window.sequence)
            self._landing.put(file, window_table(window))
            path.unlink()
        return len(paths) - len(unreadable), tuple(unreadable)


@contextmanager
def recorder_lock(data: Path, stop: threading.Event) -> Iterator[None]:
    """One recorder per broker: one that was orphaned by a killed broker ships what there is and ends; wait for it."""
    data.mkdir(parents=True, exist_ok=True)
    with open(data / "recorder.lock", "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(0.1):
                    raise UsageError(
                        f"another recorder is already following {data}: stop it first, or the broker that started it"
                    ) from None
        yield


def sync_segments(journal: Path, offset: int) -> None:
    """fdatasync every segment that may hold `offset` or newer; any process may do that for any other."""
    segments = sorted(journal.glob("*.seg"))
    holding = [i for i, path in enumerate(segments) if int(path.stem.split("-")[1]) <= offset]
    for path in segments[holding[-1] if holding else 0 :]:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def window_table(window: TelemetryWindow) -> pa.Table:
    shared = {
        "broker": window.broker,
        "site": window.site,
        "window_start": window.start_us,
        "window_seconds": window.seconds,
        "sequence": window.sequence,
    }
    rows = [{**shared, **asdict(row)} for row in window.rows]
    return pa.Table.from_pylist(rows, schema=LANDED_TELEMETRY)
