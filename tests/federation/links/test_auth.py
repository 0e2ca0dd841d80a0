"""Peers prove the city secret to each other; nobody else gets through, with replayed proofs neither."""

import pytest

from metromq.errors import PeerViolation
from metromq.federation.links.auth import DialledSide, Dialler

SECRET = b"a city secret of some length"


def pair(secret: bytes = SECRET, other: bytes = SECRET) -> tuple[Dialler, DialledSide]:
    return Dialler(secret, "b1", "b2", b"d" * 32), DialledSide(other, "b2", "b1", b"l" * 32)


def test_both_sides_are_convinced() -> None:
    dialler, listener = pair()
    listener.check(dialler.answer(listener.challenge(dialler.connect_data())))


def test_a_wrong_secret_convinces_nobody() -> None:
    dialler, listener = pair(other=b"another secret of some length")
    challenge = listener.challenge(dialler.connect_data())
    with pytest.raises(PeerViolation, match="b2 cannot prove the city secret") as caught:
        dialler.answer(challenge)
    assert caught.value.reason_code == 0x87
    stranger, listener = Dialler(b"guess" * 8, "b1", "b2", b"d" * 32), pair()[1]
    challenge = listener.challenge(stranger.connect_data())
    with pytest.raises(PeerViolation, match="b1 cannot prove"):
        listener.check(challenge[32:])
    with pytest.raises(PeerViolation):
        listener.check(b"")


def test_a_proof_fits_one_conversation_only() -> None:
    dialler, listener = pair()
    answer = dialler.answer(listener.challenge(dialler.connect_data()))
    later = DialledSide(SECRET, "b2", "b1", b"m" * 32)
    later.challenge(dialler.connect_data())
    with pytest.raises(PeerViolation):
        later.check(answer)
    with pytest.raises(PeerViolation):
        DialledSide(SECRET, "b2", "b1", b"d" * 32).challenge(dialler.connect_data())
    with pytest.raises(PeerViolation):
        DialledSide(SECRET, "b2", "b1", b"n" * 32).check(answer)


@pytest.mark.parametrize(
    ("dialler", "listener"),
    [
        ((b"new" * 8, b"old" * 8), (b"old" * 8, None)),
        ((b"old" * 8, None), (b"new" * 8, b"old" * 8)),
        ((b"new" * 8, b"old" * 8), (b"new" * 8, b"old" * 8)),
        ((b"new" * 8, None), (b"new" * 8, b"old" * 8)),
        ((b"new" * 8, b"old" * 8), (b"new" * 8, None)),
    ],
)
def test_while_the_secret_changes_either_is_good(
    dialler: tuple[bytes, bytes | None], listener: tuple[bytes, bytes | None]
) -> None:
    one = Dialler(dialler[0], "b1", "b2", b"d" * 32, dialler[1])
    other = DialledSide(listener[0], "b2", "b1", b"l" * 32, listener[1])
    other.check(one.answer(other.challenge(one.connect_data())))


def test_an_old_secret_that_only_one_side_has_opens_nothing() -> None:
    one = Dialler(b"old" * 8, "b1", "b2", b"d" * 32)
    other = DialledSide(b"new" * 8, "b2", "b1", b"l" * 32)
    with pytest.raises(PeerViolation):
        one.answer(other.challenge(one.connect_data()))
    answer = one.answer(DialledSide(b"old" * 8, "b2", "b1", b"l" * 32).challenge(one.connect_data()))
    with pytest.raises(PeerViolation):
        other.check(answer)
