"""Windows as bytes: what a broker counted comes back, and versions may differ."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.telemetry.windows import LINK, TOPIC, TelemetryRow, TelemetryWindow, decode_window

COUNTS = st.integers(0, 1 << 62)
ROWS = st.builds(
    TelemetryRow,
    st.sampled_from([TOPIC, LINK]),
    st.text(max_size=8),
    st.text(max_size=8),
    *[COUNTS] * 12,
    st.lists(COUNTS, max_size=3).map(tuple),
)
WINDOWS = st.builds(
    TelemetryWindow, st.text(), st.text(), COUNTS, st.floats(0, 1e6), COUNTS, st.lists(ROWS, max_size=3).map(tuple)
)


@given(WINDOWS)
@settings(deadline=None)
def test_what_was_counted_comes_back(window: TelemetryWindow) -> None:
    assert decode_window(window.encode()) == window


def test_a_newer_broker_may_count_more_and_an_older_one_less() -> None:
    fields = json.loads(TelemetryWindow("b1", "north", 1, 10.0, 2, (TelemetryRow(TOPIC, "a", opened=3),)).encode())
    fields["rows"][0]["colour"] = {"red": 1}
    fields["weather"] = "rain"
    del fields["rows"][0]["closed"]
    assert decode_window(json.dumps(fields).encode()).rows == (TelemetryRow(TOPIC, "a", opened=3),)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": [{"subject": TOPIC, "name": "a", "opened": "3"}]}, r"rows\[0\]\.opened: must be a whole number"),
        ({"rows": [{"subject": TOPIC, "name": "a", "opened": 1 << 64}]}, r"rows\[0\]\.opened: must be at most"),
        ({"rows": [{"subject": TOPIC}]}, r"rows\[0\]\.name: is missing"),
        ({"seconds": float("nan")}, "seconds: must be a finite number"),
    ],
)
def test_what_no_broker_wrote_is_named(change: dict[str, object], problem: str) -> None:
    fields = json.loads(TelemetryWindow("b1", "north", 1, 10.0, 2, ()).encode())
    with pytest.raises(ValueError, match=problem):
        decode_window(json.dumps({**fields, **change}).encode())
