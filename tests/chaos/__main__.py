"""`python -m tests.chaos --seeds 20`: storms on live brokers; `--steady 300`: the older one, with steady traffic."""

import sys
import tempfile
from pathlib import Path

import click

from metromq.lab.storm.command import breaches_of, rule_of
from metromq.lab.storm.history import COORDINATIONS, PLAYED, RESTLESS, History, parse_history
from metromq.lab.storm.shrinking import shrunk
from tests.chaos.brokers import FAKETIME
from tests.chaos.playing import STEPS, breaches_live, live_history, play_live
from tests.chaos.steady import storm


@click.command()
@click.option("--seeds", default=20, show_default=True, help="How many storms.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--steps", default=STEPS, show_default=True)
@click.option("--routing", type=click.Choice((*PLAYED, RESTLESS)), help="Of every storm; otherwise each draws one.")
@click.option(
    "--coordination",
    type=click.Choice(COORDINATIONS),
    help="zookeeper: on three servers with faults of their own; workers: the same, with coordination workers.",
)
@click.option("--jobs", default=4, show_default=True, help="Cities at a time.")
@click.option("--save", type=click.Path(path_type=Path), default=Path("build/chaos"), show_default=True)
@click.option("--shrink", default=0, metavar="PLAYS", help="Shrink what fails, with at most so many plays of it.")
@click.option("--replay", type=click.Path(path_type=Path, exists=True), help="Play this story instead.")
@click.option("--steady", "seconds", type=float, help="Nine brokers under steady traffic instead, for so many seconds.")
def main(
    seeds: int,
    first: int,
    steps: int,
    routing: str | None,
    coordination: str | None,
    jobs: int,
    save: Path,
    shrink: int,
    replay: Path | None,
    seconds: float | None,
) -> None:
    """Kills, freezes, cuts and wrong clocks on live brokers with paho's clients; the contract's judge looks on."""
    if seconds is not None:
        sys.exit(_steady(seconds, first))
    if FAKETIME is None:
        click.echo("Clocks stay right: there is no libfaketime (Debian: apt install faketime).")
    if replay is not None:
        found = breaches_live(parse_history(replay.read_text(encoding="utf-8"), replay.name))
        click.echo("\n".join(found) or "The contract was kept.")
        sys.exit(1 if found else 0)
    failed = 0
    histories = [live_history(seed, steps, routing or "", coordination or "") for seed in range(first, first + seeds)]
    for number, (history, breaches) in enumerate(play_live(histories, jobs), 1):
        verdict = f"{len(breaches)} breaches {breaches[0] if breaches else ''}"
        click.echo(f"{number} of {seeds}: seed {history.seed}: {verdict}")
        if breaches:
            failed += 1
            _tell(history, breaches, save, shrink)
    click.echo(f"{seeds - failed} kept the contract, {failed} did not")
    sys.exit(1 if failed else 0)


def _tell(history: History, breaches: list[str], save: Path, shrink: int) -> None:
    """Writes the story down; when the simulator fails by the same rule, it is the faster place to look."""
    rule = rule_of(breaches[0])
    if shrink:
        history = shrunk(history, lambda one: rule in map(rule_of, breaches_live(one)), shrink)
    save.mkdir(parents=True, exist_ok=True)
    file = save / f"seed-{history.seed}.txt"
    file.write_text("\n".join((*(f"# {breach}" for breach in breaches), str(history), "")), encoding="utf-8")
    click.echo(f"  python -m tests.chaos --replay {file}")
    if rule in map(rule_of, breaches_of(history)):
        click.echo(f"  The simulator breaks it too: python -m metromq.lab.storm --replay {file}")


def _steady(seconds: float, seed: int) -> int:
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
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    main()
