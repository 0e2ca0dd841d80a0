"""Packets to start from, and what can be done to them."""

import random
from collections.abc import Callable, Sequence

from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT31,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from metromq.protocol.wire.values import varint

VERSIONS = (MQTT31, MQTT311, MQTT5)
NAMES = ("ann", "bob", "cy")
TOPICS = ("a", "a/b", "a/b/c", "ä/ö", "$SYS/x", "/", "deep/" * 20 + "end")
FILTERS = ("a", "a/+", "a/#", "#", "+/+", "$share/g/a/#", "$SYS/#", "/", "+")
USER = (("k", "v"), ("k", "w"))
# Bytes that break naive code: length limits, UTF-8 surrogates, overlong forms, the null character.
ODD = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"+",
    b"#",
    b"$",
)


def _properties(version: int, **values: object) -> Properties:
    properties = Properties()
    if version == MQTT5:
        for name, value in values.items():
            setattr(properties, name, value)
    return properties


def connects(version: int) -> list[bytes]:
    """CONNECT packets that the broker accepts."""
    will = Will("a/will", b"gone", 1, True, 5 if version == MQTT5 else 0)
    rich = _properties(version, session_expiry_s=60, receive_maximum=3, topic_alias_maximum=2, user=USER)
    small = _properties(version, maximum_packet_size=60, request_problem_information=False)
    packets = [Connect(name, version, number == 0) for number, name in enumerate(NAMES)]
    packets.append(Connect("ann", version, False, 10, "user", b"secret", will, rich))
    packets.append(Connect("bob", version, True, 1, None, None, will, small))
    packets.append(Connect("cy", version, False, properties=_properties(version, session_expiry_s=0xFFFFFFFF)))
    if version == MQTT5:
        packets.append(Connect("", version, True))
        packets.append(Connect("ann", version, properties=_properties(version, auth_method="X", auth_data=b"?")))
    return [encode(packet, version) for packet in packets]


def packets(version: int) -> list[bytes]:
    """Packets of every kind, most of them valid at some moment on an open connection."""
    found: list[Packet] = [Pingreq(), Pingresp(), Disconnect(), Connack(), Suback(1, [0]), Unsuback(1, [0])]
    for number, topic in enumerate(TOPICS):
        for qos in range(3):
            found.append(Publish(topic, b"x" * (number * 7), qos, number % 2 == 0, packet_id=(number + 1) * bool(qos)))
    for number, filter in enumerate(FILTERS):
        found.append(Subscribe(number + 1, [Subscription(filter, number % 3)]))
        found.append(Unsubscribe(number + 1, [filter]))
    for kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        found += [Ack(kind, packet_id) for packet_id in (1, 2, 3, 65535)]
    if version == MQTT5:
        found += _newer()
    return [encode(packet, version) for packet in found]


def _newer() -> list[Packet]:
    bits = _properties(MQTT5, user=USER, reason_string="so")
    unchanged = b"\x01\x01\x03\x00\x01t\x08\x00\x01r\x09\x00\x02cd\x26\x00\x01k\x00\x01v"
    return [
        Publish("a/b", b"p", 1, False, False, 7, unchanged, 30, 1),
        Publish("", b"p", 0, topic_alias=1),
        Publish("a", b"p", 2, True, False, 9, b"", 0, 2),
        Subscribe(3, [Subscription("a/#", 2, True, True, 1), Subscription("#", 1, False, False, 2)], 5, _properties(5)),
        Unsubscribe(4, ["a/#", "#"], _properties(MQTT5, user=USER)),
        Ack(PUBACK, 1, 0x80, bits),
        Ack(PUBREC, 1, 0x10),
        Ack(PUBREL, 1, 0x92, bits),
        Auth(0x18, _properties(MQTT5, auth_method="X", auth_data=b"!")),
        Auth(0x19, _properties(MQTT5, auth_method="X")),
        Disconnect(0x04, _properties(MQTT5, session_expiry_s=9, user=USER)),
    ]


def flip(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chosen.choice((1, 1, 2, 8))):
        changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
    return bytes(changed)


def cut(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: chosen.randrange(len(data))] or data[:1]


def drop(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = chosen.randrange(len(data))
    return data[:start] + data[start + chosen.randint(1, 4) :] or data[:1]


def insert(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = chosen.randrange(len(data) + 1)
    piece = chosen.choice(ODD) if chosen.random() < 0.7 else chosen.randbytes(chosen.randint(1, 9))
    return data[:at] + piece + data[at:]


def replace(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = chosen.randrange(len(data))
    piece = chosen.choice(ODD)
    return data[:at] + piece + data[at + len(piece) :]


def splice(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = chosen.choice(others)
    return data[: chosen.randrange(len(data)) + 1] + other[chosen.randrange(len(other)) :]


def repeat(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = chosen.randrange(len(data))
    return data[:start] + data[start : start + 8] * chosen.randint(2, 20) + data[start:]


def noise(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return chosen.randbytes(chosen.randint(1, 40))


MUTATIONS: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    flip,
    flip,
    cut,
    drop,
    insert,
    replace,
    splice,
    repeat,
    noise,
)


def mutate(chosen: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to three changes; most results keep a true length, so that the parser behind the framing is reached."""
    for _ in range(chosen.choice((1, 1, 1, 2, 3))):
        data = chosen.choice(MUTATIONS)(chosen, data, others)
    if chosen.random() < 0.7 and len(data) >= 2:
        body = data[2:]
        data = data[:1] + varint(len(body)) + body
    return data
