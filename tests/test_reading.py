"""Typed data: what fits is built, what does not is named, and nothing that a file may hold is a traceback."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.config import Config
from metromq.constraints import NotEmpty, Range
from metromq.documents import parse_document
from metromq.errors import ConfigError
from metromq.federation.city import City
from metromq.planning.problem_files import PlacementFile
from metromq.reading import meant, read_data
from tests.planning.problems import document


@dataclass(frozen=True, slots=True)
class Inner:
    name: Annotated[str, NotEmpty()]
    share: Annotated[float, Range(0, 1)] = 0.5


@dataclass(frozen=True, slots=True)
class Outer:
    count: int
    rate: float = 1.0
    on: bool = False
    kind: Literal["a", "b"] = "a"
    where: Path | None = None
    pair: tuple[str, int] | None = None
    inner: tuple[Inner, ...] = ()
    rates: Mapping[str, Mapping[str, Annotated[float, Range(0)]]] = field(default_factory=dict)


def test_what_fits_is_built() -> None:
    raw = {
        "count": 3.0,  # JSON knows no whole numbers
        "rate": 2,
        "on": True,
        "kind": "b",
        "where": "x/y",
        "pair": ["n", 1],
        "inner": [{"name": "i"}],
        "rates": {"one": {"two": 3}},
    }
    built = read_data(Outer, raw)
    assert built == Outer(3, 2.0, True, "b", Path("x/y"), ("n", 1), (Inner("i"),), {"one": {"two": 3.0}})
    assert (type(built.count), type(built.rate), type(built.rates["one"]["two"])) == (int, float, float)
    assert read_data(Outer, {"count": 1}) == Outer(1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"count": 10**400}, "count: must be at most 9223372036854775807, not a number with more than 40 digits"),
        ({"count": -(1 << 64)}, "count: must be at least -9223372036854775807, not -18446744073709551616"),
        ({"count": 1.5}, "count: must be a whole number, not 1.5"),
        ({"count": float("nan")}, "count: must be a whole number, not nan"),
        ({"count": float("inf")}, "count: must be a whole number, not inf"),
        ({"count": True}, "count: must be a whole number, not true"),
        ({"count": "3"}, 'count: must be a whole number, not "3"'),
        ({"count": None}, "count: must be a whole number, not nothing"),
        ({"rate": 10**400}, "rate: must be at most 1e+15, not a number with more than 40 digits"),
        ({"rate": 1e300}, "rate: must be at most 1e+15, not 1e+300"),
        ({"rate": -(10**400)}, "rate: must be at least -1e+15, not a number with more than 40 digits"),
        ({"rate": float("nan")}, "rate: must be a finite number, not nan"),
        ({"rate": float("-inf")}, "rate: must be a finite number, not -inf"),
        ({"rate": [1]}, "rate: must be a number, not a list"),
        ({"on": 1}, "on: must be true or false, not 1"),
        ({"kind": "c"}, 'kind: must be one of a, b, not "c"'),
        ({"kind": ["a"]}, "kind: must be one of a, b, not a list"),
        ({"where": ""}, 'where: must be a path, not ""'),
        ({"where": "a\0b"}, r'where: must be a path, not "a\x00b"'),
        ({"pair": ["n"]}, "pair: must be a list of 2 values, and has 1"),
        ({"pair": ["n", "m"]}, 'pair[1]: must be a whole number, not "m"'),
        ({"inner": {"name": "i"}}, "inner: must be a list, not a table"),
        ({"inner": [{}]}, "inner[0].name: is missing and has no default"),
        ({"inner": [{"name": ""}]}, "inner[0].name: must not be empty"),
        ({"inner": [{"name": "\ud800"}]}, "inner[0].name: holds half a character (surrogate)"),
        ({"inner": [{"name": "i", "share": 2}]}, "inner[0].share: must be from 0 to 1, not 2"),
        ({"inner": [{"name": "i", "shore": 0}]}, "inner[0].shore: unknown field; did you mean share?"),
        ({"inner": ["x" * 99]}, f'inner[0]: must be a table, not "{"x" * 37}..." (99 characters)'),
        ({"rates": {"one": {"two": -1}}}, "rates.one.two: must be at least 0, not -1"),
        ({"rates": {"one": 2}}, "rates.one: must be a table, not 2"),
        ({"k" * 10_000: 2}, f"{'k' * 37}...: unknown field; the fields are count, inner, kind, on, pair, rate"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_data(Outer, {"count": 1, **change})
    assert str(caught.value).startswith(problem)
    with pytest.raises(ConfigError, match=r"^file: "):
        read_data(Outer, {"count": 1, **change}, "file")


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_data(Outer, {"rate": "x", "inner": [{"name": 1}, {"nme": "n"}]}, "f")
    assert str(caught.value).splitlines() == [
        "f: 5 problems:",
        '  f: rate: must be a number, not "x"',
        "  f: inner[0].name: must be text, not 1",
        "  f: inner[1].nme: unknown field; did you mean name?",
        "  f: inner[1].name: is missing and has no default",
        "  f: count: is missing and has no default",
    ]


def test_a_newer_version_may_say_more() -> None:
    raw = {"count": 1, "colour": "red", "inner": [{"name": "i", "weight": {"kg": 1}}]}
    assert read_data(Outer, raw, ignore_unknown=True) == Outer(1, inner=(Inner("i"),))
    with pytest.raises(ConfigError, match="2 problems"):
        read_data(Outer, raw)


def test_hints() -> None:
    assert meant("naem", ["name", "rate"]) == "did you mean name?"
    assert meant("x" * 1_000_000, ["name"]) == "use one of name"
    assert meant("x", [f"n{number:02}" for number in range(40)]).endswith("n29 ...")
    assert meant("x", []) == "there are none"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 1 << 63, 0, -1]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "\0", "127.0.0.1:" + "9" * 5000, "x" * 300, "1/2", "mast", "air"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
CITY: dict[str, Any] = {
    "name": "c",
    "routing": "flood-publications",
    "square": {"south": 0, "north": 1},
    "areas": {"k": 4},
    "membership": {"hello_interval_ms": 500},
    "links": {"secret": "sixteen bytes, no less"},
    "sites": [{"name": "s"}],
    "brokers": [{"name": "b1", "listen": "127.0.0.1:1883", "area": "1/0", "site": "s"}],
}
BROKER: dict[str, Any] = {
    "name": "b",
    "data_dir": "d",
    "listeners": [{"kind": "tcp", "host": "::1", "port": 0, "cert_file": "c"}],
    "auth": {"password_file": "p"},
    "limits": {"max_qos": 1, "connect_timeout_s": 3, "max_inflight": 5},
    "journal": {"keep_s": 5},
    "recorder": {"lake": "l"},
    "log": {"level": "info"},
}


def places(raw: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ():
        found += places(value, (*path, key))
    return found


def refusal(call: Callable[[], object]) -> ConfigError | None:
    """The only error there may be."""
    try:
        call()
    except ConfigError as error:
        return error
    return None


@given(st.data())
@settings(deadline=None, max_examples=600)
def test_no_value_anywhere_is_a_traceback(data: st.DataObject) -> None:
    kind, raw = data.draw(st.sampled_from([(Config, BROKER), (City, CITY), (PlacementFile, document())]), label="kind")
    changed: Any = json.loads(json.dumps(raw))
    *outer, last = data.draw(st.sampled_from(places(raw)), label="place")
    inside = changed
    for key in outer:
        inside = inside[key]
    inside[last] = data.draw(VALUES, label="value")
    error = refusal(lambda: read_data(kind, changed, "file"))
    assert error is None or error.where.startswith("file")
    assert error is None or len(error.problem.encode()) < 10_000


@given(st.text(alphabet='{}[]":,.=\n0123456789eE-+ntfabNaI#', max_size=40), st.sampled_from(["TOML", "JSON"]))
@settings(deadline=None, max_examples=500)
def test_no_text_is_a_traceback(text: str, form: str) -> None:
    error = refusal(lambda: parse_document(text, form, "file"))
    assert error is None or error.where.startswith("file")
