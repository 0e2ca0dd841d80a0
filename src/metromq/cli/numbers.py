"""Numbers in options."""

import math
from typing import Any

import click

from metromq.reading import shorten


class Number(click.FloatRange):
    """A number within bounds: neither `nan`, which no comparison refuses, nor infinite."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(min=least, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super(click.FloatRange, self).convert(value, param, ctx)
        if not isinstance(found, float) or not math.isfinite(found):
            self.fail(f"{shorten(str(value))} is not a finite number", param, ctx)
        return super().convert(found, param, ctx)


AMOUNT = Number(0, 1e12)  # what a manager takes
