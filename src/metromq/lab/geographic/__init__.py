"""Figures 5 and 6 of the geographic paper: messages of a broker per second, by formula, in the simulator and live."""

from collections.abc import Mapping, Sequence

from metromq.errors import UsageError
from metromq.lab.geographic.formulas import SCHEMES, Cost, Load, cost
from metromq.lab.geographic.live import run_live
from metromq.lab.geographic.simulated import simulate
from metromq.lab.intervals import Sample, of_mean
from metromq.lab.report import Points, PublishedRow, Report, RunOptions, compare

PUBLISHED = {"flood-publications": 7416.7, "flood-subscriptions": 10116.7, "geographic": 1796.7}
INTERVALS_S = (30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0)
MEASURED_INTERVALS_S = (50.0, 150.0, 300.0)
TOLERANCE = 0.02
LIVE_LEVEL = 2  # 16 brokers: what one machine starts in seconds
PARTS = ("publications in", "subscriptions in", "publications out", "subscriptions out", "total")
NOTES = (
    "Instances are brokers: simulated and live points are means over them, with the interval of that mean. A formula "
    "has none.",
    "System 1 of the paper is flood-publications, system 2 flood-subscriptions, the proposal geographic.",
    "Simulated: 64 brokers with 1/100 of the clients, 10 s, figures multiplied by 100.",
    "Live: 16 broker processes with 1/100 of the clients, as many messages and changes as the intervals say, counted "
    "by the brokers and multiplied by 100.",
    "Live, as 64 brokers: what a flooding broker exchanges with its 15 peers is multiplied by 63/15; nothing else "
    "depends on the number of brokers. The curves named 16 brokers are not multiplied.",
)


def run(figure: str, options: RunOptions) -> Report:
    if figure == "geographic/fig5":
        return _figure5(options)
    if figure == "geographic/fig6":
        return _figure6(options)
    raise UsageError(f"{figure} is not an experiment of the geographic paper; try geographic/fig5 or geographic/fig6")


def _figure5(options: RunOptions) -> Report:
    load = Load()
    small = Load(level=LIVE_LEVEL)
    measured: dict[str, list[Cost]] = {}
    for number, scheme in enumerate(SCHEMES):
        options.progress(2 * number, 2 * len(SCHEMES))
        measured[f"{scheme}, simulated"] = simulate(scheme, load)
        options.progress(2 * number + 1, 2 * len(SCHEMES))
        [live] = run_live(scheme, small, [small.subscribe_interval_s])
        measured[f"{scheme}, live"] = live.costs(load.level)
        measured[f"{scheme}, 16 brokers, live"] = live.costs()
    return figure5_of(measured)


def figure5_of(measured: Mapping[str, Sequence[Cost]]) -> Report:
    """The report, from what brokers did by name of the bar."""
    series: dict[str, Points] = {}
    samples: dict[str, dict[float, Sample]] = {}
    rows: list[PublishedRow] = []
    for scheme in SCHEMES:
        for name, load in (("", Load()), (", 16 brokers", Load(level=LIVE_LEVEL))):
            costs = {"formula": [cost(scheme, load)]}
            costs |= {way: list(measured.get(f"{scheme}{name}, {way}", ())) for way in ("simulated", "live")}
            for way, found in costs.items():
                if not found:
                    continue
                label = f"{scheme}{name}, {way}"
                bars = [of_mean(part) for part in zip(*map(_parts, found), strict=True)]
                series[label] = [(float(place), bar.value) for place, bar in enumerate(bars)]
                if way != "formula":
                    samples[label] = {float(place): bar for place, bar in enumerate(bars)}
                if not name:
                    rows.append(compare(label, PUBLISHED[scheme], bars[-1].value, matches=TOLERANCE))
    return Report(
        figure="geographic/fig5",
        series=series,
        published=rows,
        x_label="",
        y_label="messages per second per broker",
        notes=NOTES,
        samples=samples,
        published_points={f"{scheme}, formula": [(len(PARTS) - 1.0, PUBLISHED[scheme])] for scheme in SCHEMES},
        categories=PARTS,
    )


def _parts(found: Cost) -> tuple[float, ...]:
    return found.publish_in, found.subscribe_in, found.publish_out, found.subscribe_out, found.total


def _figure6(options: RunOptions) -> Report:
    load = Load()
    measured: dict[str, dict[float, list[Cost]]] = {}
    steps = len(SCHEMES) * (len(MEASURED_INTERVALS_S) + 1)
    for number, scheme in enumerate(SCHEMES):
        done = number * (len(MEASURED_INTERVALS_S) + 1)
        simulated = measured[f"{scheme}, simulated"] = {}
        for interval_s in MEASURED_INTERVALS_S:
            options.progress(done + len(simulated), steps)
            simulated[interval_s] = simulate(scheme, Load(subscribe_interval_s=interval_s))
        options.progress(done + len(MEASURED_INTERVALS_S), steps)
        runs = run_live(scheme, Load(level=LIVE_LEVEL), MEASURED_INTERVALS_S)
        measured[f"{scheme}, live"] = {run.load.subscribe_interval_s: run.costs(load.level) for run in runs}
    return figure6_of(measured)


def figure6_of(measured: Mapping[str, Mapping[float, Sequence[Cost]]]) -> Report:
    """The report, from what brokers did by name of the curve and interval."""
    printed_s = Load().subscribe_interval_s  # the paper prints its totals for this one
    series: dict[str, Points] = {}
    samples: dict[str, dict[float, Sample]] = {}
    rows: list[PublishedRow] = []
    for scheme in SCHEMES:
        places = sorted({*INTERVALS_S, *MEASURED_INTERVALS_S})
        series[f"{scheme}, formula"] = [(x, cost(scheme, Load(subscribe_interval_s=x)).total) for x in places]
        for label in (f"{scheme}, simulated", f"{scheme}, live"):
            samples[label] = {x: of_mean([one.total for one in found]) for x, found in sorted(measured[label].items())}
            series[label] = [(x, sample.value) for x, sample in samples[label].items()]
        for way in ("formula", "simulated", "live"):
            label = f"{scheme}, {way}"
            total = dict(series[label])[printed_s]
            rows.append(compare(f"{label}, every {printed_s:g} s", PUBLISHED[scheme], total, matches=TOLERANCE))
    return Report(
        figure="geographic/fig6",
        series=series,
        published=rows,
        x_label="seconds between a subscriber's changes",
        y_label="messages per second per broker",
        notes=NOTES,
        samples=samples,
        published_points={f"{scheme}, formula": [(printed_s, PUBLISHED[scheme])] for scheme in SCHEMES},
    )
