"""Brokers whose city files differ refuse each other and say what differs: linked, they would lose messages."""

import dataclasses

import pytest

from metromq.city_file import validate_city
from metromq.errors import ConfigError, ProtocolViolation
from metromq.federation.city import Areas, City, grid_city
from metromq.federation.effects import Send
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import Hello
from metromq.federation.node import Node

HERE = grid_city("geographic", count=4)
TURNED = tuple(
    dataclasses.replace(one, area=other.area) for one, other in zip(HERE.brokers, HERE.brokers[::-1], strict=True)
)


@pytest.mark.parametrize(
    ("there", "what"),
    [
        (grid_city("flood-subscriptions", count=4), "routing=flood-subscriptions there, routing=geographic here"),
        (dataclasses.replace(HERE, areas=Areas(5, 2, 1)), "k=5 there, k=4 here"),
        (dataclasses.replace(HERE, brokers=TURNED), "home-brokers="),
    ],
)
def test_a_hello_of_another_city_is_refused(there: City, what: str) -> None:
    one, other = HERE.names[:2]
    sent = [effect for effect in Node(there, other, 1, 0).peer_up(one, 0) if isinstance(effect, Send)]
    hello = next(effect.frame for effect in sent if isinstance(effect.frame, Hello))
    with pytest.raises(ProtocolViolation, match=what):
        Node(HERE, one, 1, 0).frame(other, encode_frame(hello), 0)


@pytest.mark.parametrize(
    ("axis", "word"), [("attachment", "proxy"), ("attachment", "redirect"), ("transport", "multicast")]
)
def test_choices_that_do_not_exist_yet_are_refused_by_name(axis: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f'{axis}: "{word}" does not exist yet'):
        validate_city(dataclasses.replace(HERE, **{axis: word}))  # type: ignore[arg-type]
