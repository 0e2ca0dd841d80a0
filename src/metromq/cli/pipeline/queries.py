"""`metromq pipeline tables`, `sql` and `what-if`: what the tables say."""

import json
import os
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console

from metromq.cli.costs import COLUMNS as COST_COLUMNS
from metromq.cli.costs import bars, page
from metromq.cli.costs import row as cost_row
from metromq.cli.pipeline.options import (
    conf_option,
    examples,
    json_option,
    lake_option,
    light_conf,
    master_option,
    memory_option,
    spark_session,
)
from metromq.cli.pipeline.printing import output, show
from metromq.errors import UsageError


@click.command("tables", epilog=examples("tables --lake lake", "tables --lake lake --json"))
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


@click.command(
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
    from metromq.pipeline import NotPlain, ask, ask_quickly, lake_or_usage_error, tables
    from metromq.pipeline import spark as spark_start

    store = lake_or_usage_error(lake)
    began = time.monotonic()
    engine, why = "DuckDB", "--spark"
    try:
        if only_spark:
            raise NotPlain(why)
        answer = ask_quickly(store, query, limit, memory)
    except NotPlain as reason:
        engine, why = "Spark", str(reason) if only_spark else f"the question has {reason}"
        few = light_conf(sum(table.rows for table in tables(store)), spark_start.FEW_TO_READ)
        with spark_session(master, memory, [*few, *conf]) as spark:
            answer = ask(spark, store, query, limit)
    output(as_json, answer.columns, answer.rows)
    because = f" ({why})" if engine == "Spark" else ""
    click.echo(f"{engine} answered in {time.monotonic() - began:.1f} s{because}", err=True)


@click.command(
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
    from metromq.pipeline import CHOICES, check_choices, lake_or_usage_error, recommend, recorded_days, tables, what_if

    store = lake_or_usage_error(lake)
    city = city_named(city_name, os.environ) if city_name else None
    choices = list(dict.fromkeys(name.strip() for name in routing.split(",") if name.strip())) or list(CHOICES)
    check_choices(choices)  # what cannot be is said before Spark starts
    if html is not None and not html.absolute().parent.is_dir():
        raise UsageError(f"--html {html}: there is no directory {html.parent}")
    seen = recorded_days(store, day.date() if day else None)[-days:]
    few = light_conf(sum(table.rows for table in tables(store)))
    with spark_session(master, memory, [*few, *conf]) as spark:
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
