"""Figures 5 and 6 of the geographic paper: messages of a broker per second, by formula and in the simulator."""

from metromq.errors import UsageError
from metromq.lab.geographic.formulas import SCHEMES, Load, cost
from metromq.lab.geographic.simulated import simulate
from metromq.lab.report import PublishedRow, Report, RunOptions, compare

PUBLISHED = {"flood-publications": 7416.7, "flood-subscriptions": 10116.7, "geographic": 1796.7}
INTERVALS_S = (30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0)
SIMULATED_INTERVALS_S = (50.0, 150.0, 300.0)
TOLERANCE = 0.02
NOTES = (
    "System 1 of the paper is flood-publications, system 2 flood-subscriptions, the proposal geographic.",
    "Simulated: 64 brokers with 1/100 of the clients, 10 s, figures multiplied by 100.",
)


def run(figure: str, options: RunOptions) -> Report:
    if figure == "geographic/fig5":
        return _figure5(options)
    if figure == "geographic/fig6":
        return _figure6(options)
    raise UsageError(f"{figure} is no figure of the geographic paper; there are geographic/fig5 and geographic/fig6")


def _figure5(options: RunOptions) -> Report:
    load = Load()
    series: dict[str, list[tuple[float, float]]] = {}
    rows: list[PublishedRow] = []
    for number, scheme in enumerate(SCHEMES):
        options.progress(number, len(SCHEMES))
        computed, simulated = cost(scheme, load), simulate(scheme, load)
        for name, found in (("formula", computed), ("simulated", simulated)):
            parts = (found.publish_in, found.subscribe_in, found.publish_out, found.subscribe_out, found.total)
            series[f"{scheme}, {name}"] = [(float(place), value) for place, value in enumerate(parts, 1)]
            rows.append(compare(f"{scheme}, {name}", PUBLISHED[scheme], found.total, matches=TOLERANCE))
    return Report(
        figure="geographic/fig5",
        series=series,
        published=rows,
        x_label="part",
        y_label="messages per broker and second",
        notes=(
            *NOTES,
            "Parts: 1 publications in, 2 subscriptions in, 3 publications out, 4 subscriptions out, 5 total.",
        ),
    )


def _figure6(options: RunOptions) -> Report:
    series: dict[str, list[tuple[float, float]]] = {}
    rows: list[PublishedRow] = []
    work = [(scheme, interval_s) for scheme in SCHEMES for interval_s in SIMULATED_INTERVALS_S]
    for scheme in SCHEMES:
        points = sorted({*INTERVALS_S, *SIMULATED_INTERVALS_S})
        series[f"{scheme}, formula"] = [(x, cost(scheme, Load(subscribe_interval_s=x)).total) for x in points]
        computed = cost(scheme, Load()).total
        rows.append(compare(f"{scheme}, formula, every 150 s", PUBLISHED[scheme], computed, matches=TOLERANCE))
    for number, (scheme, interval_s) in enumerate(work):
        options.progress(number, len(work))
        found = simulate(scheme, Load(subscribe_interval_s=interval_s)).total
        series.setdefault(f"{scheme}, simulated", []).append((interval_s, found))
        if interval_s == Load().subscribe_interval_s:
            rows.append(compare(f"{scheme}, simulated, every 150 s", PUBLISHED[scheme], found, matches=TOLERANCE))
    return Report(
        figure="geographic/fig6",
        series=series,
        published=rows,
        x_label="seconds between a subscriber's changes",
        y_label="messages per broker and second",
        notes=NOTES,
    )
