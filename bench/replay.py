"""Replay over the network: rows per second that Spark reads from one broker, and what live traffic feels of it."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from bench.generator import connect, packet
from bench.peers import FETCHED, Peer, Running, find_peers, running
from bench.pipeline import Line
from metromq.journal import Journal
from metromq.pipeline import spark as spark_start
from metromq.protocol.session import Message, records

RATE = 20_000
TOPIC = "live/air"
TICK_S = 0.001
ROUNDS = 3
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
        return arguments, environment | {"METROMQ_REPLAY__ENABLED": "true", "METROMQ_REPLAY__MAX_BYTES_PER_S": "0"}

    return replace(peer, name="metromq replaying", command=command)


class Sides:
    """Processor seconds so far of the broker, of its process that reads, and of Spark with its Python workers."""

    def __init__(self, broker: Running) -> None:
        self._broker = psutil.Process(broker.pid)
        self._before = self._now()

    def _now(self) -> tuple[float, float, float]:
        replaying = self._broker.children(recursive=True)
        theirs = {self._broker.pid, *(process.pid for process in replaying)}
        spark = [each for each in psutil.Process().children(recursive=True) if each.pid not in theirs]
        return _seconds([self._broker]), _seconds(replaying), _seconds(spark)

    def per_million(self, rows: int) -> str:
        spent = [(now - before) / rows * 1e6 for now, before in zip(self._now(), self._before, strict=True)]
        return "processor seconds per million rows: broker {:.2f}, its reader {:.2f}, Spark {:.2f}".format(*spent)


def _share_out(broker: Running) -> None:
    """Both cores are for the broker and its process that reads; Spark, which is on machines of its own where it
    matters, has what they leave."""
    cores = os.sched_getaffinity(0)
    ours = [psutil.Process(broker.pid), *psutil.Process(broker.pid).children(recursive=True)]
    for process in ours:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)
    pids = {process.pid for process in ours}
    for process in psutil.Process().children(recursive=True):
        for thread in [] if process.pid in pids else process.threads():  # on Linux each has a class of its own
            os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))


def _seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            pass
    return total


def _compare(session: object, broker: Running, rows: int) -> list[Line]:
    read(session, broker, rows)  # warm
    _share_out(broker)
    sides = Sides(broker)
    quiet = read(session, broker, rows)
    spent = sides.per_million(rows)
    with live(broker) as load:
        time.sleep(QUIET_S)
        alone = load.p99_ms()
        rates = []
        for _ in range(ROUNDS):
            load.forget()
            rates.append(read(session, broker, rows))
        loaded = load.p99_ms()
    rate = sorted(rates)[ROUNDS // 2]
    note = f"{rows:,} rows of 64-byte messages, {RATE:,} live messages/s beside it, Spark in the idle class"
    worse = loaded / alone
    return [
        Line("rows per second from one broker over the network", rate, "rows/s", ">= 300,000", rate >= 300_000, note),
        Line("  without live traffic", quiet, "rows/s", "", None, spent),
        Line("p99 of live messages beside it", worse, "times", "<= 2", worse <= 2, f"{alone:.2f} ms, {loaded:.2f} ms"),
    ]


def read(session: object, broker: Running, rows: int) -> float:
    """Rows a second, with all columns, into nothing."""
    frame = session.read.format("metromq").option("brokers", f"127.0.0.1:{broker.port}").load()  # type: ignore[attr-defined]
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - began)


class Load:
    """A process that publishes and listens; what it says of the last moments."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def _ask(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def forget(self) -> None:
        self._ask("forget")

    def p99_ms(self) -> float:
        return float(json.loads(self._ask("p99")))


@contextmanager
def live(broker: Running) -> Iterator[Load]:
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-m", "bench.replay", str(broker.port)]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            load = Load(process)
            load.forget()
            yield load
        finally:
            assert process.stdin is not None
            process.stdin.close()


class Traffic:
    """Publishes at a steady rate, a few messages every millisecond, each with the time of its sending."""

    def __init__(self, port: int) -> None:
        self._publisher = connect(port, "bench-live-publisher")
        self._subscriber = connect(port, "bench-live-subscriber", filter=TOPIC)
        for one in (self._publisher, self._subscriber):
            one.setblocking(True)
        self._size = len(packet(TOPIC, payload=b"0" * 20))
        self.waits: list[int] = []
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._publish, daemon=True).start()

    def _publish(self) -> None:
        due = time.monotonic()
        while True:
            stamp = b"%020d" % time.monotonic_ns()
            self._publisher.sendall(packet(TOPIC, payload=stamp) * int(RATE * TICK_S))
            due += TICK_S
            time.sleep(max(0.0, due - time.monotonic()))

    def _listen(self) -> None:
        rest = b""
        while True:
            data = rest + self._receive(self._subscriber)
            now = time.monotonic_ns()
            count = len(data) // self._size
            for end in range(self._size, count * self._size + 1, self._size):
                self.waits.append(now - int(data[end - 20 : end]))
            rest = data[count * self._size :]

    @staticmethod
    def _receive(subscriber: socket.socket) -> bytes:
        data = subscriber.recv(1 << 16)
        if not data:
            raise SystemExit
        return data


def main(port: int) -> None:
    traffic = Traffic(port)
    for line in sys.stdin:
        if line.strip() == "forget":
            traffic.waits = []
            print("ok", flush=True)
        else:
            waits = sorted(traffic.waits)
            print(waits[len(waits) * 99 // 100] / 1e6, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
