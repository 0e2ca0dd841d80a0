"""Families of instances by name and number, as a user gives them: `tau=150,dsd=80,price=300,greedy=kind`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from metromq.errors import UsageError
from metromq.lab.delegation.instances import CHOSEN, PRINTED_MW_PER_MBPS, Family

LEAST_MBPS, MOST_MBPS = 0.1, 10_000.0  # without any traffic nothing can be saved; a link has no more
MOST_PRICE = 1e6
MOST_SERVICES = 100
ORDERS = {"greedy": {"kind": True, "all": False}, "random": {"shuffled": True, "listed": False}}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of `--family`: which one of Family it sets, how its text is read, and how it is shown."""

    target: str
    read: Callable[[str], Any]
    show: Callable[[Any], float | int | str]


def _number(low: float, high: float, factor: float = 1.0) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(text)
        return value * factor

    return read


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return read


def _order(name: str, target: str) -> Field:
    words = ORDERS[name]

    def read(text: str) -> bool:
        return words[text]

    return Field(target, read, lambda value: next(word for word, meant in words.items() if meant == value))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


FIELDS: dict[str, Field] = {
    "tau": Field("client_mbps", _number(LEAST_MBPS, MOST_MBPS), _rounded),
    "dsd": Field("user_mbps", _number(LEAST_MBPS, MOST_MBPS), _rounded),
    "dst": Field("topic_mbps", _number(LEAST_MBPS, MOST_MBPS), _rounded),
    "price": Field(
        "network_mw_per_mbps",
        _number(0, MOST_PRICE, PRINTED_MW_PER_MBPS),
        lambda value: _rounded(value / PRINTED_MW_PER_MBPS),
    ),
    "services": Field("services", _whole(1, MOST_SERVICES), int),
    "utilisation": Field("utilisation", _number(0, 100, 0.01), lambda value: _rounded(100 * value)),
    "greedy": _order("greedy", "greedy_by_kind"),
    "random": _order("random", "random_shuffled"),
}
KINDS = {
    **dict.fromkeys(("tau", "dsd", "dst"), f"a number of Mbps from {LEAST_MBPS:g} to {MOST_MBPS:g}"),
    "price": f"a number from 0 to {MOST_PRICE:g}, times the printed price",
    "services": f"a whole number from 1 to {MOST_SERVICES}",
    "utilisation": "a number from 0 to 100, in percent",
    "greedy": "kind or all",
    "random": "shuffled or listed",
}


def family_of(text: str | None, varied: str = "") -> Family:
    """The family of the figures, but for what the text names; a field that the figure itself varies is refused."""
    found: dict[str, Any] = {}
    for part in text.split(",") if text is not None else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        field = FIELDS.get(name)
        if field is None or not equals:
            raise UsageError(f"--family: {part.strip()!r} is none of {', '.join(f'{known}=...' for known in FIELDS)}")
        if field.target in found:
            raise UsageError(f"--family: {name} is there twice")
        if name == varied:
            raise UsageError(f"--family: {name} is what this figure varies; leave it out")
        try:
            found[field.target] = field.read(value)
        except (ValueError, KeyError):
            raise UsageError(f"--family: {name} must be {KINDS[name]}, not {value!r}") from None
    return replace(CHOSEN, **found)


def shown(family: Family, varied: str = "") -> dict[str, float | int | str]:
    """The fields as `--family` takes them."""
    return {name: field.show(getattr(family, field.target)) for name, field in FIELDS.items() if name != varied}


def as_text(family: Family, varied: str = "") -> str:
    return ",".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in shown(family, varied).items()
    )
