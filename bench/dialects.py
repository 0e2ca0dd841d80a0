"""How clients of the bench speak: MQTT, or nats-server's own protocol. What both do is the same work, byte for byte
of payload: ready-made packets go out, and what is delivered is counted by its length."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import generator


@dataclass(frozen=True, slots=True)
class Dialect:
    """`connect(port, name, filters)`, `packet(topic, payload)`: with an empty payload a random one, and the number of
    bytes in which a message on a topic, with a payload of so many, is delivered; the last `tail` are no payload."""

    connect: Callable[[int, str, Sequence[str]], socket.socket]
    packet: Callable[[str, bytes], bytes]
    delivered_bytes: Callable[[str, int], int]
    tail: int = 0
    settle: Callable[[Sequence[socket.socket]], None] = lambda clients: None  # before what is delivered is counted


def _mqtt_connect(port: int, name: str, filters: Sequence[str]) -> socket.socket:
    return generator.connect(port, name, filters=filters)


def _mqtt_packet(topic: str, payload: bytes) -> bytes:
    return generator.packet(topic, payload=payload)


def _mqtt_delivered(topic: str, payload_bytes: int) -> int:
    return len(generator.packet(topic, payload=bytes(payload_bytes)))


MQTT = Dialect(_mqtt_connect, _mqtt_packet, _mqtt_delivered)


def _nats_connect(port: int, name: str, filters: Sequence[str]) -> socket.socket:
    """Subscriptions have numbers of one length, so that all deliveries of a topic have one length."""
    client = generator.dial(port)
    lines = ['CONNECT {"verbose":false,"pedantic":false,"echo":false,"headers":false}\r\n']
    lines += [f"SUB {_subject(filter)} {number:06}\r\n" for number, filter in enumerate(filters)]
    client.sendall("".join([*lines, "PING\r\n"]).encode())
    answer = b""
    while not answer.endswith(b"PONG\r\n"):
        answer += generator.some(client)
    client.setblocking(False)
    return client


def _subject(topic: str) -> str:
    return topic.replace("/", ".").replace("#", ">").replace("+", "*")


def _nats_packet(topic: str, payload: bytes) -> bytes:
    payload = payload or generator.random_payload()
    return b"PUB %s %d\r\n%s\r\n" % (_subject(topic).encode(), len(payload), payload)


def _nats_delivered(topic: str, payload_bytes: int) -> int:
    return len(f"MSG {_subject(topic)} 000000 {payload_bytes}\r\n\r\n") + payload_bytes


def _nats_settle(clients: Sequence[socket.socket]) -> None:
    """The server asks each client once, two seconds after it came, whether it is there, and then not for minutes."""
    for client in clients:
        client.settimeout(generator.ANSWER_S)
        asked = b""
        while not asked.endswith(b"PING\r\n"):
            asked += generator.some(client)
        client.sendall(b"PONG\r\n")
        client.setblocking(False)


NATS = Dialect(_nats_connect, _nats_packet, _nats_delivered, 2, _nats_settle)
