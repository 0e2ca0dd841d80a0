"""What `metromq pipeline check` and `repair` say of rows that are wrong, and what to do about them."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from metromq.pipeline import Content

Spans = Sequence[tuple[int, int]]


def say_content(broker: str, content: "Content", lake: str, data: Sequence[str]) -> None:
    for text in sentences(broker, content, lake, data):
        click.echo(text, err=True)


def sentences(broker: str, content: "Content", lake: str, data: Sequence[str]) -> list[str]:
    said: list[str] = []
    if content.wrong:
        again = ["metromq", "pipeline", "repair", "--lake", lake, *(w for text in data for w in ("--data", text))]
        said.append(f"{rows_at(content.wrong)} differ from the journal. `{shlex.join(again)}` writes them again.")
    if content.foreign:
        said.append(
            f"{rows_at(content.foreign)} are other messages in the journal, which is therefore not the one that they "
            f"came from. Name the right one with --data {broker}=DIR."
        )
    if content.gone:
        said.append(
            f"{rows_at(content.gone)} could not be compared: no journal at hand holds them. "
            f"If there is one elsewhere, name it with --data {broker}=DIR."
        )
    if content.suspect:
        said.append(
            f"{rows_at(content.suspect)} of those look wrong, as older recorders wrote them: the payload begins with "
            " what a link says to its peer, or the origin is missing. Without the journal they stay as they are; "
            "the brokers that passed such a message on to no one have it right."
        )
    return [f"{broker}: {text}" for text in said]


def count_of(spans: Spans) -> int:
    return sum(last - first + 1 for first, last in spans)


def rows_at(spans: Spans, most: int = 5) -> str:
    """`7 rows (offsets 1..4, 9, 12, 15)`, and no more ranges than one wants to read."""
    texts = [str(first) if first == last else f"{first}..{last}" for first, last in spans[:most]]
    more = f" and {len(spans) - most} more ranges up to {spans[-1][1]}" if len(spans) > most else ""
    count = count_of(spans)
    plural = "" if count == 1 else "s"
    return f"{count} row{plural} (offset{plural} {', '.join(texts)}{more})"
