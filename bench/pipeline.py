"""The pipeline: rows per second into `messages`, delay from publish to row, what-if and refresh by size, recording."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.machine import raise_file_limit
from bench.object_store import BUCKET, object_store
from bench.peers import FETCHED, Peer, find_peers, running
from bench.scenarios import windowed
from metromq.journal import Journal
from metromq.pipeline import spark as spark_start
from metromq.pipeline.ingest import Taken
from metromq.pipeline.jobs import IngestOptions, run
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import MESSAGES, LandedFile, Landing
from metromq.pipeline.recorder import Recorder
from metromq.pipeline.schemas import LANDED_MESSAGES, TABLES
from metromq.protocol.session.message import Message
from metromq.protocol.session.records import encode_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.day import Minute

FILE_ROWS = 100_000
BROKERS = 4
WARM_FILES = 40
ROUNDS = 3
DAY = date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class Line:
    """One measured value and what the issue asks of it."""

    title: str
    value: float
    unit: str
    target: str
    met: bool | None
    note: str = ""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench pipeline", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(SUITES), help="may be repeated")
    parser.add_argument("--rows", type=int, default=6_000_000, help="rows of the ingest (default 6,000,000)")
    parser.add_argument("--largest", type=int, default=10, help="millions of rows in the largest what-if and refresh")
    parser.add_argument("--memory", default="1g", help="memory of Spark (default 1g, as `metromq pipeline run`)")
    parser.add_argument("--json", type=Path, default=Path("bench-results-pipeline.json"), metavar="FILE")
    options = parser.parse_args(argv)
    raise_file_limit()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    found: list[Line] = []
    for name in options.only or SUITES:
        console.print(f"[dim]measuring {name}[/]")
        for line in SUITES[name](options):
            console.print(f"[dim]{line.title}: {line.value:,.2f} {line.unit} ({line.note})[/]")
            found.append(line)
    table = Table(title="The pipeline, on two cores")
    for column in ("measure", "value", "unit", "target", "", "notes"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for line in found:
        verdict = "" if line.met is None else "[green]met[/]" if line.met else "[red]missed[/]"
        table.add_row(line.title, f"{line.value:,.2f}", line.unit, line.target, verdict, line.note)
    console.print(table)
    options.json.write_text(json.dumps([asdict(line) for line in found], indent=1) + "\n")
    return 0


@contextmanager
def workplace(memory: str) -> Iterator[tuple["SparkSession", Path]]:
    folder = Path(tempfile.mkdtemp(prefix="metromq-bench-"))
    session = spark_start.start("local[2]", memory)
    try:
        yield session, folder
    finally:
        spark_start.stop(session)
        shutil.rmtree(folder, ignore_errors=True)


class Usage:
    """Processor time and memory of this process and its Java; of the memory the largest of ten looks a second."""

    def __init__(self) -> None:
        self._before = self._seconds()
        self._began = time.perf_counter()
        self.peak_bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _sum(self, value: Callable[[psutil.Process], float]) -> float:
        total = 0.0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                total += value(process)
            except psutil.NoSuchProcess:  # a Python worker of Spark: its parent has its time
                pass
        return total

    def _seconds(self) -> float:
        return self._sum(lambda process: sum(process.cpu_times()[:4]))

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            self.peak_bytes = max(self.peak_bytes, int(self._sum(lambda process: process.memory_info().rss)))

    def stop(self) -> tuple[float, float]:
        """Wall seconds and processor seconds."""
        wall = time.perf_counter() - self._began
        self._end.set()
        self._thread.join()
        return wall, self._seconds() - self._before


def landed(count: int) -> pa.Table:
    """A city's sensors: Z-order topics, small JSON payloads."""
    numbers = np.arange(count)
    topics = [f"{n % 4}/{n // 4 % 4}/{n // 16 % 4}/sensor{n % 5000}/temperature" for n in range(count)]
    payloads = [b'{"value": %d.%d, "unit": "C", "id": %d}' % (n % 40, n % 10, n) for n in range(count)]
    constant = {"kind": "publish", "qos": 1, "retain": False, "origin": "", "origin_offset": -1, "properties": b""}
    constant["journal"] = ""
    columns = {
        "broker": pa.repeat(pa.scalar("b"), count),
        "offset": numbers,
        "time": pa.array(1_767_225_600_000_000 + numbers * 10).cast(LANDED_MESSAGES.field("time").type),
        "topic": topics,
        "payload": payloads,
        "publisher": [f"client{n % 1000}" for n in range(count)],
        **{name: pa.nulls(count, LANDED_MESSAGES.field(name).type) for name in ("expires_at", "arrived")},
        **{name: pa.repeat(pa.scalar(value), count) for name, value in constant.items()},
    }
    return pa.table({name: columns[name] for name in LANDED_MESSAGES.names}).cast(LANDED_MESSAGES)


def fill_landing(landing: Landing, template: pa.Table, first_file: int, files: int) -> None:
    for number in range(first_file, first_file + files):
        broker, start = f"b{number % BROKERS}", number // BROKERS * FILE_ROWS
        table = template.set_column(0, "broker", pa.repeat(pa.scalar(broker), FILE_ROWS))
        offsets = pa.array(np.arange(start, start + FILE_ROWS))
        landing.put(LandedFile(MESSAGES, broker, start, start + FILE_ROWS - 1), table.set_column(1, "offset", offsets))


class Loading:
    """Files that wait in the landing area of a new lake, taken in by the streaming job."""

    def __init__(self, session: "SparkSession", root: str | Path, template: pa.Table) -> None:
        self._session = session
        self._lake = Lake(root)
        self._landing = Landing(self._lake.landing)
        self._template = template
        self._files = 0  # so many have been taken in
        self._landed = 0

    def land(self, files: int) -> None:
        fill_landing(self._landing, self._template, self._landed, files)
        self._landed += files

    def only_read(self) -> tuple[float, float]:
        """Rows per second, and processor seconds per row, of reading what waits into nothing, as Spark does that."""
        rows = (self._landed - self._files) * FILE_ROWS
        usage = Usage()
        paths = [f"{self._lake.landing}/{file.path}" for file in self._landing.files()]
        self._session.read.parquet(*paths).write.format("noop").mode("overwrite").save()
        wall, processor = usage.stop()
        return rows / wall, processor / rows

    def take(self, files: int) -> tuple[float, float, Usage]:
        """Rows per second, and processor seconds per row."""
        self.land(files - (self._landed - self._files))
        usage = Usage()
        run(self._session, self._lake, IngestOptions(once=True, refresh_seconds=0), lambda taken: None)
        wall, processor = usage.stop()
        self._files += files
        held = sum(file.rows for file in self._lake.files("messages"))
        assert held == self._files * FILE_ROWS, f"{held} rows in the table"
        return files * FILE_ROWS / wall, processor / (files * FILE_ROWS), usage


def ingest(options: argparse.Namespace) -> list[Line]:
    """Files that wait in the landing area, taken in by the streaming job after a warm-up."""
    files = max(options.rows // FILE_ROWS, BROKERS)
    with workplace(options.memory) as (session, folder):
        loading = Loading(session, folder / "lake", landed(FILE_ROWS))
        loading.take(min(WARM_FILES, files))
        loading.land(files)
        loading.only_read()  # warm
        read_rate, read_processor = loading.only_read()
        rate, processor, usage = loading.take(files)
    rows, per_row = files * FILE_ROWS, processor * 1e6
    reading = f"reading alone: {read_rate:,.0f} rows/s, {read_processor * 1e6:.2f} us/row"
    return [
        Line("ingest into messages", rate, "rows/s", ">= 150,000", rate >= 150_000, f"{rows:,} rows"),
        Line("  processor time", per_row, "us/row", "", None, f"two free cores would do {2e6 / per_row:,.0f} rows/s"),
        Line("  of the rate of reading the same files", rate / read_rate * 100, "%", "", None, reading),
        Line("  memory, Python and Java", usage.peak_bytes / 2**20, "MiB", "", None, f"heap {options.memory}"),
    ]


def object_stores(options: argparse.Namespace) -> list[Line]:
    """The same on a path and on an S3 server of this machine, in turns."""
    template = landed(FILE_ROWS)
    files = max(options.rows // FILE_ROWS // ROUNDS, BROKERS)
    rates: dict[str, list[float]] = {"path": [], "s3": []}
    processor: dict[str, list[float]] = {"path": [], "s3": []}
    with workplace(options.memory) as (session, folder), object_store(folder) as server:
        os.environ.update(server.environment)
        places = {"path": str(folder / "lake"), "s3": f"s3://{BUCKET}/lake"}
        loadings = {name: Loading(session, root, template) for name, root in places.items()}
        for loading in loadings.values():
            loading.take(min(WARM_FILES // 2, files))
        for round in range(ROUNDS):
            for name in sorted(loadings, reverse=bool(round % 2)):
                before = sum(psutil.Process(server.pid).cpu_times()[:2])
                rate, used, _ = loadings[name].take(files)
                served = sum(psutil.Process(server.pid).cpu_times()[:2]) - before
                rates[name].append(rate)
                processor[name].append(used - served / (files * FILE_ROWS))
    path, s3 = median(rates["path"]), median(rates["s3"])
    own = median(processor["path"]) / median(processor["s3"]) * 100
    note = f"{s3:,.0f} of {path:,.0f} rows/s, the server on the same two cores; medians of {ROUNDS}"
    return [
        Line("ingest on S3, of that on a path", s3 / path * 100, "%", ">= 80", s3 / path >= 0.8, note),
        Line("  by processor time without the server's", own, "%", "", None, "as if the store were elsewhere"),
    ]


def delay(options: argparse.Namespace) -> list[Line]:
    """A journal that grows by 2,000 messages a second, recorder and job at work: from publish to row, once warm."""
    rate, warm_batches, seconds = 2_000, 15, 30.0
    with workplace(options.memory) as (session, folder):
        lake = Lake(folder / "lake")
        stop = threading.Event()
        recorder = Recorder("b1", folder / "journal", Landing(lake.landing))
        seen: set[str] = set()
        batches: list[float] = []
        delays: list[tuple[float, float]] = []  # when a message was made, and how long it took to its row

        def report(taken: Taken) -> None:
            now = time.time()
            batches.append(now)
            fresh = [file for file in Lake(lake.root).files("messages") if file.path not in seen]
            seen.update(file.path for file in fresh)
            for file in fresh:
                times = lake.arrow("messages", [file], ("time",))["time"].cast(pa.int64())
                delays.extend((moment / 1e6, now - moment / 1e6) for moment in times.to_pylist())

        journal = Journal.open(folder / "journal")
        recording = threading.Thread(target=recorder.run, args=(stop, 1.0))
        job = IngestOptions(refresh_seconds=0)
        job_thread = threading.Thread(target=run, args=(session, lake, job, report, stop))
        recording.start()
        job_thread.start()
        began = time.time()
        sent = 0
        while len(batches) < warm_batches or time.time() < batches[warm_batches - 1] + seconds:
            while sent < (time.time() - began) * rate:
                message = Message(f"0/{sent % 4}/t{sent % 500}", b'{"value": 1}', 1, time_us=int(time.time() * 1e6))
                journal.append_message(encode_message(message, []))
                sent += 1
            journal.flush()
            time.sleep(0.01)
        stop.set()
        job_thread.join()
        recording.join()
        recorder.close()
        journal.close()
    warm = np.array([took for made, took in delays if made > batches[warm_batches - 1]])
    p50, p95 = np.percentile(warm, [50, 95])
    return [
        Line(
            "publish to row, p95, warm", float(p95), "s", "< 5", bool(p95 < 5), f"p50 {p50:.2f} s, {len(warm):,} rows"
        ),
    ]


def what_if(options: argparse.Namespace) -> Iterator[Line]:
    """All choices over subscriptions of a tenth as many topics at 64 sites."""
    from metromq.pipeline.counting import CHOICES
    from metromq.pipeline.whatif import what_if as ask

    base: float | None = None
    with workplace(options.memory) as (session, folder):
        for size in [0, *_sizes(options.largest)]:  # the first is for Java to warm up
            lake = Lake(folder / f"lake{size}")
            subscriptions = size * 1_000_000 or 100_000
            _demand(session, lake, subscriptions)
            usage = Usage()
            costs = ask(session, lake, list(CHOICES))
            wall, processor = usage.stop()
            assert len(costs) == len(CHOICES)
            shutil.rmtree(lake.root)
            if not size:
                continue
            base = base or processor
            target, met = ("< 60", wall < 60) if size == 10 else ("", None)
            note = f"{processor:.0f} s of processor, {processor / base:.1f}x that of 1 million"
            note += f"; {usage.peak_bytes / 2**20:,.0f} MiB"
            yield Line(f"what-if, {size} million subscriptions", wall, "s", target, met, note)


def _sizes(largest: int) -> list[int]:
    """Millions, from one to the largest."""
    return sorted({size for size in (1, 10, 100) if size < largest} | {largest})


def _demand(session: "SparkSession", lake: Lake, subscriptions: int) -> None:
    """A day's traffic: every topic is published at one site; subscriptions fall anywhere, more on popular topics."""
    from pyspark.sql import functions as F

    topics, sites = subscriptions // 10, 64
    name = "concat_ws('/', topic % 4, topic div 4 % 4, topic div 16 % 4, concat('sensor', topic))"
    wanted = (
        session.range(subscriptions)
        .selectExpr(f"cast(floor(pow(rand(1), 2) * {topics}) as bigint) topic", f"cast(rand(2) * {sites} as int) site")
        .groupBy("topic", "site")
        .agg(F.count("*").alias("subscribers"))
        .selectExpr("topic", "site", "subscribers", "0L publications")
    )
    made = session.range(topics).selectExpr(
        "id topic", f"cast(pmod(hash(id), {sites}) as int) site", "0L subscribers", "60L publications"
    )
    columns = {
        "day": f"DATE'{DAY}'",
        "window_start": f"TIMESTAMP'{DAY} 00:00:00'",
        "topic": name,
        "site": "concat('site', site)",
        "broker": "concat('site', site)",
        "publications": "publications",
        "rate": "publications / 60.0D",
        "subscribers": "subscribers",
    }
    empty = dict.fromkeys((name for name in TABLES["traffic"].schema.names if name not in columns), "0L")
    expressions = [f"{text} AS {column}" for column, text in (columns | empty).items()]
    rows = wanted.unionByName(made).selectExpr(*expressions)
    lake.commit("traffic", lake.write_files(rows, "traffic"))


def refreshing(options: argparse.Namespace) -> Iterator[Line]:
    """A day of so many messages, 70,000 a minute to 5,000 topics; more come, and the statistics follow: 35,000 of the
    newest minute, and 400 of one in the middle. A refresh before them makes what is made of days. The smallest comes
    once more at the end, for Java is faster then."""
    from bench import day
    from metromq.pipeline.refreshing import refresh

    newest, late = "35,000 of the newest minute", "400 of an old minute"
    lines: list[tuple[int, str, float, dict[str, float]]] = []
    with workplace(options.memory) as (session, folder):
        first = day.first_minute(session, Lake(folder / "first"))
        _as_filled(session, Lake(folder / "twin"), first)
        sizes = _sizes(options.largest)
        for size in [*sizes, sizes[0]]:
            lake, minutes = Lake(folder / f"lake{size}"), max(size * 1_000_000 // day.MINUTE_ROWS, 3)
            if not lake.exists("messages"):
                day.fill(lake, first, minutes)
                refresh(session, lake)
            for title, minute, count in ((newest, minutes - 1, 35_000), (late, minutes // 2, 400)):
                day.more(lake, first, minute, len(lines), count)
                wall, spent = _steps(session, lake)
                lines.append((size, title, wall, spent))
                each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items())
                note = f"{each}; {wall:.0f} s on the clock"
                yield Line(f"refresh after {title}, {size} million", sum(spent.values()), "s CPU", "", None, note)
    for title in (newest, late):
        base = median(sum(spent.values()) for size, name, _, spent in lines if (size, name) == (sizes[0], title))
        for size, ratio in ((item[0], sum(item[3].values()) / base) for item in lines if item[1] == title):
            if size != sizes[0]:
                note = "processor time; of the first and the last round of the smallest the mean"
                yield Line(f"{title}, {size} million, of {sizes[0]}", ratio, "times", "<= 2", ratio <= 2, note)


def _as_filled(session: "SparkSession", lake: Lake, first: "Minute") -> None:
    """What `fill` writes is what a refresh makes of the same messages."""
    from bench import day
    from metromq.pipeline.refreshing import refresh

    day.fill(lake, first, 2)
    names = ("traffic", "traffic_hours", "latency")
    filled = {name: lake.arrow(name) for name in names}
    for name in names:
        lake.commit(name, [], lake.files(name), {"messages": -1, "telemetry": -1, "traffic@1": -1})
    refresh(session, lake)
    for name in names:
        columns = [(column, "ascending") for column in ("window_start", "broker", "topic", "origin")]
        order = [item for item in columns if item[0] in filled[name].column_names]
        assert lake.arrow(name).sort_by(order).equals(filled[name].sort_by(order)), name


def _steps(session: "SparkSession", lake: Lake) -> tuple[float, dict[str, float]]:
    """Seconds on the clock of a refresh, and of the processor for each table."""
    from metromq.pipeline.refreshing import PLANNER_HOURS, STEPS, refresh_planner

    began, spent = time.perf_counter(), {}
    for name, step in [*STEPS, ("planner", lambda spark, lake: refresh_planner(spark, lake, PLANNER_HOURS))]:
        usage = Usage()
        assert step(session, lake), name
        spent[name] = usage.stop()[1]
    return time.perf_counter() - began, spent


def _day(session: "SparkSession", lake: Lake, first: int, count: int) -> None:
    """Rows of `messages` that no recorder has seen: 70,000 a minute from midnight on."""
    columns = {
        "offset": "id",
        "time": f"timestamp_micros(unix_micros(TIMESTAMP'{DAY} 00:00:00') + id * 857)",
        "kind": "'publish'",
        "topic": "concat(id % 4, '/', id % 3, '/sensor', id % 5000)",
        "payload": "cast('{\"value\": 21}' as binary)",
        "qos": "1",
        "retain": "false",
        "publisher": "concat('client', id % 1000)",
        "journal": "'bench'",
        "day": f"DATE'{DAY}'",
        "broker": f"concat('b', id % {BROKERS})",
    }
    schema = lake.read(session, "messages", []).schema
    types = {item.name: item.dataType.simpleString() for item in schema}
    wanted = [f"cast({columns.get(name, 'null')} as {kind}) {name}" for name, kind in types.items()]
    rows = session.range(first, first + count).selectExpr(*wanted)
    lake.commit("messages", lake.write_files(rows, "messages"))


def sql(options: argparse.Namespace) -> Iterator[Line]:
    """A small answer from a million rows, by the command as a user types it, from its start to its end."""
    with workplace(options.memory) as (session, folder):
        _day(session, Lake(folder / "lake"), 0, 1_000_000)
        copy = Path(shutil.copytree(folder / "lake", Path(tempfile.mkdtemp(prefix="metromq-bench-")) / "lake"))
    question = "SELECT broker, count(*) AS n, max(time) AS newest FROM messages GROUP BY broker ORDER BY broker"
    try:
        for title, options_, target in (("DuckDB", [], 3.0), ("Spark", ["--spark"], 12.0)):
            command = [sys.executable, "-m", "metromq.cli.main", "pipeline", "sql", "--lake", str(copy), question]
            walls, spent = [], []
            for _ in range(3):
                before = os.times()
                subprocess.run([*command, *options_], check=True, capture_output=True)
                after = os.times()
                walls.append(after.elapsed - before.elapsed)
                spent.append(after.children_user + after.children_system)
                spent[-1] -= before.children_user + before.children_system
            best = min(walls)
            note = f"of three: {', '.join(f'{wall:.1f}' for wall in walls)} s; {min(spent):.1f} s of processor"
            yield Line(f"sql by {title}, the whole command", best, "s", f"< {target:.0f}", best < target, note)
    finally:
        shutil.rmtree(copy.parent)


def recording(options: argparse.Namespace) -> list[Line]:
    """QoS 1 through one broker and its journal, with and without a recorder; medians of interleaved rounds."""
    peers, _ = find_peers(True, FETCHED)
    plain = next(peer for peer in peers if peer.family in ("metromq", "pure"))  # compiled, where that is there
    rates: dict[str, list[float]] = {"off": [], "on": []}
    scenario = windowed(10, 10)
    with tempfile.TemporaryDirectory(prefix="metromq-bench-") as folder:
        for round in range(5):
            for name in ("off", "on") if round % 2 else ("on", "off"):
                peer = plain if name == "off" else _recorded(plain, f"{folder}/lake{round}")
                with running(peer, "os") as broker:
                    rates[name].append(scenario(broker, 4.0).values["rate"])
    off, on = median(rates["off"]), median(rates["on"])
    note = f"QoS 1, window 20, 10 -> 10: {off:,.0f} messages/s without, {on:,.0f} with"
    return [Line("throughput with recording on", on / off * 100, "%", ">= 80", on / off >= 0.8, note)]


def _recorded(peer: Peer, lake: str) -> Peer:
    def command(port: int, directory: Path, durability: str) -> tuple[list[str], dict[str, str]]:
        arguments, environment = peer.command(port, directory, durability)
        return arguments, environment | {"METROMQ_RECORDER__LAKE": lake}

    return replace(peer, name="metromq recording", command=command)


def replay(options: argparse.Namespace) -> Iterable[Line]:
    """Rows over the network, and live traffic beside it."""
    from bench.replay import measure  # which needs Line

    return measure(options)


SUITES: dict[str, Callable[[argparse.Namespace], Iterable[Line]]] = {
    "ingest": ingest,
    "s3": object_stores,
    "delay": delay,
    "what-if": what_if,
    "refresh": refreshing,
    "sql": sql,
    "recording": recording,
    "replay": replay,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
