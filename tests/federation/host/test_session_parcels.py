"""What brokers tell each other when a session moves, as bytes and back."""

import pytest

from metromq.federation.host.session_parcels import DRAINED, PROBE, Signal, decode_parcel, encode_signal


@pytest.mark.parametrize(
    "signal",
    [
        Signal(DRAINED, "c", 7),
        Signal(PROBE, "c", 7, "b1"),
        Signal(PROBE, "c", 7, "b1", (("plain/#", 1_500), ("$share/g/#", 0))),
    ],
    ids=["drained", "probe", "probe with filters"],
)
def test_signals(signal: Signal) -> None:
    assert decode_parcel(encode_signal(signal)) == signal
