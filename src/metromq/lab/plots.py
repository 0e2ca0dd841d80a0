"""Draws a report: curves with their intervals, or bars where x names things; what the paper published stands beside."""

import math
from pathlib import Path
from typing import Any

from metromq.lab.report import Report, instances_at

MARKERS = "osv^Dx*P<>1234"
WIDTH_IN, HEIGHT_IN = 7, 5  # with a legend of two rows; more of them take nothing from the data
LEGEND_ROW_IN = 0.2
LEGEND_LETTERS = 100  # that fit side by side
SIGN_LETTERS = 8  # what the sign before a name takes
MOST_COUNTS = 12  # numbers of instances that stand side by side


def plot(report: Report, file: Path) -> None:
    """To an image file; the suffix of the name chooses the format. The legend is outside, so it covers nothing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    if report.categories:
        _bars(report, axes)
    else:
        _lines(report, axes)
    axes.set_title(report.figure, pad=20 if _counts(report, axes) else None)
    axes.set_xlabel(report.x_label)
    axes.set_ylabel(report.y_label)
    axes.yaxis.set_major_formatter(
        lambda y, _: f"{y:,.10g}"
    )  # no power of ten at the top, where numbers of instances are
    axes.grid(alpha=0.3, axis="y" if report.categories else "both")
    columns = _columns(axes)
    figure.legend(loc="outside lower center", ncols=columns, fontsize="small", frameon=False)
    rows = math.ceil(len(axes.get_legend_handles_labels()[1]) / columns)
    figure.set_size_inches(WIDTH_IN, HEIGHT_IN + LEGEND_ROW_IN * max(0, rows - 2))
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def _counts(report: Report, axes: Any) -> bool:
    """Above each place, how many instances made its points; above all of them where they are too many."""
    places = sorted({x for points in report.samples.values() for x in points})
    counts = {x: instances_at(report, x) for x in places}
    if not counts:
        return False
    style = {"ha": "center", "va": "bottom", "fontsize": "x-small"}
    if len(places) > MOST_COUNTS:
        least_to_most = sorted({s.instances for points in report.samples.values() for s in points.values()})
        text = "-".join(str(n) for n in dict.fromkeys((least_to_most[0], least_to_most[-1])))
        axes.text(0.5, 1.01, f"n = {text} at each point", transform=axes.transAxes, **style)
        return True
    for x, count in counts.items():
        axes.text(x, 1.01, f"n={count}", transform=axes.get_xaxis_transform(), **style)
    return True


def _columns(axes: Any) -> int:
    """Of the legend: three, or fewer where names are long."""
    longest = max((len(label) for label in axes.get_legend_handles_labels()[1]), default=0)
    return int(min(3, max(1, LEGEND_LETTERS // (longest + SIGN_LETTERS))))


def _colour(report: Report, n: int) -> Any:
    """Ten strong ones, or twenty where there are more curves."""
    if len(report.series) <= 10:
        return f"C{n}"
    import matplotlib

    return matplotlib.colormaps["tab20"](n % 20)


def _errors(report: Report, name: str, xs: list[float]) -> list[list[float]] | None:
    """How far down and up each interval reaches; one that is not known is not drawn."""
    samples = report.samples.get(name)
    if not samples:
        return None
    found = [samples.get(x) for x in xs]
    down = [s.value - s.low if s is not None and math.isfinite(s.low) else 0.0 for s in found]
    up = [s.high - s.value if s is not None and math.isfinite(s.high) else 0.0 for s in found]
    return [down, up]


def _lines(report: Report, axes: Any) -> None:
    most = max((len(points) for points in report.series.values()), default=0)
    for n, (name, points) in enumerate(report.series.items()):
        xs, ys = [x for x, _ in points], [y for _, y in points]
        style = {"marker": MARKERS[n % len(MARKERS)], "color": _colour(report, n), "capsize": 3}
        if len(points) < most:  # a line would claim to know what lies between them
            style |= {"linestyle": "none", "fillstyle": "none", "markersize": 9}
        axes.errorbar(xs, ys, yerr=_errors(report, name, xs), label=name, **style)
    _published(report, axes, {name: 0.0 for name in report.series})
    xs = [x for points in report.series.values() for x, _ in points]
    if xs and min(xs) > 0 and max(xs) >= 1000 * min(xs):
        axes.set_xscale("log")


def _bars(report: Report, axes: Any) -> None:
    width = 0.8 / max(len(report.series), 1)
    shifts: dict[str, float] = {}
    for n, (name, points) in enumerate(report.series.items()):
        shifts[name] = (n + 0.5) * width - 0.4
        xs = [x for x, _ in points]
        places = [x + shifts[name] for x in xs]
        errors = _errors(report, name, xs)
        axes.bar(places, [y for _, y in points], width, yerr=errors, label=name, color=_colour(report, n), capsize=2)
    _published(report, axes, shifts)
    axes.set_xticks(range(len(report.categories)), report.categories)
    if max(map(len, report.categories)) * len(report.categories) > 60:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def _published(report: Report, axes: Any, shifts: dict[str, float]) -> None:
    """Hollow, large, in the colour of the curve they belong to."""
    for n, name in enumerate(report.series):
        points = report.published_points.get(name, ())
        if points:
            xs, ys = [x + shifts[name] for x, _ in points], [y for _, y in points]
            style = {
                "facecolors": "none",
                "edgecolors": _colour(report, n),
                "marker": "o",
                "linewidths": 2,
                "zorder": 5,
            }
            axes.scatter(xs, ys, s=140, label=f"published: {name}", **style)
