"""Live storms, several cities at a time: they wait more than they work."""

import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import History, history_of, toppling
from tests.chaos.live import LiveStorm

STEPS = 80


def live_history(seed: int, steps: int = STEPS, routing: str = "", coordination: str = "") -> History:
    history = history_of(seed, steps=steps, routing=routing, coordination=coordination)
    return toppling(history) if routing == "overlay" else history


def breaches_live(history: History) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="storm-") as data:
        return judge(LiveStorm(history, Path(data)).play())


def play_live(histories: Iterable[History], jobs: int) -> Iterator[tuple[History, list[str]]]:
    histories = tuple(histories)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from zip(histories, pool.map(breaches_live, histories), strict=True)
