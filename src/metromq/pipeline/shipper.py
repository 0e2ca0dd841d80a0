"""Records all brokers under some data directories from one process, beside `run`: enough for a city on one machine."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from metromq.pipeline.journals import journals
from metromq.pipeline.landing import Landing
from metromq.pipeline.recorder import ROLL_SECONDS, Recorder, recorder_lock

Tell = Callable[[str], None]


def data_directories(given: Sequence[str]) -> dict[str, Path]:
    """Brokers by name: DIR or BROKER=DIR, as everywhere; a directory may hold several brokers."""
    found: dict[str, Path] = {}
    for text in given:
        broker, equals, path = text.partition("=")
        folders = journals(path, broker) if equals else journals(text)
        found |= {name: folder.parent for name, folder in folders.items()}
    return found


@contextmanager
def shipping(given: Sequence[str], landing: Landing, once: bool, tell: Tell) -> Iterator[None]:
    """What there is has landed when the block begins; unless `once`, all that comes until it ends has landed then."""
    stop = threading.Event()
    with ExitStack() as stack:
        recorders = [
            stack.enter_context(_recorder(name, data, landing)) for name, data in data_directories(given).items()
        ]
        _ship(recorders, tell)
        if once or not recorders:
            yield
            return
        worker = threading.Thread(target=_follow, args=(recorders, stop, tell), name="metromq-recorders", daemon=True)
        worker.start()
        try:
            yield
        finally:
            stop.set()
            worker.join()


@contextmanager
def _recorder(broker: str, data: Path, landing: Landing) -> Iterator[Recorder]:
    busy = threading.Event()
    busy.set()  # one that is already there is the user's mistake, not something to wait for
    with recorder_lock(data, busy):
        landing.remove_unfinished(broker)
        recorder = Recorder(broker, data / "journal", landing, spool=data)
        try:
            yield recorder
        finally:
            recorder.close()


def _ship(recorders: Sequence[Recorder], tell: Tell) -> None:
    done = threading.Event()
    done.set()
    for recorder in recorders:
        recorder.run(done, tell=tell)


def _follow(recorders: Sequence[Recorder], stop: threading.Event, tell: Tell) -> None:
    while not stop.wait(ROLL_SECONDS):
        _ship(recorders, tell)
    _ship(recorders, tell)
