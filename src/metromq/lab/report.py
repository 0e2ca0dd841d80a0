"""What an experiment hands back, and its three forms: a table for people, a plot, and JSON for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

Points = Sequence[tuple[float, float]]
MOST_COLUMNS = 6


def _silent(done: int, total: int) -> None:
    """The progress of somebody who does not watch."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user may choose: how many random instances a point has, the seed, and who watches the progress."""

    instances: int | None = None
    seed: int = 1
    progress: Callable[[int, int], None] = _silent


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One number of the paper beside ours; `verdict` is one of "matches", "near", "differs"."""

    name: str
    published: float
    ours: float
    ratio: float | None  # None when the published number is zero and ours is not
    verdict: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one experiment: curves by name, published rows, and the notes a reader needs to judge them."""

    figure: str
    series: Mapping[str, Points]
    published: Sequence[PublishedRow]
    x_label: str = "x"
    y_label: str = "y"
    notes: Sequence[str] = field(default_factory=tuple)
    seconds: float = 0.0

    def to_json(self) -> str:
        """The JSON that programs read; notes and labels are for people and stay out of it."""
        document = {
            "figure": self.figure,
            "series": {name: [[x, y] for x, y in points] for name, points in self.series.items()},
            "published": [
                {"name": r.name, "published": r.published, "ours": r.ours, "ratio": r.ratio, "verdict": r.verdict}
                for r in self.published
            ],
            "seconds": self.seconds,
        }
        return json.dumps(document, indent=2)


def compare(
    name: str, published: float, ours: float, matches: float = 0.1, near: float = 0.35, at_most: bool = False
) -> PublishedRow:
    """Judges our number: relative distance within `matches` or `near`; with `at_most` anything not above matches."""
    ratio = ours / published if published else (1.0 if ours == 0 else None)
    distance = abs(ratio - 1) if ratio is not None else float("inf")
    if distance <= matches or (at_most and ours <= published):
        verdict = "matches"
    elif distance <= near:
        verdict = "near"
    else:
        verdict = "differs"
    return PublishedRow(name, published, round(ours, 6), None if ratio is None else round(ratio, 4), verdict)


def show(report: Report, console: Console) -> None:
    """Prints the curves side by side, then the published numbers beside ours, then the notes."""
    console.print(_curves(report))
    if report.published:
        rows = Table(title="compared with the paper", title_justify="left")
        for column in ("what", "published", "ours", "ratio", "verdict"):
            rows.add_column(column, justify="left" if column in ("what", "verdict") else "right")
        for row in report.published:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            rows.add_row(row.name, _figure(row.published), _figure(row.ours), ratio, row.verdict)
        console.print(rows)
    for note in report.notes:
        console.print(f"- {note}", highlight=False)
    console.print(f"{report.seconds:.1f} s")


def _curves(report: Report) -> Table:
    """A column per curve, or a row when there are too many for the width of a screen."""
    table = Table(title=f"{report.figure}: {report.y_label}", title_justify="left")
    values = {name: dict(points) for name, points in report.series.items()}
    places = sorted({x for points in values.values() for x in points})
    if len(values) <= MOST_COLUMNS or len(places) > len(values):
        for column in (report.x_label, *values):
            table.add_column(column, justify="right")
        for x in places:
            table.add_row(f"{x:g}", *(_figure(points.get(x)) for points in values.values()))
        return table
    table.add_column(report.x_label)
    for x in places:
        table.add_column(f"{x:g}", justify="right")
    for name, points in values.items():
        table.add_row(name, *(_figure(points.get(x)) for x in places))
    return table


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:,.4g}"


def plot(report: Report, file: Path) -> None:
    """Draws the curves to an image file; the suffix of the name chooses the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for (name, points), marker in zip(report.series.items(), "osv^Dx*P<>1234" * 4, strict=False):
        axes.plot([x for x, _ in points], [y for _, y in points], marker=marker, label=name)
    xs = [x for points in report.series.values() for x, _ in points]
    if xs and min(xs) > 0 and max(xs) >= 1000 * min(xs):
        axes.set_xscale("log")
    axes.set_title(report.figure)
    axes.set_xlabel(report.x_label)
    axes.set_ylabel(report.y_label)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
