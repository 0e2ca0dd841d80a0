"""Live messages wait, in order and within bounds, and those that were replayed do not come twice."""

from typing import Any

import pytest

from metromq.broker.replaying import gate as gates
from metromq.broker.replaying.gate import Following, Gate, Stage
from metromq.broker.replaying.packets import PacketWriter
from metromq.protocol.session import KIND_LINK, Message
from metromq.protocol.wire import MQTT5, Framer, decode


class Client:
    """What a following writes, as payloads."""

    def __init__(self) -> None:
        self.next_offset = 10
        self.journals = {"b2": 1}
        packets = PacketWriter(MQTT5, 1 << 20, ())
        self.following = Following(
            "name", "a/#", packets, MQTT5, "b1", lambda: self.next_offset, lambda peer: self.journals.get(peer, 0)
        )
        self.got: list[bytes] = []
        self.following.write = self._write

    def _write(self, data: bytes) -> None:
        framer = Framer(1 << 20)
        framer.feed(data)
        packet = framer.next()
        assert packet is not None
        self.got.append(decode(*packet, MQTT5).payload)  # type: ignore[union-attr]

    def release(self, **told: Any) -> None:
        self.following.replayed({"limits": {}, "seen": [], "loose": [], **told})
        while self.following.held:
            self.following.release_one()
        self.following.stage = Stage.LIVE


def copy(offset: int, qos: int = 1, text: bytes = b"") -> Message:
    payload = text or b"b2/%d" % offset
    return Message("a/b", payload, qos, time_us=5, kind=KIND_LINK, origin="b2", origin_offset=offset)


def test_what_is_in_a_journal_waits_only_when_it_must() -> None:
    client = Client()
    assert client.following.takes(copy(3))  # it will be read in the journal of b2
    assert client.following.takes(Message("a/b", b"not journalled"))
    assert client.following.takes(Message("a/b", b"own", 1))
    client.following.hold()
    assert client.following.takes(copy(4))
    assert client.following.takes(copy(5))
    assert client.following.takes(Message("a/b", b"own too", 1))
    client.release(limits={"b2": 5})
    assert client.got == [b"not journalled", b"b2/5", b"own too"]


def test_late_copies_and_new_journals() -> None:
    client = Client()
    client.following.hold()
    client.release(limits={"b2": 5}, seen=[("b3", 7)])
    assert client.following.takes(copy(4))
    assert client.following.takes(copy(5))
    assert client.got == [b"b2/5"]
    client.journals["b2"] = 2  # its data directory was replaced
    assert client.following.takes(copy(1))
    assert client.got == [b"b2/5", b"b2/1"]
    assert not client.following.takes(Message("a/b", b"QoS 0"))  # the usual way


def test_qos_0_is_recognised_by_what_it_says() -> None:
    client = Client()
    client.following.hold()
    for text in (b"one", b"one", b"two"):
        client.following.takes(copy(-1, 0, text))
    import zlib

    client.release(loose=[("b2", 5, "a/b", zlib.crc32(b"one"))])
    assert client.got == [b"one", b"two"]


def test_too_many_are_left_to_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "MOST_HELD_BYTES", 5 * gates.OVERHEAD_BYTES)
    client = Client()
    client.following.hold()
    client.following.takes(Message("a/b", b"loose"))
    for offset in range(9):
        assert client.following.takes(copy(offset))
    assert client.following.stage is Stage.OVERFLOWN
    assert [message.payload for message, _ in client.following.held] == [b"loose"]
    for _ in range(9):
        client.following.takes(Message("a/b", b"loose"))
    assert len(client.following.held) <= 5


def test_a_gate_asks_the_replay_whose_filter_matches() -> None:
    client, gate = Client(), Gate()
    gate.followings = [client.following]
    assert gate.takes(Message("a/b", b""))
    assert not gate.takes(Message("c", b""))
