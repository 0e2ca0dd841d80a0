"""Plays storms by seed on simulated brokers; a seed that breaks the contract is printed and shrunk to a short story."""

import argparse
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from metromq.errors import UsageError
from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import CHANGING, COORDINATIONS, PLAYED, RESTLESS, History, history_of, parse_history
from metromq.lab.storm.shrinking import shrunk
from metromq.lab.storm.simulated import SimulatedStorm

PROGRESS_S = 1.0
INTERRUPTED = 130


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """Garbage is looked for once, and only among what was made meanwhile: a storm makes a few megabytes."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def breaches_of(history: History, wide: bool = False) -> list[str]:
    with collected_at_the_end():
        return judge(SimulatedStorm(history, wide).play())


def rule_of(breach: str) -> str:
    """Of a storm that found no end, what stood in its way: shrunk, it must be the same."""
    rule = breach.split(":")[0]
    return breach if rule == "rest" else rule


def story_of(history: History, rule: str, wide: bool) -> str:
    """The history, shrunk as long as the same rule fails, and what fails, as text that --replay reads."""
    small = shrunk(history, lambda one: rule in map(rule_of, breaches_of(one, wide)))
    found = [breach for breach in breaches_of(small, wide) if rule_of(breach) == rule]
    return "\n".join((*(f"# {breach}" for breach in found[:3]), str(small), ""))


@dataclass(slots=True)
class Tally:
    """How far it is."""

    total: int
    played: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)
    _shown: float = 0.0

    def add(self, seed: int, breaches: list[str]) -> None:
        self.played += 1
        if breaches:
            self.failed[seed] = breaches
            self._say(f"seed {seed}: {len(breaches)} breaches; {breaches[0]}")
        self._show()

    def _say(self, text: str) -> None:
        print(f"\r\033[K{text}" if sys.stderr.isatty() else text, flush=True)

    def _show(self) -> None:
        now = time.perf_counter()
        if sys.stderr.isatty() and now - self._shown > PROGRESS_S:
            self._shown = now
            rate = self.played / (now - self.start)
            left_s = (self.total - self.played) / rate
            line = f"{self.played} of {self.total} storms, {len(self.failed)} failed, {rate:.0f}/s, {left_s:.0f} s left"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        rate = self.played / (time.perf_counter() - self.start)
        rules = Counter(rule for found in self.failed.values() for rule in set(map(rule_of, found)))
        told = ", ".join(f"{rule}: {count}" for rule, count in sorted(rules.items()))
        self._say(
            f"{self.played - len(self.failed)} passed, {len(self.failed)} failed; {rate:.1f} storms/s"
            + (f"; {told}" if told else "")
        )


@dataclass(frozen=True, slots=True)
class Play:
    """One seed's storm, as work for another process."""

    brokers: int
    steps: int
    routing: str = ""
    wide: bool = False
    coordination: str = ""

    def history(self, seed: int) -> History:
        return history_of(seed, self.brokers, steps=self.steps, routing=self.routing, coordination=self.coordination)

    def __call__(self, seed: int) -> tuple[int, list[str]]:
        return seed, breaches_of(self.history(seed), self.wide)


def played(play: Play, seeds: range, jobs: int) -> Iterator[tuple[int, list[str]]]:
    if jobs == 1:
        yield from map(play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(play, seeds, chunksize=4)


def storm(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    tally = Tally(len(seeds))
    try:
        for seed, breaches in played(_play(options), seeds, min(options.jobs, len(seeds))):
            tally.add(seed, breaches)
        tally.close()
        for seed in sorted(tally.failed)[: options.shrink]:
            tell_story(options, _play(options).history(seed), tally.failed[seed])
    except KeyboardInterrupt:
        tally.close()
        return INTERRUPTED
    return 1 if tally.failed else 0


def _play(options: argparse.Namespace) -> Play:
    return Play(options.brokers, options.steps, options.routing, options.wide, options.coordination)


def tell_story(options: argparse.Namespace, history: History, breaches: list[str]) -> None:
    print(f"\nShrinking seed {history.seed} ...", flush=True)
    story = story_of(history, rule_of(breaches[0]), options.wide)
    print(story, end="")
    if options.save is not None:
        options.save.mkdir(parents=True, exist_ok=True)
        file = options.save / f"seed-{history.seed}.txt"
        file.write_text(story, encoding="utf-8")
        wide = " --wide" if options.wide else ""
        print(f"# python -m metromq.lab.storm{wide} --replay {file}", flush=True)


def replay(file: Path, wide: bool) -> int:
    breaches = breaches_of(parse_history(file.read_text(encoding="utf-8"), file.name), wide)
    print("\n".join(breaches) or "The contract was kept.")
    return 1 if breaches else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m metromq.lab.storm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many storms to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--wide", action="store_true", help="with links on demand, as in a large city")
    parser.add_argument(
        "--routing",
        choices=(*PLAYED, CHANGING, RESTLESS),
        default="",
        help="of every storm (default: each seed draws one)",
    )
    parser.add_argument(
        "--coordination",
        choices=COORDINATIONS,
        default="",
        help="zookeeper: on a simulated ensemble with faults of its own; workers: the same, with coordination workers",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="storms at a time (default: one a core)")
    parser.add_argument("--shrink", type=int, default=3, help="so many of the failing seeds are shrunk to stories")
    parser.add_argument("--save", type=Path, metavar="DIR", help="also write the stories there, for --replay")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play the story in this file instead")
    options = parser.parse_args()
    try:
        return replay(options.replay, options.wide) if options.replay is not None else storm(options)
    except (UsageError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
