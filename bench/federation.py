"""Many brokers as one, measured: a stream, a hop, takeover, a move, copies beside mosquitto's bridges, memory."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench import between, moving
from bench.cities import is_compiled
from bench.machine import raise_file_limit
from bench.peers import mosquitto_path
from metromq.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """What issue 3 asks of one value."""

    value: str
    limit: float
    at_most: bool = True

    def is_met(self, found: float) -> bool:
        return found <= self.limit if self.at_most else found >= self.limit


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    title: str
    measure: Callable[[], between.Values]
    targets: tuple[Target, ...] = ()
    rounds: bool = True  # measured several times; the median counts


@dataclass(frozen=True, slots=True)
class Row:
    part: str
    title: str
    value: str
    found: float  # median of the rounds
    rounds: tuple[float, ...]
    target: str
    met: bool | None


def parts(seconds: float, kills: int) -> list[Part]:
    once = [Target(f"{title}: per interested peer", 1.0) for title in ("without area", "own area", "foreign area")]
    soon = (Target("max s", 2.0),)
    found = [
        Part(
            "stream",
            "QoS 0 over one link",
            lambda: between.stream(seconds),
            (Target("messages/s", 200_000, at_most=False), Target("lost", 0)),
        ),
        Part("hop", "one hop at 1,000/s", lambda: between.hop(1000, seconds), (Target("added p99 ms", 5.0),)),
        Part("kill", "takeover, kill -9", lambda: between.takeover(kills, "kill -9", 1), soon, False),
        Part("freeze", "takeover, SIGSTOP", lambda: between.takeover(kills, "SIGSTOP", 2), soon, False),
        Part(
            "move",
            "a session with 10,000 messages moves",
            moving.move,
            (
                Target("all moved s", 2.0),
                Target("others at the old broker, max ms", 50.0),
                Target("others at the new broker, max ms", 50.0),
            ),
        ),
        Part("copies", "between brokers", between.copies, tuple(once), False),
    ]
    if mosquitto_path() is not None:
        found.append(Part("star", "mosquitto, star of bridges", between.star_of_bridges, (), False))
        found.append(Part("mesh", f"mosquitto, mesh, {between.LOOP_S:g} s", between.mesh_of_bridges, (), False))
    found.append(Part("memory", "one of 100,000 remote filters", between.memory, (Target("bytes", 500),), False))
    return found


def rows(part: Part, measured: Sequence[between.Values]) -> list[Row]:
    found: list[Row] = []
    targets = {target.value: target for target in part.targets}
    for value in measured[0]:
        values = tuple(one[value] for one in measured)
        target = targets.get(value)
        text = f"{'<=' if target.at_most else '>='} {target.limit:,g}" if target else ""
        met = target.is_met(median(values)) if target else None
        found.append(Row(part.name, part.title, value, median(values), values, text, met))
    return found


def show(console: Console, found: Sequence[Row], what: str = "between brokers") -> None:
    table = Table(title=f"MetroMQ {what} ({'compiled' if is_compiled() else 'pure'}; medians)")
    for column in ("what", "value"):
        table.add_column(column)
    table.add_column("measured", justify="right")
    for column in ("target", ""):
        table.add_column(column)
    before = ""
    for row in found:
        verdict = "" if row.met is None else "[green]met[/]" if row.met else "[red]missed[/]"
        figure = f"{row.found:,.0f}" if row.found >= 100 else f"{row.found:,.3g}"
        table.add_row(row.title if row.title != before else "", row.value, figure, row.target, verdict)
        before = row.title
    console.print(table)


def write(path: Path, found: Sequence[Row]) -> None:
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    document = {"machine": machine, "compiled": is_compiled(), "rows": [asdict(row) for row in found]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench federation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often streams and hops are measured (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each of them lasts (default 3)")
    parser.add_argument("--kills", type=int, default=5, help="takeovers of each kind (default 5)")
    parser.add_argument(
        "--only", action="append", metavar="PART", help="may be repeated: " + ", ".join(p.name for p in parts(1, 1))
    )
    parser.add_argument("--json", type=Path, default=Path("bench-results-federation.json"), metavar="FILE")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    raise_file_limit()
    known = parts(options.seconds, options.kills)
    unknown = set(options.only or ()) - {part.name for part in known}
    if unknown:
        raise UsageError(f"no part is named {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in known)}")
    chosen = [part for part in known if not options.only or part.name in options.only]
    if mosquitto_path() is None:
        console.print("[yellow]not measured: mosquitto's bridges (Debian package `mosquitto` is not installed)[/]")
    found: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(chosen))
        for part in chosen:
            progress.update(task, description=part.title)
            found += rows(part, [part.measure() for _ in range(options.rounds if part.rounds else 1)])
            progress.advance(task)
    show(console, found)
    write(options.json, found)
    console.print(f"all values are in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
