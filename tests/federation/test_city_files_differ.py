"""Brokers whose city files differ refuse each other and say what differs: linked, they would lose messages."""

import dataclasses

import pytest

from metromq.city_file import validate_city
from metromq.errors import ConfigError, ProtocolViolation
from metromq.federation.city import Areas, City, Square, grid_city
from metromq.federation.effects import Send
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import VERSION, Hello, offer_text
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
    ("there", "what"),
    [
        (dataclasses.replace(HERE, brokers=TURNED), "area 0/0: b30 there, b00 here; .*; 11 more areas"),
        (
            dataclasses.replace(HERE, square=Square(1.0, 2.0, 3.0)),
            "the map: 1.0,2.0,3.0,1.0 there, 0.0,0.0,1.0",
        ),
        (dataclasses.replace(grid_city("central", count=4), areas=HERE.areas), "central=b00 there, central=- here"),
    ],
)
def test_the_home_brokers_are_told_by_their_names(there: City, what: str) -> None:
    """Both values of what differs, and no digest, which nobody could look up."""
    one, other = HERE.names[:2]
    far, near = Node(there, other, 1, 0), Node(HERE, one, 1, 0)
    far.greetings.versions.offered(one, offer_text(VERSION))
    sent = [effect for effect in far.peer_up(one, 0) if isinstance(effect, Send)]
    hello = next(effect.frame for effect in sent if isinstance(effect.frame, Hello))
    with pytest.raises(ProtocolViolation, match=what) as caught:
        near.frame(other, encode_frame(hello), 0)
    assert "home-brokers=" not in str(caught.value)
    assert "secret" not in hello.city


def test_who_has_the_same_file_is_told_once() -> None:
    one, other = HERE.names[:2]
    far, near = Node(HERE, other, 1, 0), Node(HERE, one, 1, 0)
    for node, peer in ((far, one), (near, other)):
        node.greetings.versions.offered(peer, offer_text(VERSION))
    sizes = []
    for now_us in range(0, 3_000_000, 500_000):
        for node, heard_by, name in ((far, near, one), (near, far, other)):
            effects = node.peer_up(name, now_us) if not now_us else node.tick(now_us)
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.frame, Hello) and effect.peer == name:
                    sizes.append(len(effect.frame.city))
                    heard_by.frame(node.name, encode_frame(effect.frame), now_us)
    assert sizes[0] > sizes[-1] == len(HERE.identity)


@pytest.mark.parametrize(
    ("axis", "word"), [("attachment", "proxy"), ("attachment", "redirect"), ("transport", "multicast")]
)
def test_choices_that_do_not_exist_yet_are_refused_by_name(axis: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f'{axis}: "{word}" does not exist yet'):
        validate_city(dataclasses.replace(HERE, **{axis: word}))  # type: ignore[arg-type]
