"""`python -m tests.chaos --seconds 300`: the storm as long as you like, with what it showed at the end."""

import sys
import tempfile
from pathlib import Path

import click

from tests.chaos.storm import storm


@click.command()
@click.option("--seconds", default=300.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(seconds: float, seed: int) -> None:
    with tempfile.TemporaryDirectory() as data:
        verdict = storm(Path(data), seconds, seed, click.echo)
    click.echo(f"faults: {dict(verdict.faults)}")
    for qos in (1, 2):
        click.echo(
            f"QoS {qos}: {verdict.acknowledged[qos]} acknowledged, {verdict.delivered[qos]} deliveries, "
            f"{verdict.repeated[qos]} repeated"
        )
    deliveries = sum(verdict.delivered.values())
    click.echo(f"messages between brokers per delivery: {verdict.between / max(deliveries, 1):.2f}")
    for problem in verdict.problems[:20]:
        click.echo(f"PROBLEM {problem}")
    sys.exit(1 if verdict.problems else 0)


if __name__ == "__main__":
    main()
