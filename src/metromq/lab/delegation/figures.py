"""Figs. 17-22 of the delegation paper: what each varies and shows, the numbers it prints, and what its text says.

A verdict is only given on a number that the paper prints. Its words are trends, each with the rule by which we read
it. The family of instances was chosen by the printed numbers (`sweep`): a verdict on one of them says how well that
went, and not that the paper was reproduced independently. Of the trends only the optimum's failures played a part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from metromq.lab.delegation.families import as_text, family_of, shown
from metromq.lab.delegation.instances import CHOSEN, PRINTED_MW_PER_MBPS, Family, draw
from metromq.lab.delegation.placement import (
    METHODS,
    SOLVE_LIMIT_S,
    Measure,
    Outcome,
    apart,
    compared,
    failed,
    outcomes_of,
    rng_of,
    saved,
)
from metromq.lab.intervals import Sample, of_share
from metromq.lab.report import Points, PublishedRow, Report, RunOptions, Trend, compare
from metromq.planning import Price, compile_arrays

INSTANCES = 20
FAILURE_INSTANCES = 100
FAILURE_RATIOS = (50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0)
SIMILAR = 5.0  # percent by which greedy may exceed the optimum where the text calls them similar
SIMILAR_RATIO = 1.25  # the same for two savings, which are small numbers
LOW = 10.0  # percent of failures that the text may call low

Curves = dict[str, dict[float, Sample]]


@dataclass(frozen=True, slots=True)
class Figure:
    """What a figure varies and what it shows."""

    x_label: str
    y_label: str
    xs: tuple[float, ...]
    at: Callable[[Family, float], Family]
    show: Callable[[Sequence[Outcome]], dict[str, Sample]]
    trends: Callable[[Curves], list[Trend]]
    printed: tuple[tuple[str, float, float, bool], ...] = ()  # method, x, published, at most
    varied: str = ""  # which field of a family


def _power(p: Price) -> float:
    return p.power_mw / 1000


def _network(p: Price) -> float:
    return p.network_mbps / 1000


def _amounts(measure: Measure) -> Callable[[Sequence[Outcome]], dict[str, Sample]]:
    """The methods, and the difference that the text speaks of."""
    return lambda outcomes: compared(outcomes, measure) | {"greedy - optimal": apart(outcomes, measure)}


def _growing_gap(curves: Curves) -> list[Trend]:
    """The paper prints no numbers here: greedy is the optimum's equal at first, and the gap grows."""
    xs = sorted(curves["optimal"])
    first, last = xs[0], xs[-1]
    excess = [100 * (curves["greedy"][x].value / curves["optimal"][x].value - 1) for x in (first, last)]
    gap = curves["greedy - optimal"]
    grown = [method for method in METHODS if curves[method][last].low > curves[method][first].high]
    return [
        Trend(
            f"greedy and optimum are similar at {first:g}",
            f"greedy's mean is at most {SIMILAR:g} % higher",
            f"{excess[0]:.1f} % higher",
            excess[0] <= SIMILAR,
        ),
        Trend(
            f"their difference grows from {first:g} to {last:g}",
            "its 95 % intervals at both ends lie apart",
            f"{_interval(gap[first])} to {_interval(gap[last])}; {excess[0]:.0f} % to {excess[1]:.0f} % of the optimum",
            gap[last].low > gap[first].high,
        ),
        Trend(
            "all methods grow",
            "each method's 95 % intervals at both ends lie apart",
            ", ".join(grown) or "none",
            len(grown) == len(METHODS),
        ),
    ]


def _interval(sample: Sample) -> str:
    return f"{sample.value:.3g} ({sample.low:.3g} to {sample.high:.3g})"


def _trends_19(curves: Curves) -> list[Trend]:
    best, greedy = curves["optimal"], curves["greedy"]
    ratios = {x: best[x].value / greedy[x].value if greedy[x].value > 0 else float("inf") for x in (5.0, 10.0)}
    return [
        Trend(
            "similar PCRR at 5 and 10 %",
            f"the optimum's is at most {SIMILAR_RATIO:g} times greedy's at both",
            ", ".join(f"{ratio:.2f} times at {x:g} %" for x, ratio in ratios.items()),
            max(ratios.values()) <= SIMILAR_RATIO,
        ),
        Trend(
            "greedy's PCRR falls sharply",
            "at 50 % it is less than half of that at 5 %",
            f"{greedy[5].value:.1f} % to {greedy[50].value:.1f} %",
            greedy[50].value < greedy[5].value / 2,
        ),
    ]


def _trends_22(curves: Curves) -> list[Trend]:
    best, greedy = curves["optimal"], curves["greedy"]
    early = [best[x].value for x in (20.0, 30.0, 40.0)]
    middle = sum(early) / 3
    return [
        Trend(
            "the optimum's PCRR is constant up to WR 40 %",
            "at 20, 30 and 40 % it is within a tenth of their mean",
            ", ".join(f"{value:.1f} %" for value in early),
            all(abs(value - middle) <= 0.1 * middle for value in early),
        ),
        Trend(
            "greedy's PCRR falls as WR rises",
            "at WR 80 % it is lower than at 20 %, 95 % intervals apart",
            f"{_interval(greedy[20])} to {_interval(greedy[80])}",
            greedy[80].high < greedy[20].low,
        ),
    ]


FIGURES: dict[str, Figure] = {
    "fig17": Figure(
        "topics",
        "power, W",
        (2, 4, 6, 8, 10, 12, 14),
        lambda family, x: replace(family, topics=int(x)),
        _amounts(_power),
        _growing_gap,
    ),
    "fig18": Figure(
        "topics",
        "network traffic, Gbps x hops",
        (2, 4, 6, 8, 10, 12, 14),
        lambda family, x: replace(family, topics=int(x)),
        _amounts(_network),
        _growing_gap,
    ),
    "fig19": Figure(
        "topic utilisation, %",
        "PCRR, %",
        (5, 10, 20, 30, 40, 50),
        lambda family, x: replace(family, utilisation=x / 100),
        saved,
        _trends_19,
        (("greedy", 50, 5.0, True), ("optimal", 50, 20.0, False)),
        varied="utilisation",
    ),
    "fig20": Figure(
        "services",
        "power, W",
        (2, 4, 6, 8, 10, 12, 15),
        lambda family, x: replace(family, topics=6, services=int(x)),
        _amounts(_power),
        _growing_gap,
        varied="services",
    ),
    "fig22": Figure(
        "workload ratio, %",
        "PCRR, %",
        (20, 30, 40, 50, 60, 70, 80),
        lambda family, x: replace(family, workload_ratio=x / 100),
        saved,
        _trends_22,
        (("greedy", 80, 10.0, False), ("optimal", 80, 26.0, False)),
    ),
}
PRINTED_21 = (("random", 90.0, 70.0, False), ("greedy", 90.0, 40.0, False))


def run_figure(name: str, options: RunOptions) -> Report:
    """One of FIGURES."""
    short = name.rpartition("/")[2]
    figure, count = FIGURES[short], options.instances or INSTANCES
    family = family_of(options.family, figure.varied)
    stem = "fig17" if short == "fig18" else short  # they show the same runs in two units
    curves: Curves = {}
    open_ends = 0
    left_out: dict[float, int] = {}
    for n, x in enumerate(figure.xs):
        outcomes, others = outcomes_of(figure.at(family, x), count, options, stem, x)
        options.progress(n + 1, len(figure.xs))
        for method, sample in figure.show(outcomes).items() if outcomes else ():
            curves.setdefault(method, {})[x] = sample
        open_ends += sum(1 for o in outcomes if not o.proven)
        left_out[x] = others
    most = max(left_out, key=lambda x: left_out[x])
    notes = [
        f"{sum(left_out.values())} further instances were left out because greedy or random could not place them"
        + (f", {left_out[most]} of them at {most:g}" if left_out[most] else "")
    ]
    if open_ends:
        notes.append(f"{open_ends} optima are not proven within {SOLVE_LIMIT_S:g} s: the best plan found counts")
    complete = all(len(curves.get(method, ())) == len(figure.xs) for method in ("optimal", "greedy"))
    trends = figure.trends(curves) if complete else []
    report = _report(name, figure.x_label, figure.y_label, curves, figure.printed, trends, notes)
    return _told(report, family, figure.varied)


def run_failures(name: str, options: RunOptions) -> Report:
    """Fig. 21."""
    count = options.instances or FAILURE_INSTANCES
    chosen = family_of(options.family)
    curves: Curves = {method: {} for method in METHODS}
    for n, ratio in enumerate(FAILURE_RATIOS):
        family = replace(chosen, workload_ratio=ratio / 100)
        sums = dict.fromkeys(METHODS, 0)
        for i in range(count):
            rng = rng_of(options, "fig21", ratio, i)
            for method, no in failed(family, compile_arrays(draw(family, rng)), rng).items():
                sums[method] += no
            options.progress(n * count + i + 1, len(FAILURE_RATIOS) * count)
        for method, number in sums.items():
            curves[method][ratio] = of_share(number, count)
    notes = [
        f"{chosen.services} services: the text says 'six edge devices, ten topics, and services', which may mean 6 or "
        "10 of them (`metromq lab run delegation/sweep` has both)"
    ]
    trends = _trends_21(curves)
    report = _report(name, "workload ratio, %", "failed placements, %", curves, PRINTED_21, trends, notes)
    return _told(report, chosen)


def _trends_21(curves: Curves) -> list[Trend]:
    best, greedy, blind = (curves[method] for method in METHODS)
    return [
        Trend(
            "the optimum fails rarely at WR 90 %",
            f"in at most {LOW:g} % of the instances",
            f"{_interval(best[90])} %",
            best[90].value <= LOW,
        ),
        Trend(
            "random fails from WR 70 % on",
            "it fails in at most 5 % at WR 60 %, and in some at 70 %",
            f"{blind[60].value:.0f} % at 60 %, {blind[70].value:.0f} % at 70 %",
            blind[60].value <= 5 and blind[70].value > 0,
        ),
        Trend(
            "greedy's failures rise from WR 80 % on",
            "at most 5 % at WR 70 %, more at 80 % than at 70 %",
            f"{greedy[70].value:.0f} % at 70 %, {greedy[80].value:.0f} % at 80 %",
            greedy[70].value <= 5 and greedy[80].value > greedy[70].value,
        ),
        Trend(
            "greedy fails less often than random",
            "at every WR from 70 % on",
            ", ".join(f"{greedy[x].value:.0f}/{blind[x].value:.0f} % at {x:g} %" for x in FAILURE_RATIOS if x >= 70),
            all(greedy[x].value < blind[x].value for x in FAILURE_RATIOS if x >= 70),
        ),
    ]


def _report(
    name: str,
    x_label: str,
    y_label: str,
    curves: Curves,
    printed: Sequence[tuple[str, float, float, bool]],
    trends: Sequence[Trend],
    notes: Sequence[str],
) -> Report:
    rows: list[PublishedRow] = []
    points: dict[str, list[tuple[float, float]]] = {}
    for method, x, published, at_most in printed:
        points.setdefault(method, []).append((x, published))
        sample = curves.get(method, {}).get(x)
        if sample is not None:
            label = f"{method}, {y_label} at {x:g} %{', at most' if at_most else ''}"
            rows.append(compare(label, published, sample.value, at_most=at_most))
    series: dict[str, Points] = {m: [(x, s.value) for x, s in sorted(found.items())] for m, found in curves.items()}
    return Report(
        name,
        series,
        rows,
        x_label,
        y_label,
        notes,
        samples=curves,
        trends=trends,
        published_points=points,
    )


def _told(report: Report, family: Family, varied: str = "") -> Report:
    """With the family that its instances are from."""
    other = () if family == CHOSEN else (f"not the family of the figures, but --family {as_text(family, varied)}",)
    return replace(report, family=shown(family, varied), notes=(*report.notes, *other, *family_notes(family)))


def family_notes(family: Family = CHOSEN) -> tuple[str, ...]:
    """What the paper leaves open, and what we chose; changed is the price of the network alone."""
    return (
        f"chosen, not printed: tau up to {family.client_mbps:g}, dsd {family.user_mbps:g}, dst {family.topic_mbps:g} "
        f"Mbps, every device with clients, a spanning tree and {family.density:.0%} of the other links",
        f"scaled: network power {family.network_mw_per_mbps:g} mW/Mbps, "
        f"{family.network_mw_per_mbps / PRINTED_MW_PER_MBPS:g} times the printed {PRINTED_MW_PER_MBPS:g}",
        "read: greedy sorts "
        + ("brokers, then services" if family.greedy_by_kind else "all containers together")
        + ", random takes containers in "
        + ("random order" if family.random_shuffled else "the order listed"),
        "`metromq lab run delegation/sweep` searches these choices; docs/planner.md says how they were made",
    )
