"""`metromq pipeline`: record journals, run Spark on them, ask the lake, keep it in order."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from metromq.cli.contents import count_of, say_content
from metromq.cli.costs import COLUMNS as COST_COLUMNS
from metromq.cli.costs import bars, page
from metromq.cli.costs import row as cost_row
from metromq.errors import MetroError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from metromq.pipeline import BrokerCheck, Progress, Taken

DEFAULT_LAKE = "metromq-lake"
_NUMBER = re.compile(r"-?[0-9][0-9,.e+-]*")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

lake_option = click.option(
    "--lake", default=DEFAULT_LAKE, show_default=True, help="Directory or URI of the lake, such as s3://bucket/lake."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
master_option = click.option(
    "--master", default="local[*]", show_default=True, help="Spark master, for example spark://host:7077."
)
memory_option = click.option("--memory", default="1g", show_default=True, help="Memory of the Spark driver.")
models_option = click.option(
    "--models",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory with tables of your own: NAME.sql, one SELECT each, and NAME.toml, the columns of JSON payloads.",
)
conf_option = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")


def examples(*lines: str) -> str:
    return "\n".join(("\b", "Examples:", *(f"  metromq pipeline {line}" for line in lines)))


@click.group(
    "pipeline",
    epilog=examples(
        "run --lake lake                         stream recorded messages into tables",
        "check --lake lake                       prove that nothing is missing",
        'sql --lake lake "SELECT * FROM zipf"    query the tables',
    ),
)
def command() -> None:
    """Turn journals into tables and statistics, on Spark."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UsageError("the pipeline needs an extra package: pip install 'metromq[pipeline]'") from error


@command.command(
    "record",
    epilog=examples(
        "record --data metromq-data --broker metromq --lake lake",
        "record --data metromq-data --broker metromq --lake lake --from 5000 --once",
    ),
)
@click.option("--data", type=click.Path(path_type=Path), required=True, help="The broker's data directory.")
@lake_option
@click.option("--broker", required=True, help="The broker's name.")
@click.option("--every", type=float, default=1.0, show_default=True, help="Seconds between files.")
@click.option("--from", "start", type=int, help="Record again from this offset; tables still get every record once.")
@click.option("--once", is_flag=True, help="Record what there is now, then stop.")
@click.option("--with-parent", is_flag=True, hidden=True, help="End when the process that started this one is gone.")
def record(data: Path, lake: str, broker: str, every: float, start: int | None, once: bool, with_parent: bool) -> None:
    """Record a broker's journal and telemetry into the landing area of the lake."""
    from metromq.pipeline import Landing, Recorder, recorder_lock

    parent = os.getppid() if with_parent else None
    if with_parent:
        os.nice(10)  # beside a broker its clients come first; the journal waits
    with stop_on_signals() as stop, recorder_lock(data, stop):
        if once:
            stop.set()
        area = Landing(f"{lake.rstrip('/')}/landing")
        area.store.check()
        area.remove_unfinished(broker)
        recorder = Recorder(broker, data / "journal", area, spool=data, start=start)
        try:
            recorder.run(stop, every, parent, partial(click.echo, err=True))
        except OSError as error:
            raise MetroError(f"cannot record into {lake}: {error}; the journal keeps what waits") from error
        finally:
            recorder.close()


@command.command(
    "run",
    epilog=examples(
        "run --lake lake           until Ctrl-C",
        "run --lake lake --once    load what there is now, refresh the statistics, then stop",
        "run --lake lake --data metromq-data    record the brokers in metromq-data, too",
        "run --lake lake --models models --metrics 127.0.0.1:9884 --ui 4040",
        "run --lake s3://bucket/lake --master spark://host:7077",
    ),
)
@lake_option
@click.option("--landing", help="Landing area, if not in the lake: a directory or a URI.")
@click.option("--once", is_flag=True, help="Load everything there is now, then stop.")
@click.option(
    "--refresh",
    type=float,
    default=30.0,
    show_default=True,
    help="Seconds between refreshes of the statistics; 0: none.",
)
@click.option(
    "--compact",
    "compact_s",
    type=float,
    default=3600.0,
    show_default=True,
    help="Seconds between merges of small files; 0: none.",
)
@click.option(
    "--max-rows", type=click.IntRange(min=1), default=500_000, show_default=True, help="Rows per micro-batch."
)
@click.option(
    "--data",
    multiple=True,
    metavar="[BROKER=]DIR",
    help="Also record the brokers in this data directory, which have no recorders of their own.",
)
@models_option
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus, for example 127.0.0.1:9884.")
@click.option("--ui", type=click.IntRange(1, 65535), metavar="PORT", help="Open Spark's own web pages at this port.")
@master_option
@memory_option
@conf_option
@json_option
def run_command(
    lake: str,
    landing: str | None,
    data: tuple[str, ...],
    models: Path | None,
    metrics: str | None,
    ui: int | None,
    once: bool,
    refresh: float,
    compact_s: float,
    max_rows: int,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Stream landed files into tables and keep the statistics up to date."""
    from metromq.pipeline import IngestOptions, Lake, Landing, Progress, lake_lock, read_models, run, shipping

    options = IngestOptions(
        once=once,
        max_rows=max_rows,
        refresh_seconds=refresh,
        compact_seconds=compact_s,
        landing=landing,
        models=tuple(read_models(models)) if models is not None else (),
    )
    where = metrics_address(metrics) if metrics else None
    store = Lake(lake)
    area = Landing(landing or store.landing)
    progress = Progress(area, time.monotonic)
    console = Console(stderr=True)
    live = console.is_terminal and not as_json
    totals = {"messages": 0, "telemetry_files": 0, "repeated_files": 0, "rejected": 0}

    def report(taken: "Taken") -> None:
        for name in totals:
            value = getattr(taken, name)
            totals[name] += len(value) if name == "rejected" else value
        for item in taken.rejected:
            console.print(f"rejected {item.path}: {item.reason}", highlight=False, soft_wrap=True)
        progress.took(taken)
        if as_json:
            click.echo(json.dumps(asdict(taken)))
        elif not live:
            say(f"loaded {taken.messages} messages; {progress.line()}")

    def say(text: str) -> None:
        console.print(f"{datetime.now(UTC):%H:%M:%S} {text}", highlight=False, soft_wrap=True)

    conf += ("spark.ui.enabled=true", f"spark.ui.port={ui}") if ui else ()
    with (
        stop_on_signals() as stop,
        lake_lock(store) as lock,
        shipping(data, area, once, say),
        metrics_served(progress, where, say),
        spark_session(master, memory, conf) as spark,
        progress_shown(console, progress) if live else nullcontext(),
    ):
        if ui:
            say(f"Spark's pages are at {spark.sparkContext.uiWebUrl}")
        run(spark, store, options, report, stop, say, lock)
    if not as_json:
        show(["loaded", "count"], [[name.replace("_", " "), value] for name, value in totals.items()])


@command.command("refresh", epilog=examples("refresh --lake lake", "refresh --lake lake --hours 48"))
@lake_option
@click.option(
    "--hours",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="How many hours the planner's inputs cover.",
)
@models_option
@master_option
@memory_option
@conf_option
@json_option
@click.pass_context
def refresh_command(
    context: click.Context,
    lake: str,
    hours: int,
    models: Path | None,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Bring the statistics up to date now; `run` does so every 30 seconds.

    Exit status 1: a table of your own could not be made.
    """
    from metromq.pipeline import lake_or_usage_error, read_models, refresh, refresh_own

    store = lake_or_usage_error(lake)
    own = read_models(models) if models is not None else []
    failures: list[str] = []
    with spark_session(master, memory, conf) as spark:
        changed = refresh(spark, store, hours) + refresh_own(spark, store, own, failures.append)
    output(as_json, ["changed"], [{"table": name} for name in changed])
    for text in failures:
        click.echo(text, err=True)
    if failures:
        context.exit(1)


@command.command("tables", epilog=examples("tables --lake lake", "tables --lake lake --json"))
@lake_option
@json_option
def tables_command(lake: str, as_json: bool) -> None:
    """List the tables of a lake, your own ones too."""
    from metromq.pipeline import lake_or_usage_error, tables

    found = [asdict(item) for item in tables(lake_or_usage_error(lake))]
    if as_json:
        click.echo(json.dumps(found))
    else:
        columns = ("table", "rows", "files", "purpose")
        show(columns, [[row[name] for name in columns] for row in found])


@command.command(
    "what-if",
    epilog=examples(
        "what-if --lake lake                                          every choice, the latest day",
        "what-if --lake lake --routing central,geographic --day 2026-08-01 --city city.toml",
        "what-if --lake lake --city geographic --html costs.html",
    ),
)
@lake_option
@click.option("--routing", default="", metavar="A,B,C", help="Choices to compare. Default: all.")
@click.option("--day", type=click.DateTime(["%Y-%m-%d"]), help="A recorded day. Default: the latest.")
@click.option(
    "--city",
    "city_name",
    metavar="CITY",
    help="A TOML file or the name of a preset, for areas, sites and the central broker.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="Recorded days to look at, to tell how sure the recommendation is.",
)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write a page for a browser.")
@master_option
@memory_option
@conf_option
@json_option
def what_if_command(
    lake: str,
    routing: str,
    day: datetime | None,
    city_name: str | None,
    days: int,
    html: Path | None,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compute what a recorded day would have cost with each routing choice and delegation policy, and recommend one."""
    from metromq.control import city_named
    from metromq.pipeline import CHOICES, lake_or_usage_error, recommend, recorded_days, what_if

    store = lake_or_usage_error(lake)
    city = city_named(city_name, os.environ) if city_name else None
    choices = [name.strip() for name in routing.split(",") if name.strip()] or list(CHOICES)
    seen = recorded_days(store, day.date() if day else None)[-days:]
    with spark_session(master, memory, conf) as spark:
        by_day = {each: what_if(spark, store, choices, each, city) for each in seen}
    costs = by_day[seen[-1]]
    found = recommend(by_day, city, city_name or "")
    if html is not None:
        html.write_text(page(costs, found, f"What if? {seen[-1]}"))
    if as_json:
        advice = asdict(found) | {"day": found.day.isoformat()} if found is not None else None
        rows = [asdict(cost) | {"messages_between": cost.messages_between} for cost in costs]
        best = found.routing if found is not None else None
        click.echo(json.dumps([item | {"recommended": advice if item["choice"] == best else None} for item in rows]))
        return
    show(COST_COLUMNS, [cost_row(cost) for cost in costs])
    console = Console()
    for line in ("", "messages between sites", *bars(costs, console.width), ""):
        click.echo(line)
    if found is not None:
        click.echo(found.sentence)
        click.echo(found.apply)


data_option = click.option(
    "--data",
    multiple=True,
    metavar="[BROKER=]DIR",
    help="Data directory of a broker, or one that holds several; by default, where recorders on this machine wrote.",
)


@command.command("check", epilog=examples("check --lake lake", "check --lake lake --json"))
@lake_option
@click.option("--landing", help="Landing area, if not in the lake.")
@data_option
@click.option("--offsets-only", is_flag=True, help="Do not compare rows with the journals: quick.")
@json_option
@click.pass_context
def check_command(
    context: click.Context, lake: str, landing: str | None, data: tuple[str, ...], offsets_only: bool, as_json: bool
) -> None:
    """Find gaps in the offsets of every broker, and rows that differ from its journal.

    Exit status: 1 if anything is missing, doubled or wrong, otherwise 0.
    """
    from metromq.pipeline import Landing, check, lake_or_usage_error, named_journals, noted_journals

    store = lake_or_usage_error(lake)
    area = Landing(landing or store.landing)
    journals = None if offsets_only else noted_journals(area) | named_journals(area, data)
    found = check(store, area, journals)
    if as_json:
        click.echo(json.dumps([asdict(item) | {"whole": item.whole} for item in found]))
    else:
        columns = ["broker", "rows", "first", "last", "repeated", "expired", "compared", "wrong", "gaps"]
        show(*_with_journals(columns, [_check_row(item) for item in found], [item.journal for item in found]))
        for item in found:
            if item.content is not None:
                say_content(item.broker, item.content, lake, data)
    if not all(item.whole for item in found):
        context.exit(1)


def _check_row(item: "BrokerCheck") -> list[Any]:
    content = item.content
    judged = ["", ""] if content is None else [content.compared, count_of(content.wrong + content.foreign)]
    counts = [item.rows, item.first, item.last, item.repeated, item.expired]
    return [item.broker, *counts, *judged, _gaps(item.gaps)]


def _with_journals(columns: list[str], rows: list[list[Any]], journals: list[str]) -> tuple[list[str], list[list[Any]]]:
    """The journal beside the broker, where a broker has had several: its data directory was replaced."""
    if len({row[0] for row in rows}) == len(rows):
        return columns, rows
    pairs = zip(rows, journals, strict=True)
    return [columns[0], "journal", *columns[1:]], [[row[0], journal, *row[1:]] for row, journal in pairs]


@command.command("repair", epilog=examples("repair --lake lake", "repair --lake lake --data b1=/mnt/b1"))
@lake_option
@click.option("--landing", help="Landing area, when it is not in the lake.")
@data_option
@master_option
@memory_option
@conf_option
@json_option
@click.pass_context
def repair_command(
    context: click.Context,
    lake: str,
    landing: str | None,
    data: tuple[str, ...],
    master: str,
    memory: str,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write rows that differ from the journal again; all others stay. `refresh` then makes the statistics anew.

    Exit status 1: something is still wrong.
    """
    from metromq.pipeline import Landing, lake_or_usage_error, named_journals, noted_journals, repair

    store = lake_or_usage_error(lake)
    area = Landing(landing or store.landing)
    journals = noted_journals(area) | named_journals(area, data)
    if not journals:
        raise UsageError("no journal is at hand: name the brokers' data directories with --data DIR")
    with spark_session(master, memory, conf) as spark:
        done = repair(spark, store, journals)
    if as_json:
        click.echo(json.dumps([asdict(item) for item in done]))
    else:
        columns = ["broker", "written again", "still wrong", "not in the journal"]
        rows = [[item.broker, item.rows, count_of(item.left.wrong), count_of(item.left.gone)] for item in done]
        show(*_with_journals(columns, rows, [item.journal for item in done]))
        for item in done:
            say_content(item.broker, item.left, lake, data)
    if not all(item.left.right for item in done):
        context.exit(1)


def _gaps(gaps: Sequence[Any]) -> str:
    return ", ".join(f"{gap.first}..{gap.last} {gap.why}" for gap in gaps) or "none"


@command.command("compact", epilog=examples("compact --lake lake", "compact --lake lake --keep-hours 0"))
@lake_option
@click.option(
    "--keep-hours", type=click.IntRange(min=0), default=24, show_default=True, help="Hours to keep replaced files."
)
@json_option
def compact_command(lake: str, keep_hours: int, as_json: bool) -> None:
    """Merge the small files of every table. `run` may keep running meanwhile."""
    from metromq.pipeline import compact, lake_or_usage_error

    done = compact(lake_or_usage_error(lake), keep_hours=keep_hours)
    output(as_json, ["table", "files before", "files after"], [asdict(item) for item in done])


@command.command(
    "expire", epilog=examples("expire --lake lake --older-than 30d", "expire --lake lake --older-than 12w --statistics")
)
@lake_option
@click.option("--older-than", required=True, metavar="AGE", help="For example 30d, 12w or 48h; deletes whole days.")
@click.option("--statistics", is_flag=True, help="Delete statistics too, not only messages and telemetry.")
@click.option(
    "--keep-hours", type=click.IntRange(min=0), default=24, show_default=True, help="Hours to keep removed files."
)
@json_option
def expire_command(lake: str, older_than: str, statistics: bool, keep_hours: int, as_json: bool) -> None:
    """Delete old days."""
    from metromq.pipeline import expire, lake_or_usage_error

    done = expire(lake_or_usage_error(lake), age(older_than), datetime.now(UTC), statistics, keep_hours)
    output(as_json, ["table", "files", "rows"], [asdict(item) for item in done])


@command.command(
    "sql",
    epilog=examples(
        'sql --lake lake "SELECT topic, count(*) FROM messages GROUP BY topic"',
        'sql --lake lake "SELECT * FROM popularity" --limit 10 --json',
        'sql --lake lake --spark "SELECT json:unit::string FROM messages"',
    ),
)
@click.argument("query")
@lake_option
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Maximum number of rows to print."
)
@click.option("--spark", "only_spark", is_flag=True, help="Ask Spark, even if DuckDB could answer.")
@master_option
@memory_option
@conf_option
@json_option
def sql_command(
    query: str,
    lake: str,
    limit: int,
    only_spark: bool,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Query the tables of a lake.

    DuckDB answers plain questions within a second or two. Questions that only Spark understands, or that DuckDB would
    understand otherwise, start Spark, which takes several seconds. A line on standard error says who answered.
    """
    from metromq.pipeline import NotPlain, ask, ask_quickly, lake_or_usage_error

    store = lake_or_usage_error(lake)
    began = time.monotonic()
    engine, why = "DuckDB", "--spark"
    try:
        if only_spark:
            raise NotPlain(why)
        answer = ask_quickly(store, query, limit, memory)
    except NotPlain as reason:
        engine, why = "Spark", str(reason) if only_spark else f"the question has {reason}"
        with spark_session(master, memory, conf) as spark:
            answer = ask(spark, store, query, limit)
    output(as_json, answer.columns, answer.rows)
    because = f" ({why})" if engine == "Spark" else ""
    click.echo(f"{engine} answered in {time.monotonic() - began:.1f} s{because}", err=True)


def metrics_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--metrics {text}: must be HOST:PORT, for example 127.0.0.1:9884")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


@contextmanager
def metrics_served(progress: "Progress", where: tuple[str, int] | None, say: Callable[[str], None]) -> Iterator[None]:
    from metromq.pipeline import serve_metrics

    if where is None:
        yield
        return
    try:
        close, port = serve_metrics(progress, *where)
    except OSError as error:
        raise UsageError(f"--metrics {where[0]}:{where[1]}: {error.strerror}; take another address") from error
    say(f"metrics are at http://{where[0]}:{port}/metrics")
    try:
        yield
    finally:
        close()


@contextmanager
def progress_shown(console: Console, progress: "Progress") -> Iterator[None]:
    """One line at the bottom of a terminal, every second."""
    end = threading.Event()
    with console.status(progress.line()) as status:

        def follow() -> None:
            while not end.wait(1.0):
                status.update(escape(progress.line()))

        worker = threading.Thread(target=follow, name="metromq-progress", daemon=True)
        worker.start()
        try:
            yield
        finally:
            end.set()
            worker.join()


@contextmanager
def spark_session(master: str, memory: str, conf: Sequence[str]) -> Iterator["SparkSession"]:
    from metromq.pipeline import spark

    wrong = [item for item in conf if "=" not in item]
    if wrong:
        raise UsageError(f"--conf {wrong[0]}: must be KEY=VALUE")
    with Console(stderr=True).status("starting Spark"):
        session = spark.start(master, memory, settings=dict(item.split("=", 1) for item in conf))
    try:
        yield session
    finally:
        spark.stop(session)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM ask the work to end well."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def age(text: str) -> timedelta:
    """`30d` and the like."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdigit():
        raise UsageError(f"--older-than {text!r}: must be a number followed by m, h, d or w, for example 30d")
    return timedelta(**{_UNITS[unit]: int(number)})


def output(as_json: bool, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    if as_json:
        click.echo(json.dumps(list(rows), default=plain))
    else:
        show(columns, [list(row.values()) for row in rows])


def plain(value: Any) -> Any:
    """What JSON does not know, and people want to read: bytes as text, moments in ISO 8601, the rest as it prints."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = any(_NUMBER.fullmatch(str(row[index])) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text("" if value is None else str(plain(value))) for value in row))
    Console().print(table)
