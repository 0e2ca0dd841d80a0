"""Ages, times and offsets as people write them."""

import pytest

from metromq.errors import UsageError
from metromq.moments import parse_since, text_of, time_of

NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(("text", "age_s"), [("90s", 90), ("10m", 600), ("2h", 7200), ("7d", 604_800)])
def test_ages(text: str, age_s: int) -> None:
    assert parse_since(text, NOW_US).time_us == NOW_US - age_s * 1_000_000


def test_times_and_offsets() -> None:
    assert parse_since("offset:1200", NOW_US).offset == 1200
    for text in ("2026-11-17T08:00:00Z", "2026-11-17T09:00:00+01:00", "2026-11-17T08:00"):
        assert text_of(parse_since(text, NOW_US).time_us) == "2026-11-17T08:00:00.000000Z"
    assert time_of(text_of(NOW_US + 123_457)) == NOW_US + 123_457


@pytest.mark.parametrize("text", ["", "soon", "10", "10x", "offset:", "-5m"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="write an age"):
        parse_since(text, NOW_US)
