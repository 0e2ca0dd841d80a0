"""`metromq pipeline check`, `repair`, `compact`, `expire` and `prepare`: a lake kept in order, and Spark quick."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from metromq.cli.contents import count_of, say_content
from metromq.cli.pipeline.options import (
    conf_option,
    data_option,
    examples,
    json_option,
    lake_option,
    master_option,
    memory_option,
    spark_session,
)
from metromq.cli.pipeline.printing import output, show
from metromq.errors import UsageError

if TYPE_CHECKING:
    from metromq.pipeline import BrokerCheck

_OLDEST = timedelta(days=365_000)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command("check", epilog=examples("check --lake lake", "check --lake lake --json"))
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


@click.command("repair", epilog=examples("repair --lake lake", "repair --lake lake --data b1=/mnt/b1"))
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


@click.command("compact", epilog=examples("compact --lake lake", "compact --lake lake --keep-hours 0"))
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


@click.command(
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


def age(text: str) -> timedelta:
    """`30d` and the like."""
    number, unit = text[:-1], text[-1:]
    whole = number.isascii() and number.isdecimal() and len(number) < 10
    span = int(number) * timedelta(**{_UNITS[unit]: 1}) if whole and unit in _UNITS else None
    if span is None or span > _OLDEST:
        raise UsageError(
            f"--older-than {text!r}: must be a number followed by m, h, d or w, for example 30d; at most 1000 years"
        )
    return span


@click.command("prepare", epilog=examples("prepare"))
@memory_option
@click.option("--in-background", is_flag=True, hidden=True, help="Let everybody else go first.")
def prepare_command(memory: str, in_background: bool) -> None:
    """Make Spark start in half the time on this machine; once is enough for every lake.

    Java keeps the classes that Spark loads in an archive (180 MB) in your cache directory. The first command that
    starts Spark has it made in the background; this one makes it now, or anew. Delete it when you like: it does not
    come back by itself.
    """
    from metromq.pipeline import make_class_archive

    if in_background:
        os.nice(19)
    with Console(stderr=True).status("starting Spark, and keeping its classes"):
        archive = make_class_archive(memory)
    click.echo(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB; Spark takes it from now on")
