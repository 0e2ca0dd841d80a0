"""What brokers tell each other when a session moves, as bytes and back."""

import pytest

from metromq.federation.host.session_parcels import (
    DRAINED,
    FIRST,
    MARKED,
    PROBE,
    Piece,
    Signal,
    decode_parcel,
    encode_piece,
    encode_signal,
)


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


@pytest.mark.parametrize("senders", [None, frozenset(("b1", "b2"))], ids=["from all", "from some"])
@pytest.mark.parametrize("flags", [FIRST, FIRST | MARKED])
def test_packet_identifiers_of_a_piece(flags: int, senders: frozenset[str] | None) -> None:
    piece = Piece(
        "c", 7, flags, "user", 1, 2, 3, 4, 5, 6, incoming={9: 1234, 10: 0}, greeted_us=8, claimed_us=11, senders=senders
    )
    came = decode_parcel(encode_piece(piece))
    assert isinstance(came, Piece)
    assert came.incoming == (piece.incoming if flags & MARKED else {9: 0, 10: 0})
    assert (came.greeted_us, came.claimed_us, came.senders) == (8, 11 if flags & MARKED else 0, senders)
