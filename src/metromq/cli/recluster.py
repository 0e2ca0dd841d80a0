"""`metromq recluster`: gives topics of a running overlay the clusters that `metromq pipeline clusters` proposed."""

import asyncio
import json
from pathlib import Path

import click

from metromq.control import DEFAULT_DATA, recluster

EPILOG = """\b
Examples:
  metromq recluster clusters.json --dry-run    what would change
  metromq recluster clusters.json              change it

\b
No message is lost or doubled: clusters decide which ways messages take, not who gets them. Messages that are under way
may be overtaken by later ones that take a new way. docs/overlay.md says more.
"""


@click.command("recluster", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory, as given to `up`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(file: Path, dry_run: bool, data: Path, as_json: bool) -> None:
    """Change clusters, leaders and choices of a running city to those in FILE."""
    from metromq.pipeline import read_proposal

    proposal = read_proposal(file)
    topics = {
        one.topic: {"clusters": dict(one.clusters), "leaders": dict(one.leaders), "feeds": dict(one.feeds)}
        for one in proposal.topics
        if one.is_better
    }
    changes = asyncio.run(recluster(data, topics, not dry_run))
    if as_json:
        click.echo(json.dumps(changes))
        return
    for change in changes:
        click.echo(change.sentence)
    done = "would change" if dry_run else "were changed"
    click.echo(f"{len(changes)} facts {done}, of {len(topics)} topics. {proposal.gain.sentence}")
