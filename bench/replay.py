"""Replay over the network: rows per second that Spark reads from one broker, and what live traffic feels of it."""

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil

from bench.live_load import RATE, live
from bench.peers import FETCHED, Peer, Running, find_peers, running
from bench.pipeline import Line
from metromq.journal import Journal
from metromq.pipeline import spark as spark_start
from metromq.protocol.session import Message, records

ROUNDS = 5
QUIET_S = 5.0


def measure(options: argparse.Namespace) -> list[Line]:
    """One broker with a full journal; its live traffic alone, then while Spark reads the journal."""
    rows = min(options.rows, 3_000_000)
    peers, _ = find_peers(True, FETCHED)
    plain = next(peer for peer in peers if peer.family in ("metromq", "pure"))  # compiled, where that is there
    with tempfile.TemporaryDirectory(prefix="metromq-bench-") as folder:
        data = Path(folder) / "data"
        fill(data / "journal", rows)
        session = spark_start.start("local[2]", options.memory)
        try:
            with running(_replaying(plain, data), "os") as broker:
                return _compare(session, broker, rows)
        finally:
            spark_start.stop(session)


def fill(directory: Path, rows: int) -> None:
    """As a city's journal: 64-byte payloads, a hundred topics."""
    journal = Journal.open(directory)
    now_us = time.time_ns() // 1000
    for number in range(rows):
        message = Message(f"1/2/3/sensor{number % 100}", b"x" * 64, 1, time_us=now_us + number, publisher="bench")
        journal.append_message(records.encode_message(message, []))
        if number % 10_000 == 0:
            journal.flush()
    journal.close()


def _replaying(peer: Peer, data: Path) -> Peer:
    def command(port: int, directory: Path, durability: str) -> tuple[list[str], dict[str, str]]:
        arguments, environment = peer.command(port, data, durability)
        return arguments, environment | {"METROMQ_REPLAY__ENABLED": "true"}  # its pace is the one that users get

    return replace(peer, name="metromq replaying", command=command)


class Sides:
    """Processor seconds of the broker, of its process that reads, and of Spark with its Python workers, while rows are
    read."""

    def __init__(self, broker: Running, generator: int = 0) -> None:
        self._broker = psutil.Process(broker.pid)
        self._generator = generator
        self._before = self._now()
        self._spent = [0.0, 0.0, 0.0]

    def begin(self) -> None:
        self._before = self._now()

    def end(self) -> None:
        changes = zip(self._spent, self._before, self._now(), strict=True)
        self._spent = [spent + now - before for spent, before, now in changes]

    def _now(self) -> tuple[float, float, float]:
        replaying = self._broker.children(recursive=True)
        theirs = {self._broker.pid, self._generator, *(process.pid for process in replaying)}
        spark = [each for each in psutil.Process().children(recursive=True) if each.pid not in theirs]
        return _seconds([self._broker]), _seconds(replaying), _seconds(spark)

    def per_million(self, rows: int) -> str:
        spent = [seconds / rows * 1e6 for seconds in self._spent]
        return "processor seconds per million rows: broker {:.2f}, its reader {:.2f}, Spark {:.2f}".format(*spent)


def _share_out(broker: Running) -> None:
    """One core is for the broker and its process that reads, the other for Spark and the clients, which are on machines
    of their own where it matters: threads that compute on the broker's core would be measured instead."""
    first, second = (sorted(os.sched_getaffinity(0)) * 2)[:2]
    ours = [psutil.Process(broker.pid), *psutil.Process(broker.pid).children(recursive=True)]
    pids = {process.pid for process in ours}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for thread in process.threads():  # on Linux each has cores of its own
            os.sched_setaffinity(thread.id, {first if process.pid in pids else second})


def _seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            pass
    return total


def _compare(session: object, broker: Running, rows: int) -> list[Line]:
    """In turns, since a shared machine changes from second to second: live traffic alone, and beside a reader."""
    read(session, broker, rows)  # warm
    _share_out(broker)
    sides = Sides(broker)
    quiet = read(session, broker, rows)
    sides.end()
    spent = sides.per_million(rows)
    alone, beside, rates = [], [], []
    with live(broker.port) as load:
        time.sleep(QUIET_S)
        sides = Sides(broker, load.pid)
        for _ in range(ROUNDS):
            load.since()
            time.sleep(QUIET_S)
            alone.append(load.since())
            sides.begin()
            rates.append(read(session, broker, rows))
            sides.end()
            beside.append(load.since())
        spent_beside = sides.per_million(ROUNDS * rows)
    rate, served = median(rates), median(told["rate"] for told in beside)
    note = f"{rows:,} rows of 64-byte messages, {served:,.0f} live messages/s beside it; {spent_beside}"
    worse = median(told["p99"] for told in beside) / median(told["p99"] for told in alone)
    kept = rate >= 300_000 and served >= 0.99 * RATE
    return [
        Line("rows per second from one broker over the network", rate, "rows/s", ">= 300,000", kept, note),
        Line("  without live traffic", quiet, "rows/s", "", None, spent),
        Line(
            "p99 of live messages beside it",
            worse,
            "times",
            "<= 2",
            worse <= 2,
            f"{_points(alone)} alone; {_points(beside)} beside it; medians of {ROUNDS} rounds; the host took nothing "
            f"in {min(told['share'] for told in alone + beside):.0%} of the time or more, and that counts",
        ),
    ]


def _points(rounds: list[dict[str, float]]) -> str:
    return ", ".join(f"{median(told[point] for told in rounds):.2f} ms {point}" for point in ("p50", "p99", "p99.9"))


def read(session: object, broker: Running, rows: int) -> float:
    """Rows a second, with all columns, into nothing."""
    frame = session.read.format("metromq").option("brokers", f"127.0.0.1:{broker.port}").load()  # type: ignore[attr-defined]
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - began)
