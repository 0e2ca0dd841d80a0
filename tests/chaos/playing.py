"""Live storms by seed, several cities at a time: they wait more than they work."""

import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import History, history_of
from tests.chaos.live import LiveStorm

STEPS = 80


def breaches_live(history: History) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="storm-") as data:
        return judge(LiveStorm(history, Path(data)).play())


def play_seed(seed: int, steps: int) -> tuple[int, list[str]]:
    return seed, breaches_live(history_of(seed, steps=steps))


def play_live(seeds: Iterable[int], jobs: int, steps: int = STEPS) -> Iterator[tuple[int, list[str]]]:
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(partial(play_seed, steps=steps), seeds)
