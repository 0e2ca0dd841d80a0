"""A newcomer and the city under a token: both learn what they should, and nobody else learns anything."""

import pytest

from metromq.errors import PeerViolation, UsageError
from metromq.federation.links.joining import Doorkeeper, Newcomer, read_token, token_number, token_text

NUMBER, KEY = b"12345678", b"k" * 24
TOKEN = token_text(NUMBER, KEY)
WISHES = {"broker": {"name": "dock", "listen": "10.0.0.9:1883"}}
WELCOME = {"plan": {"brokers": [1, 2, 3]}, "secret": "the city's secret"}


def meet(token: str = TOKEN, key: bytes = KEY, name: str = "dock") -> tuple[Newcomer, Doorkeeper, bytes]:
    newcomer = Newcomer(token, "dock", b"n" * 32, WISHES)
    keeper = Doorkeeper(key, name, b"c" * 32, newcomer.start())
    return newcomer, keeper, newcomer.answer(keeper.nonce)


def test_both_sides_hear_what_the_other_says() -> None:
    newcomer, keeper, sealed = meet()
    assert token_number(newcomer.start()) == NUMBER
    assert keeper.wishes(sealed) == WISHES
    welcome = keeper.welcome(WELCOME)
    assert newcomer.answer(welcome) == b""
    assert newcomer.welcome == WELCOME
    assert b"secret" not in welcome
    assert b"dock" not in sealed


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_what_was_changed_on_the_way_is_refused(place: int) -> None:
    newcomer, keeper, sealed = meet()
    for data, opens in ((sealed, keeper.wishes), (keeper.welcome(WELCOME), newcomer.answer)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(PeerViolation, match="token"):
            opens(bytes(damaged))
    assert newcomer.welcome is None


def test_another_token_another_name_or_an_echo_opens_nothing() -> None:
    _, keeper, sealed = meet(key=b"x" * 24)
    with pytest.raises(PeerViolation):
        keeper.wishes(sealed)
    _, keeper, sealed = meet(name="harbour")
    with pytest.raises(PeerViolation):
        keeper.wishes(sealed)
    newcomer, _, sealed = meet()
    with pytest.raises(PeerViolation):
        newcomer.answer(sealed)
    for data in (b"", sealed[:10]):
        with pytest.raises(PeerViolation):
            meet()[1].wishes(data)


def test_tokens_survive_being_copied_and_others_are_no_tokens() -> None:
    assert read_token(f" {TOKEN.upper()}\n") == (NUMBER, KEY)
    for text in ("", "abc", TOKEN[:-4], TOKEN + "aaaa", "ü" * 52):
        with pytest.raises(UsageError, match="no token"):
            read_token(text)
    with pytest.raises(PeerViolation):
        token_number(b"short")
