"""Figures 5 and 6 of the geographic paper: messages of a broker per second, by formula, in the simulator and live."""

from metromq.errors import UsageError
from metromq.lab.geographic.formulas import SCHEMES, Cost, Load, cost
from metromq.lab.geographic.live import run_live
from metromq.lab.geographic.simulated import simulate
from metromq.lab.report import PublishedRow, Report, RunOptions, compare

PUBLISHED = {"flood-publications": 7416.7, "flood-subscriptions": 10116.7, "geographic": 1796.7}
INTERVALS_S = (30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0)
MEASURED_INTERVALS_S = (50.0, 150.0, 300.0)
TOLERANCE = 0.02
LIVE_LEVEL = 2  # 16 brokers: what one machine starts in seconds
PARTS = ("publications in", "subscriptions in", "publications out", "subscriptions out", "total")
NOTES = (
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
    series: dict[str, list[tuple[float, float]]] = {}
    rows: list[PublishedRow] = []
    for number, scheme in enumerate(SCHEMES):
        options.progress(2 * number, 2 * len(SCHEMES))
        simulated = simulate(scheme, load)
        options.progress(2 * number + 1, 2 * len(SCHEMES))
        [live] = run_live(scheme, small, [small.subscribe_interval_s])
        whole = (("formula", cost(scheme, load)), ("simulated", simulated), ("live", live.cost(load.level)))
        for name, found in whole:
            series[f"{scheme}, {name}"] = _parts(found)
            rows.append(compare(f"{scheme}, {name}", PUBLISHED[scheme], found.total, matches=TOLERANCE))
        series[f"{scheme}, 16 brokers, formula"] = _parts(cost(scheme, small))
        series[f"{scheme}, 16 brokers, live"] = _parts(live.cost())
    return Report(
        figure="geographic/fig5",
        series=series,
        published=rows,
        x_label="",
        y_label="messages per second per broker",
        notes=NOTES,
        categories=PARTS,
    )


def _parts(found: Cost) -> list[tuple[float, float]]:
    parts = (found.publish_in, found.subscribe_in, found.publish_out, found.subscribe_out, found.total)
    return [(float(place), value) for place, value in enumerate(parts)]


def _figure6(options: RunOptions) -> Report:
    load = Load()
    series: dict[str, list[tuple[float, float]]] = {}
    totals: dict[tuple[str, str], float] = {}  # at the paper's interval
    steps = len(SCHEMES) * (len(MEASURED_INTERVALS_S) + 1)
    for number, scheme in enumerate(SCHEMES):
        points = sorted({*INTERVALS_S, *MEASURED_INTERVALS_S})
        found = {"formula": [(x, cost(scheme, Load(subscribe_interval_s=x)).total) for x in points]}
        done = number * (len(MEASURED_INTERVALS_S) + 1)
        found["simulated"] = []
        for interval_s in MEASURED_INTERVALS_S:
            options.progress(done + len(found["simulated"]), steps)
            found["simulated"].append((interval_s, simulate(scheme, Load(subscribe_interval_s=interval_s)).total))
        options.progress(done + len(MEASURED_INTERVALS_S), steps)
        runs = run_live(scheme, Load(level=LIVE_LEVEL), MEASURED_INTERVALS_S)
        found["live"] = [(run.load.subscribe_interval_s, run.cost(load.level).total) for run in runs]
        for name, curve in found.items():
            series[f"{scheme}, {name}"] = curve
            totals[scheme, name] = dict(curve)[load.subscribe_interval_s]
    rows = [
        compare(f"{scheme}, {name}, every 150 s", PUBLISHED[scheme], total, matches=TOLERANCE)
        for (scheme, name), total in totals.items()
    ]
    return Report(
        figure="geographic/fig6",
        series=series,
        published=rows,
        x_label="seconds between a subscriber's changes",
        y_label="messages per second per broker",
        notes=NOTES,
    )
