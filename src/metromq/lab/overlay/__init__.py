"""Figures 6 to 11 of the overlay paper: latency and forwarded traffic, by the product's own router and algorithms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from metromq.errors import UsageError
from metromq.federation import OverlaySettings
from metromq.lab.intervals import Sample, of_mean
from metromq.lab.overlay.schemes import SCHEMES, Scheme
from metromq.lab.overlay.simulated import STEPS, Choices, Outcome, simulate
from metromq.lab.overlay.workload import Load, Mode, draw
from metromq.lab.report import PublishedRow, Report, RunOptions, Trend, compare

INSTANCES = 3
RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
SIZES = (50, 100, 200, 300, 400, 500, 600)
NAMES: dict[Scheme, str] = {"overlay": "overlay", "pubsubcoord": "PubSubCoord-alike", "pscloud": "PSCloud"}
LATENCY, TRAFFIC = "average delivery latency, ms (ADL)", "forwarded packets, % of all (AFT)"
FEW = 3  # steps where more of them change nothing that a reader would see; `sweep` compares with 15

Measure = Callable[[Outcome], float]
NOTES = (
    "The overlay runs the product's router, facts, algorithms and distribution of copies; the baselines are routers "
    "for the same interface.",
    "Not given in the paper, and chosen: 0.0176 ms for each kilometre one way, so that two brokers are 36 ms apart on "
    "average, half of PSCloud's 74.65 ms; beta 0.5; all publishers send at the same moment of a step; a port sends "
    "copies for brokers first. `overlay/sweep` varies them.",
    "Each round trip to a client is drawn from U[1, 4] ms and counts by half in each direction. In PSCloud and on the "
    "way to the cloud a direction takes, on average, what a link between two brokers took in the overlay's run.",
    "PubSubCoord-alike has a cloud broker for ten edge brokers. PSCloud has as many brokers as the others, and the "
    "clients of one site at one of them.",
    "Zipf: subscribers choose foreign topics by Zipf (1.2), with repetition; publishers choose evenly.",
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a figure: the setting for each x."""

    name: str
    scheme: Scheme
    load: Callable[[float], Load]


def _latency(outcome: Outcome) -> float:
    return outcome.latency_ms


def _traffic(outcome: Outcome) -> float:
    return outcome.forwarded


@dataclass(frozen=True, slots=True)
class Figure:
    x_label: str
    y_label: str
    measure: Measure
    xs: Sequence[float]
    curves: Sequence[Curve]
    printed: Sequence[tuple[str, float, float]] = ()  # curve, x, published
    steps: int = FEW


def _by_rate(topics: int, mode: Mode) -> Callable[[float], Load]:
    return lambda rate: Load(300, topics, rate, mode)


def _by_size(mode: Mode) -> Callable[[float], Load]:
    return lambda size: Load(int(size), 100, 0.8, mode, many=True)


def _schemes(mode: Mode) -> list[Curve]:
    return [Curve(NAMES[scheme], scheme, _by_size(mode)) for scheme in SCHEMES]


RATE, SIZE = "local subscription rate", "brokers"
FIGURES: dict[str, Figure] = {
    "overlay/fig6": Figure(
        RATE,
        LATENCY,
        _latency,
        RATES,
        [Curve(f"{topics} topics", "overlay", _by_rate(topics, "uniform")) for topics in (50, 150, 250)],
        (("250 topics", 0.1, 35.0), ("250 topics", 0.9, 11.5)),
    ),
    "overlay/fig7": Figure(
        RATE,
        TRAFFIC,
        _traffic,
        RATES,
        [Curve("uniform", "overlay", _by_rate(200, "uniform")), Curve("Zipf", "overlay", _by_rate(200, "zipf"))],
        (("uniform", 0.1, 8.15), ("Zipf", 0.1, 3.94), ("Zipf", 0.9, 0.74)),
        steps=1,
    ),
    "overlay/fig8": Figure(
        SIZE,
        LATENCY,
        _latency,
        SIZES,
        _schemes("uniform"),
        (("overlay", 300, 14.98), ("PubSubCoord-alike", 300, 26.36), ("PSCloud", 300, 74.65)),
    ),
    "overlay/fig9": Figure(SIZE, LATENCY, _latency, SIZES, _schemes("zipf")),
    "overlay/fig10": Figure(SIZE, TRAFFIC, _traffic, SIZES, _schemes("uniform"), (("overlay", 300, 3.0),), steps=1),
    "overlay/fig11": Figure(SIZE, TRAFFIC, _traffic, SIZES, _schemes("zipf"), steps=1),
}

Samples = dict[str, dict[float, Sample]]


def run(figure: str, options: RunOptions) -> Report:
    if figure == "overlay/sweep":
        return _sweep(options)
    if figure not in FIGURES:
        raise UsageError(
            f"{figure} is not an experiment of the overlay paper; try overlay/fig6 to fig11 or overlay/sweep"
        )
    shown = FIGURES[figure]
    samples = _measured(shown, options)
    rows = [compare(f"{name} at {x:g}", published, samples[name][x].value) for name, x, published in shown.printed]
    points: dict[str, list[tuple[float, float]]] = {}
    for name, x, published in shown.printed:
        points.setdefault(name, []).append((x, published))
    return Report(
        figure=figure,
        series={name: [(x, sample.value) for x, sample in points.items()] for name, points in samples.items()},
        samples=samples,
        published=rows + _ratios(figure, samples),
        x_label=shown.x_label,
        y_label=shown.y_label,
        notes=NOTES,
        trends=_trends(figure, samples),
        published_points=points,
    )


def _measured(shown: Figure, options: RunOptions) -> Samples:
    instances = options.instances or INSTANCES
    found: dict[str, dict[float, list[float]]] = {curve.name: {x: [] for x in shown.xs} for curve in shown.curves}
    total = instances * len(shown.xs)
    for instance in range(instances):
        for place, x in enumerate(shown.xs):
            options.progress(instance * len(shown.xs) + place, total)
            for name, outcome in outcomes(shown.curves, x, options.seed + instance, Choices(), shown.steps).items():
                found[name][x].append(shown.measure(outcome))
    return {name: {x: of_mean(values) for x, values in points.items()} for name, points in found.items()}


def outcomes(curves: Sequence[Curve], x: float, seed: int, choices: Choices, steps: int) -> dict[str, Outcome]:
    """One instance of every curve; the overlay's comes first, and says how far brokers are apart."""
    found: dict[str, Outcome] = {}
    between_ms = 0.0
    for curve in curves:
        work = draw(curve.load(x), seed)
        outcome = found[curve.name] = simulate(curve.scheme, work, seed, choices, between_ms, steps)
        if curve.scheme == "overlay":
            between_ms = outcome.between_ms
    return found


def _ratios(figure: str, samples: Samples) -> list[PublishedRow]:
    """The paper: about 57 and 20 percent, in all cases."""
    if figure != "overlay/fig8":
        return []
    printed = (("PubSubCoord-alike", 57.0), ("PSCloud", 20.0))
    return [
        compare(f"overlay as % of {other}, {x:g} brokers", share, 100 * samples["overlay"][x].value / points[x].value)
        for other, share in printed
        for points in (samples[other],)
        for x in (50.0, 300.0, 600.0)
    ]


def _trends(figure: str, samples: Samples) -> list[Trend]:
    if figure in ("overlay/fig6", "overlay/fig7"):
        return [_falls(name, points) for name, points in samples.items()]
    own = samples["overlay"]
    others = {name: points for name, points in samples.items() if name != "overlay"}
    if figure in ("overlay/fig8", "overlay/fig9"):
        return [_flat(name, points) for name, points in samples.items()] + [_lowest(own, others)]
    if figure == "overlay/fig10":
        return [_lowest(own, others)]
    coord = {"PubSubCoord-alike": others["PubSubCoord-alike"]}
    best = {name: points for name, points in samples.items() if name != "PSCloud"}
    return [_lowest(own, coord), _lowest(samples["PSCloud"], best, "PSCloud")]


def _falls(name: str, points: Mapping[float, Sample]) -> Trend:
    values = [sample.value for sample in points.values()]
    ours = " > ".join(f"{value:.3g}" for value in values)
    return Trend(
        f"{name} falls with locality",
        "each point is below the one before",
        ours,
        values == sorted(values, reverse=True),
    )


def _flat(name: str, points: Mapping[float, Sample]) -> Trend:
    values = [sample.value for x, sample in points.items() if x >= 100]
    change = 100 * (max(values) / min(values) - 1)
    return Trend(
        f"{name} does not depend on the number of brokers", "from 100 on within 10 %", f"{change:.1f} %", change <= 10
    )


def _lowest(own: Mapping[float, Sample], others: Mapping[str, Mapping[float, Sample]], name: str = "overlay") -> Trend:
    lost = [f"{other} at {x:g}" for other, points in others.items() for x in points if points[x].value < own[x].value]
    return Trend(f"{name} is the lowest", "nobody is below it anywhere", ", ".join(lost) or "nobody is", not lost)


# What the paper leaves open, one at a time.

SWEPT: dict[str, tuple[Choices, bool]] = {
    "as chosen": (Choices(), True),
    "0.014 ms/km": (Choices(ms_per_km=0.014), True),
    "0.020 ms/km": (Choices(ms_per_km=0.020), True),
    "delays within 90 %": (Choices(jitter=0.9), True),
    "publishers spread over 100 ms": (Choices(spread_ms=100.0), True),
    "ports send to subscribers first": (Choices(forwards_first=False), True),
    "clients U[3, 5] ms round trip (text: mean 4)": (Choices(client_rtt_ms=(3.0, 5.0)), True),
    "subscribers before publishers": (Choices(publishers_first=False), True),
    "MAX_DISTANCE 100 km": (Choices(overlay=OverlaySettings(100.0, max_topics=10_000_000)), True),
    "MAX_DISTANCE 1000 km": (Choices(overlay=OverlaySettings(1000.0, max_topics=10_000_000)), True),
    "beta 0": (Choices(overlay=OverlaySettings(beta=0.0, max_topics=10_000_000)), True),
    "beta 2": (Choices(overlay=OverlaySettings(beta=2.0, max_topics=10_000_000)), True),
    "publish other topics than they want": (Choices(), False),
}
SWEEP_PRINTED = (35.0, 11.5, 8.15, 3.94, 0.74, 14.98, 26.36, 74.65)
SWEEP_CATEGORIES = (
    *("Fig. 6 at 0.1", "Fig. 6 at 0.9", "Fig. 7 at 0.1", "Fig. 7 Zipf 0.1", "Fig. 7 Zipf 0.9"),
    *("Fig. 8 overlay", "Fig. 8 PubSubCoord", "Fig. 8 PSCloud", "Fig. 10 overlay"),
)


def _sweep(options: RunOptions) -> Report:
    """Every published number under every choice, one instance each."""
    series: dict[str, list[tuple[float, float]]] = {
        "published": [*((float(place), value) for place, value in enumerate(SWEEP_PRINTED)), (8.0, 3.0)]
    }
    for number, (name, (choices, same)) in enumerate(SWEPT.items()):
        options.progress(number, len(SWEPT) + 1)
        series[name] = [(float(place), value) for place, value in enumerate(_numbers(options.seed, choices, FEW, same))]
    options.progress(len(SWEPT), len(SWEPT) + 1)
    series[f"{STEPS} steps"] = [
        (float(place), value) for place, value in enumerate(_numbers(options.seed, Choices(), STEPS, True))
    ]
    chosen = dict(series["as chosen"])
    rows = [
        compare(f"{SWEEP_CATEGORIES[place]}, as chosen", value, chosen[float(place)])
        for place, value in enumerate(SWEEP_PRINTED)
    ]
    return Report(
        figure="overlay/sweep",
        series=series,
        published=rows,
        x_label="choice",
        y_label="every published number under every choice (ms, and % of packets)",
        notes=NOTES,
        categories=SWEEP_CATEGORIES,
    )


def _numbers(seed: int, choices: Choices, steps: int, same: bool) -> list[float]:
    def of(figure: str, name: str, x: float, steps: int) -> Outcome:
        [curve] = [curve for curve in FIGURES[figure].curves if curve.name == name]
        return outcomes([curve], x, seed, choices, steps)[name]

    latencies = [of("overlay/fig6", "250 topics", rate, steps).latency_ms for rate in (0.1, 0.9)]
    shares = [of("overlay/fig7", *point, 1).forwarded for point in (("uniform", 0.1), ("Zipf", 0.1), ("Zipf", 0.9))]
    curves = [
        replace(curve, load=lambda x: Load(int(x), 100, 0.8, "uniform", True, same))
        for curve in FIGURES["overlay/fig8"].curves
    ]
    compared = outcomes(curves, 300.0, seed, choices, steps)
    return [*latencies, *shares, *(one.latency_ms for one in compared.values()), compared["overlay"].forwarded]
