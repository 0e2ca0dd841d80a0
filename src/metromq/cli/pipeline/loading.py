"""`metromq pipeline record`, `run` and `refresh`: from journals to tables."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from metromq.cli.pipeline.options import (
    conf_option,
    examples,
    json_option,
    lake_option,
    light_conf,
    master_option,
    memory_option,
    models_option,
    spark_session,
    stop_on_signals,
)
from metromq.cli.pipeline.printing import output, show
from metromq.errors import MetroError, UsageError

if TYPE_CHECKING:
    from metromq.pipeline import Landing, Progress, Taken


@click.command(
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
    with stop_on_signals() as stop, ExitStack() as stack:
        if once:
            stop.set()  # nor is another recorder waited for: that of a broker would never end
        stack.enter_context(recorder_lock(data, stop))
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


@click.command(
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
        spark_session(master, memory, [*light(area, once), *conf]) as spark,
        progress_shown(console, progress) if live else nullcontext(),
    ):
        if ui:
            say(f"Spark's pages are at {spark.sparkContext.uiWebUrl}")
        run(spark, store, options, report, stop, say, lock)
    if not as_json:
        show(["loaded", "count"], [[name.replace("_", " "), value] for name, value in totals.items()])


@click.command("refresh", epilog=examples("refresh --lake lake", "refresh --lake lake --hours 48"))
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
    from metromq.pipeline import lake_or_usage_error, read_models, refresh, refresh_own, tables

    store = lake_or_usage_error(lake)
    own = read_models(models) if models is not None else []
    failures: list[str] = []
    few = light_conf(sum(table.rows for table in tables(store)))
    with spark_session(master, memory, [*few, *conf]) as spark:
        changed = refresh(spark, store, hours) + refresh_own(spark, store, own, failures.append)
    output(as_json, ["changed"], [{"table": name} for name in changed])
    for text in failures:
        click.echo(text, err=True)
    if failures:
        context.exit(1)


def light(area: "Landing", once: bool) -> list[str]:
    return light_conf(sum(file.rows for file in area.files())) if once else []


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
