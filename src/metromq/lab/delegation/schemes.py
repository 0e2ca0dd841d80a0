"""Figs. 8-16 of the delegation paper: six schemes at the paper's size, by counting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from metromq.lab.delegation.architecture import (
    SCHEMES,
    Demand,
    Scheme,
    Setting,
    broker_messages,
    draw,
    external,
    table_bytes,
)
from metromq.lab.intervals import Sample, of_mean
from metromq.lab.report import Points, PublishedRow, Report, RunOptions, Trend, compare

Curves = dict[str, dict[float, float]]
Metric = Callable[[Scheme, Demand], float]
CENTRALIZED = 300_000  # printed
TWICE = 2.0  # printed: LP over the others with 0.5 subscribers per topic
EQUAL = 0.02
NEARLY = 0.1

LOCALITIES = (5.0, *(float(x) for x in range(10, 101, 10)))
TOPICS = tuple(range(50, 401, 50))
ZIPFS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is varied: a label, and the settings by the value on the axis."""

    label: str
    settings: dict[float, Setting]


SWEEPS = (
    Sweep("subscription locality, %", {x: Setting(locality=x / 100) for x in LOCALITIES}),
    Sweep("subscribers per topic", {n / 100: Setting(topics=n) for n in TOPICS}),
    Sweep("popularity concentration K", {k: Setting(zipf=k) for k in ZIPFS}),
)
METRICS: tuple[tuple[str, Metric], ...] = (
    ("external messages/s", external),
    ("messages/s per distributed broker", broker_messages),
    ("subscription table, bytes per distributed broker", table_bytes),
)
FIRST_FIGURE = 8


def run_schemes(name: str, options: RunOptions) -> Report:
    """Figs. 8, 9, 10 vary the locality, 11 to 13 the subscribers per topic, 14 to 16 the popularity."""
    number = int(name.rpartition("fig")[2]) - FIRST_FIGURE
    sweep, (y_label, metric) = SWEEPS[number // len(METRICS)], METRICS[number % len(METRICS)]
    samples: dict[str, dict[float, Sample]] = {}
    instances = options.instances or 1
    for done, (x, setting) in enumerate(sweep.settings.items()):
        options.progress(done, len(sweep.settings))
        found: dict[str, list[float]] = {}
        for instance in range(instances):
            demand = draw(setting, np.random.default_rng((options.seed, instance, done)))
            for scheme in _shown(metric):
                found.setdefault(scheme, []).append(metric(SCHEMES[scheme], demand))
        for scheme, values in found.items():
            samples.setdefault(scheme, {})[x] = of_mean(values)
    curves = {scheme: {x: sample.value for x, sample in points.items()} for scheme, points in samples.items()}
    series: dict[str, Points] = {scheme: sorted(points.items()) for scheme, points in curves.items()}
    return Report(
        name,
        series,
        published(number, curves),
        sweep.label,
        y_label,
        NOTES,
        samples=samples,
        trends=trends(number, curves),
        published_points={"centralized": [(x, CENTRALIZED) for x in curves["centralized"]]} if number == 0 else {},
    )


def _shown(metric: Metric) -> Sequence[str]:
    """Where there is only a central broker there is none to count for."""
    return tuple(SCHEMES) if metric is external else tuple(name for name in SCHEMES if name != "centralized")


def published(number: int, curves: Curves) -> list[PublishedRow]:
    if number == 0:
        return [compare("centralized, external messages/s", CENTRALIZED, curves["centralized"][50.0], matches=0.0)]
    if number == 3:
        ratio = curves["LP"][0.5] / curves["NS"][0.5]
        return [compare("LP over NS, external messages/s at 0.5 subscribers per topic", TWICE, ratio)]
    return []


def _same(one: dict[float, float], other: dict[float, float]) -> bool:
    return all(abs(one[x] - other[x]) <= EQUAL * max(other[x], 1.0) for x in one)


def _grows(points: dict[float, float], sign: int = 1) -> bool:
    ordered = [y for _, y in sorted(points.items())]
    return sign * (ordered[-1] - ordered[0]) > 0


Rule = tuple[str, str, bool]  # what the text says, how we read it, whether it holds


def trends(number: int, curves: Curves) -> list[Trend]:
    """What the text says in words."""
    return [Trend(name, rule, _ends(curves), holds) for name, rule, holds in RULES[number](curves)]


def _fig8(curves: Curves) -> list[Rule]:
    return [
        ("SF, EMMA and EP are the same", "within 2 % everywhere", _equal_external(curves)),
        ("at 100 % locality only LP has traffic", "all others 0", _only_lp(curves)),
        ("at 5 % LP is similar to centralized", "within 10 %", _near(curves["LP"], curves["centralized"], 5.0)),
    ]


def _fig9(curves: Curves) -> list[Rule]:
    return [("LP is the lowest", "everywhere", _lowest(curves, "LP")), ("NS, EP under EMMA", "at 5 %", _under(curves))]


def _fig10(curves: Curves) -> list[Rule]:
    largest = all(y >= max(other[x] for other in curves.values()) for x, y in curves["SF"].items())
    return [
        ("SF is the largest", "everywhere", largest),
        _lp_like_ns(curves),
        ("EMMA is much larger than the proposal at low locality", "than EP, twice, at 5 %", _times(curves, 5.0) > 2),
        ("EMMA is smaller than the proposal at high locality", "than EP, at 90 %", _times(curves, 90.0) < 1),
    ]


def _fig11(curves: Curves) -> list[Rule]:
    return [
        ("EMMA and EP are the same", "within 2 %", _same(curves["EP"], curves["EMMA"])),
        (
            "at 3.9 subscribers NS and LP are nearly the same",
            "within 10 %, at 4",
            _near(curves["NS"], curves["LP"], 4.0),
        ),
    ]


def _fig12(curves: Curves) -> list[Rule]:
    return [("EMMA grows faster than EP", "from 0.5 to 4", _steeper(curves))]


def _fig13(curves: Curves) -> list[Rule]:
    return [_lp_like_ns(curves), ("EMMA grows faster than EP", "from 0.5 to 4", _steeper(curves))]


def _fig14(curves: Curves) -> list[Rule]:
    alike = _same(curves["EP"], curves["EMMA"]) and _grows(curves["EP"], -1)
    return [
        ("EMMA and EP are the same, and fall with K", "within 2 %; from 0.1 to 2", alike),
        ("LP rises with K", "from 0.1 to 2", _grows(curves["LP"])),
        ("NS falls with K", "from 0.1 to 2", _grows(curves["NS"], -1)),
    ]


def _fig15(curves: Curves) -> list[Rule]:
    return [
        ("EP rises with K", "from 0.1 to 2", _grows(curves["EP"])),
        ("LP falls with K", "from 0.1 to 2", _grows(curves["LP"], -1)),
        ("EMMA falls with K", "from 0.1 to 2", _grows(curves["EMMA"], -1)),
    ]


def _fig16(curves: Curves) -> list[Rule]:
    return [("tables shrink with K", "from 0.1 to 2, all schemes", all(_grows(c, -1) for c in curves.values()))]


RULES: tuple[Callable[[Curves], list[Rule]], ...] = (
    *(_fig8, _fig9, _fig10),
    *(_fig11, _fig12, _fig13),
    *(_fig14, _fig15, _fig16),
)


def _lp_like_ns(curves: Curves) -> Rule:
    return "LP and NS are the same", "within 2 %", _same(curves["LP"], curves["NS"])


def _times(curves: Curves, x: float) -> float:
    return curves["EMMA"][x] / curves["EP"][x]


def _equal_external(curves: Curves) -> bool:
    return _same(curves["SF"], curves["EMMA"]) and _same(curves["EP"], curves["EMMA"])


def _only_lp(curves: Curves) -> bool:
    return curves["LP"][100.0] > 0 and not any(curves[name][100.0] for name in ("SF", "EMMA", "NS", "EP"))


def _near(one: dict[float, float], other: dict[float, float], x: float) -> bool:
    return abs(one[x] / other[x] - 1) <= NEARLY


def _lowest(curves: Curves, name: str) -> bool:
    return all(y <= min(other[x] for other in curves.values()) for x, y in curves[name].items())


def _under(curves: Curves) -> bool:
    return curves["EP"][5.0] < curves["EMMA"][5.0] and curves["NS"][5.0] < curves["EMMA"][5.0]


def _steeper(curves: Curves) -> bool:
    return curves["EMMA"][4.0] - curves["EMMA"][0.5] > curves["EP"][4.0] - curves["EP"][0.5]


def _ends(curves: Curves) -> str:
    shown = {name: sorted(points.items()) for name, points in curves.items()}
    return ", ".join(f"{name} {points[0][1]:,.0f} to {points[-1][1]:,.0f}" for name, points in shown.items())


NOTES = (
    "10 networks, 10,000 publishers each at 1 message/s, 100 subscribers each with 200 different topics",
    "chosen, not printed: a subscriber of other networks' topics takes any other network alike, and by Zipf the rank "
    "within that network",
    "chosen: SF keeps every subscription at every broker, EMMA those to topics that somebody outside wants; a "
    "delegated topic has one entry for all that are outside",
)
