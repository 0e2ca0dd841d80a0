"""Payloads that are nested too deep for Java: counting finds those that a parser would find."""

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.pipeline import nesting
from metromq.pipeline.nesting import LEVELS, is_deep, without_deep

FEW = 3  # levels, where inputs are generated


def depth_of(value: Any) -> int:
    """Twin, for JSON."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


TEXTS = st.text('[]{}"\\a:', max_size=6)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_as_deep_as_json_is(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "LEVELS", FEW)
        text = json.dumps(value).encode()
        assert is_deep(text) == (depth_of(value) > FEW)
        assert is_deep(b" \n\t" + text) == is_deep(text)


def test_the_generator_makes_both_kinds_with_brackets_in_strings() -> None:
    """What the test above is fed must be able to fail it."""
    dice = random.Random(1)

    def made(levels: int) -> Any:
        if levels == 0:
            return "".join(dice.choices('[]{}"\\', k=6))
        return [made(levels - 1), "]]"] if dice.random() < 0.5 else {'"[[\\': made(levels - 1)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "LEVELS", FEW)
        for levels in range(2 * FEW):
            for _ in range(50):
                value = made(levels)
                assert depth_of(value) == levels
                assert is_deep(json.dumps(value).encode()) == (levels > FEW)


@pytest.mark.parametrize(
    ("payload", "deep"),
    [
        (b"[" * LEVELS, False),
        (b"[" * (LEVELS + 1), True),  # no JSON, but who reads it is as deep before that shows
        (b'{"a":' * (LEVELS + 1), True),
        (b"[" + b"{}," * 5000 + b"{}]", False),
        (b'["' + b"[" * 900, False),
        (b'["\\"' + b"[" * 900, False),
        (b'["\\\\"' + b"[" * 900, True),
        (b"\xef\xbb\xbf" + b"[" * 900, True),
        (b"on" + b"[" * 900, False),
        (b"", False),
    ],
)
def test_cases(payload: bytes, deep: bool) -> None:
    assert is_deep(payload) == deep
    for payloads in (pa.array([b"1", payload, None], pa.binary()), pa.chunked_array([[b"1"], [payload, None]])):
        assert without_deep(payloads).to_pylist() == [b"1", None if deep else payload, None]


def test_many_payloads() -> None:
    """More than are looked at together."""
    deep, wide = b"[" * 900, b"[" + b"[]," * 500 + b"1]"
    payloads = [deep if number % 7 == 0 else wide if number % 3 else b"1" for number in range(5000)]
    found = without_deep(pa.array(payloads, pa.binary())).to_pylist()
    assert found == [None if payload == deep else payload for payload in payloads]
