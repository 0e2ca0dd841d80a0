"""What an experiment hands back, as a table for people and as JSON for programs; `plots` draws it."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from metromq.lab.intervals import Sample

Points = Sequence[tuple[float, float]]
MOST_COLUMNS = 6
MOST_LETTERS = 34  # of the first column of a table; longer names are broken
FRAME_LETTERS = 3  # what a column takes beside its text


def _silent(done: int, total: int) -> None:
    """The progress of somebody who does not watch."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user may choose: instances for each point, the seed, who watches, and how instances are drawn."""

    instances: int | None = None
    seed: int = 1
    progress: Callable[[int, int], None] = _silent
    family: str | None = None  # as in lab/delegation/families.py


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A number that the paper prints beside ours; `verdict` is one of "matches", "near", "differs"."""

    name: str
    published: float
    ours: float
    ratio: float | None  # None when the published number is zero and ours is not
    verdict: str


@dataclass(frozen=True, slots=True)
class Trend:
    """What the paper says in words ("similar", "low"): the rule by which we read them, our numbers, and if it holds."""

    name: str
    rule: str
    ours: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one experiment: curves by name, published rows, and the notes a reader needs to judge them.

    `samples` has instances and interval of each point of a curve where chance plays a part. With `categories` x counts
    them from 0. `published_points` are the paper's own, by the name of our curve. `family` is how instances were drawn.
    """

    figure: str
    series: Mapping[str, Points]
    published: Sequence[PublishedRow]
    x_label: str = "x"
    y_label: str = "y"
    notes: Sequence[str] = field(default_factory=tuple)
    seconds: float = 0.0
    samples: Mapping[str, Mapping[float, Sample]] = field(default_factory=dict)
    trends: Sequence[Trend] = field(default_factory=tuple)
    published_points: Mapping[str, Points] = field(default_factory=dict)
    categories: Sequence[str] = field(default_factory=tuple)
    family: Mapping[str, float | int | str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The JSON that programs read; an interval that is not known is null."""
        document = {
            "figure": self.figure,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "categories": list(self.categories),
            "family": dict(self.family),
            "series": {name: [[x, y] for x, y in points] for name, points in self.series.items()},
            "samples": {
                name: [
                    {"x": x, "instances": s.instances, "low": _known(s.low), "high": _known(s.high)}
                    for x, s in sorted(points.items())
                ]
                for name, points in self.samples.items()
            },
            "published": [asdict(row) for row in self.published],
            "published_points": {name: [[x, y] for x, y in points] for name, points in self.published_points.items()},
            "trends": [asdict(trend) for trend in self.trends],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }
        return json.dumps(document, indent=2)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
    """Prints the curves side by side, then the published numbers beside ours, then the trends, then the notes."""
    for table in _curves(report, console.width):
        console.print(table)
    if _has_intervals(report):
        console.print("± is half of the 95 % interval; a share's longer half", highlight=False)
    elif report.samples:
        console.print("one instance for each point, so that no interval is known", highlight=False)
    if report.published:
        rows = Table(title="compared with the numbers that the paper prints", title_justify="left")
        for column in ("what", "published", "ours", "ratio", "verdict"):
            rows.add_column(column, justify="left" if column in ("what", "verdict") else "right")
        for row in report.published:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            rows.add_row(row.name, _figure(row.published), _figure(row.ours), ratio, row.verdict)
        console.print(rows)
    if report.trends:
        rows = Table(title="compared with the paper's words", title_justify="left")
        for column in ("what", "rule", "ours", ""):
            rows.add_column(column)
        for trend in report.trends:
            rows.add_row(trend.name, trend.rule, trend.ours, "holds" if trend.holds else "does not hold")
        console.print(rows)
    for note in report.notes:
        console.print(f"- {note}", highlight=False)
    console.print(f"{report.seconds:.1f} s")


def _curves(report: Report, width: int) -> list[Table]:
    """A column per curve, or a row when there are too many; several tables where one does not fit the width."""
    values = {name: dict(points) for name, points in report.series.items()}
    places = sorted({x for points in values.values() for x in points})
    rows = [[report.x_label, *(_place(report, x) for x in places)]]
    rows += [[name, *(_point(report, name, x) for x in places)] for name in values]
    if _has_intervals(report):
        rows.append(["instances", *(instances_at(report, x) for x in places)])
    turned = len(values) <= MOST_COLUMNS or len(places) > len(values)
    if turned:
        rows = [list(column) for column in zip(*rows, strict=True)]
    tables: list[Table] = []
    for n, chosen in enumerate(_fitting(rows, width)):
        table = Table(title=None if n else f"{report.figure}: {report.y_label}", title_justify="left")
        table.add_column(rows[0][0], justify="right" if turned else "left", max_width=MOST_LETTERS)
        for column in chosen:
            table.add_column(rows[0][column], justify="right", width=_letters([row[column] for row in rows]))
        for row in rows[1:]:
            table.add_row(row[0], *(row[column] for column in chosen))
        tables.append(table)
    return tables


def _letters(column: Sequence[str]) -> int:
    """The heading may be broken between words, numbers may not."""
    return max(len(cell) for cell in (*column[0].split(), *column[1:], ""))


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns of numbers that fit beside the first one, so many at a time."""
    first = min(max(len(row[0]) for row in rows), MOST_LETTERS) + FRAME_LETTERS + 1
    tables: list[list[int]] = [[]]
    free = width - first
    for n in range(1, len(rows[0])):
        needed = _letters([row[n] for row in rows]) + FRAME_LETTERS
        if needed > free and tables[-1]:
            tables.append([])
            free = width - first
        tables[-1].append(n)
        free -= needed
    return tables


def _has_intervals(report: Report) -> bool:
    """Whether any is known; else the table is spared a question mark behind every number."""
    return any(math.isfinite(s.high - s.low) for points in report.samples.values() for s in points.values())


def instances_at(report: Report, x: float) -> str:
    """How many made the points at this place; from least to most where curves differ."""
    counts = sorted({points[x].instances for points in report.samples.values() if x in points})
    return "" if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _place(report: Report, x: float) -> str:
    return report.categories[int(x)] if report.categories else f"{x:g}"


def _point(report: Report, name: str, x: float) -> str:
    """`12.3 ±0.8`; a share's interval is not even on both sides, so the longer side counts."""
    value = dict(report.series[name]).get(x)
    sample = report.samples.get(name, {}).get(x)
    if value is None or sample is None or not _has_intervals(report):
        return _figure(value)
    half = max(sample.high - sample.value, sample.value - sample.low)
    return f"{_figure(value)} ±{f'{half:.2g}' if math.isfinite(half) else '?'}"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:,.4g}"
