"""`metromq pipeline clusters`: better clusters for an overlay than the order of arrival gave."""

import dataclasses
import json
import os
from datetime import datetime
from pathlib import Path

import click

from metromq.cli.pipeline.options import (
    conf_option,
    examples,
    json_option,
    lake_option,
    master_option,
    memory_option,
    spark_session,
)


@click.command(
    "clusters",
    epilog=examples(
        "clusters --lake lake --city city.toml                       what better clusters would save",
        "clusters --lake lake --city city.toml --save clusters.json  and the proposal, for metromq recluster",
    ),
)
@lake_option
@click.option("--city", "city_name", metavar="CITY", required=True, help="A TOML file or the name of a preset.")
@click.option("--day", type=click.DateTime(["%Y-%m-%d"]), help="A recorded day. Default: the latest.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the proposal there; if one is there, only topics that are used differently are counted again.",
)
@master_option
@memory_option
@conf_option
@json_option
def clusters_command(
    lake: str,
    city_name: str,
    day: datetime | None,
    save: Path | None,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Propose clusters for the topics of a city with routing = "overlay", from a recorded day."""
    from metromq.control import city_named
    from metromq.pipeline import lake_or_usage_error, propose_clusters, read_proposal, save_proposal

    store, city = lake_or_usage_error(lake), city_named(city_name, os.environ)
    before = read_proposal(save) if save is not None and save.is_file() else None
    with spark_session(master, memory, conf) as spark:
        found = propose_clusters(spark, store, city, day.date() if day is not None else None, before)
    if save is not None:
        save_proposal(found, save)
    if as_json:
        click.echo(json.dumps({"day": found.day, "counted": found.counted, **dataclasses.asdict(found.gain)}))
        return
    click.echo(found.gain.sentence)
    if save is not None and found.gain.better:
        click.echo(f"To see what would change in the running city: metromq recluster {save} --dry-run")
