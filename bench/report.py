"""Results as a table for people and as JSON for programs."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.generator import CPU
from bench.machine import Shares
from bench.marks import AIM, SOURCE, Mark
from bench.scenarios import Scenario, Target

BOUND_SHARE = 0.93  # a generator this busy beside a broker that is less so was the limit itself


@dataclass(frozen=True, slots=True)
class Run:
    """One broker in one scenario in one round."""

    scenario: str
    peer: str
    family: str
    round: int
    values: dict[str, float]
    lost: int
    shares: Shares
    histogram: dict[str, int] = field(default_factory=dict)  # of latencies: upper bound in microseconds -> messages


@dataclass(frozen=True, slots=True)
class Line:
    """One value of one scenario, over all rounds."""

    scenario: str
    title: str
    value: str
    unit: str
    medians: dict[str, float]  # by family; the better of a family's settings
    target: str
    ratio: float | None
    met: bool | None
    notes: tuple[str, ...]


def lines(scenarios: Sequence[Scenario], runs: Sequence[Run]) -> list[Line]:
    found: list[Line] = []
    by_name: dict[str, Line] = {}
    for scenario in scenarios:
        mine = [run for run in runs if run.scenario == scenario.name]
        values = {name for run in mine for name in run.values} - {CPU}
        for value in sorted(values, reverse=scenario.durability == "fsync"):
            line = _line(scenario, value, mine, by_name)
            by_name.setdefault(scenario.name, line)
            found.append(line)
    return found


def _line(scenario: Scenario, value: str, runs: Sequence[Run], earlier: Mapping[str, Line]) -> Line:
    target = scenario.targets.get(value)
    less_is_better = scenario.unit in ("us", "bytes")
    medians: dict[str, float] = {}
    for peer in dict.fromkeys((run.peer, run.family) for run in runs):
        middle = median([run.values[value] for run in runs if run.peer == peer[0]])
        best = medians.get(peer[1])
        if best is None or (middle < best) == less_is_better:
            medians[peer[1]] = middle
    own = medians.get("metromq", medians.get("pure"))
    base = medians.get("mosquitto")
    ratio = own / base if own is not None and base else None
    title = scenario.title if value == "rate" or len(scenario.targets) == 1 else f"{scenario.title}, {value}"
    if value == "disk":
        title, target = "  the disk's own fdatasync rate", None
    text, met = _judged(target, own, medians, earlier)
    unit = "syncs/s" if value == "disk" else scenario.unit
    return Line(scenario.name, title, value, unit, medians, text, ratio, met, _notes(runs))


def _judged(
    target: Target | None, own: float | None, medians: Mapping[str, float], earlier: Mapping[str, Line]
) -> tuple[str, bool | None]:
    if target is None or own is None:
        return "", None
    sign = "<=" if target.at_most else ">="
    if not target.relative_to:
        text, limit = f"{sign} {target.limit:,.0f}", target.limit
    elif target.relative_to == "mosquitto":
        text = f"{sign} {target.limit:g}x"
        if "mosquitto" not in medians:
            return text, None
        limit = target.limit * medians["mosquitto"]
    else:
        text = f"{sign} {target.limit:.0%} of {target.relative_to}"
        other = earlier.get(target.relative_to)
        reference = None if other is None else other.medians.get("metromq", other.medians.get("pure"))
        if reference is None:
            return text, None
        text = f"{text} ({own / reference:.0%})"
        limit = target.limit * reference
    return text, own <= limit if target.at_most else own >= limit


def _notes(runs: Sequence[Run]) -> tuple[str, ...]:
    notes: list[str] = []
    for peer in dict.fromkeys(run.peer for run in runs):
        own = [run for run in runs if run.peer == peer]
        lost = sum(run.lost for run in own)
        if lost:
            notes.append(f"{peer} lost {lost:,}")
        if own[0].family == "metromq" and "latency" not in own[0].scenario:
            bound = median([run.shares.generator for run in own])
            if bound > BOUND_SHARE and median([run.shares.broker for run in own]) < bound - 0.05:
                notes.append("generator-bound")
    timed = [run for run in runs if CPU in run.values]
    spent = {
        name: median([run.values[CPU] for run in timed if run.family == name])
        for name in dict.fromkeys(run.family for run in timed)
    }
    if spent:
        notes.append("CPU us/message: " + ", ".join(f"{name} {value:.2f}" for name, value in spent.items()))
    disturbed = sum(run.shares.disturbed for run in runs)
    if disturbed:
        notes.append(f"* {disturbed}/{len(runs)} on a busy machine")
    return tuple(notes)


def show(console: Console, found: Sequence[Line]) -> None:
    families = [
        name
        for name in ("metromq", "busy poll", "pure", "mosquitto", "nats", "nats own", "zenoh", "amqtt")
        if any(name in line.medians for line in found)
    ]
    table = Table(title="MetroMQ beside its peers (medians; mosquitto: the better of both TCP_NODELAY settings)")
    table.add_column("scenario")
    for name in families:
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("x mosquitto", justify="right")
    table.add_column("target")
    table.add_column("")
    table.add_column("notes")
    for line in found:
        verdict = "" if line.met is None else "[green]met[/]" if line.met else "[red]missed[/]"
        cells = [f"{line.medians[name]:,.0f}" if name in line.medians else "-" for name in families]
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        table.add_row(line.title, *cells, line.unit, ratio, line.target, verdict, "; ".join(line.notes))
    console.print(table)


def show_marks(console: Console, marks: Sequence[Mark]) -> None:
    table = Table(title=f"MetroMQ and FlashMQ, each as a ratio to mosquitto ({SOURCE})")
    for title in ("scenario", "pipelined", "FlashMQ, published", f"{AIM:g} times that", "MetroMQ, this run", ""):
        table.add_column(title, justify="left" if title in ("scenario", "pipelined", "") else "right")
    for mark in marks:
        verdict = "not measured" if mark.reached is None else "[green]reached[/]" if mark.reached else "[red]missed[/]"
        ours = "-" if mark.ours is None else f"{mark.ours:.2f}"
        aim = f"{AIM * mark.flashmq:.2f}"
        table.add_row(mark.title, mark.pipelined, f"{mark.flashmq:g}", aim, ours, verdict)
    console.print(table)


def write(
    path: Path, found: Sequence[Line], marks: Sequence[Mark], runs: Sequence[Run], missing: Sequence[str]
) -> None:
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    document = {
        "machine": machine,
        "missing": list(missing),
        "lines": [asdict(line) for line in found],
        "flashmq": {"source": SOURCE, "aim": AIM, "rows": [asdict(mark) for mark in marks]},
        "runs": [asdict(run) for run in runs],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
