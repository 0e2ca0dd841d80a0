"""QoS 1 and 2 messages of ours until the server has acknowledged them; they outlive connections."""

from collections import deque

from metromq.errors import MqttError, ProtocolViolation
from metromq.protocol.wire import KIND_NAMES, PUBACK, PUBREC, Ack, Publish


class Outgoing:
    """One such message; `token` is what its publisher waits for (0: nobody waits any more)."""

    __slots__ = ("packet", "released", "sent", "token")

    def __init__(self, token: int, packet: Publish) -> None:
        self.token = token
        self.packet = packet
        self.sent = False
        self.released = False  # PUBREC came, PUBREL went


class Outbox:
    """What is under way, in the order of its sending, and what waits for room in the server's window."""

    def __init__(self) -> None:
        self.window = 0
        self._inflight: dict[int, Outgoing] = {}
        self._waiting: deque[Outgoing] = deque()
        self._ids: set[int] = set()
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._inflight) + len(self._waiting)

    def add(self, token: int, packet: Publish) -> None:
        self._waiting.append(Outgoing(token, packet))

    def due(self) -> list[Publish]:
        """The packets to send now, as far as the server's receive maximum allows [MQTT-3.3.4-7]."""
        packets: list[Publish] = []
        while self._waiting and len(self._inflight) < self.window:
            outgoing = self._waiting.popleft()
            packet = outgoing.packet
            if not packet.packet_id:
                packet.packet_id = self.reserve_id()
            if outgoing.sent:
                packet.dup = True  # [MQTT-3.3.1-1]
                packet.topic_alias = 0  # aliases end with their connection [MQTT-3.3.2-7]
            outgoing.sent = True
            self._inflight[packet.packet_id] = outgoing
            packets.append(packet)
        return packets

    def acknowledged(self, ack: Ack) -> Outgoing | None:
        """Takes a PUBACK, PUBREC or PUBCOMP; gives the message it belongs to (None: not ours).

        After a PUBREC with success the message is `released` and stays until its PUBCOMP; otherwise it is done.
        """
        outgoing = self._inflight.get(ack.packet_id)
        if outgoing is None:
            return None
        if (ack.kind == PUBACK) != (outgoing.packet.qos == 1):
            raise ProtocolViolation(f"{KIND_NAMES[ack.kind]} for a message of QoS {outgoing.packet.qos}")
        if ack.kind == PUBREC and ack.reason_code < 0x80:
            outgoing.released = True
        else:
            del self._inflight[ack.packet_id]
            self.free_id(ack.packet_id)
            outgoing.released = False
        return outgoing

    def resume(self) -> list[int]:
        """For a session that the server kept: puts what was sent back in front, and lists whose PUBREL is due."""
        released = {number: outgoing for number, outgoing in self._inflight.items() if outgoing.released}
        again = [outgoing for outgoing in self._inflight.values() if not outgoing.released]
        self._inflight = released
        self._waiting.extendleft(reversed(again))
        return list(released)

    def forget(self) -> None:
        """For a session that the server has not: its state must go here too [MQTT-3.2.2-5]."""
        for outgoing in (*self._inflight.values(), *self._waiting):
            self.free_id(outgoing.packet.packet_id)
        self._inflight.clear()
        self._waiting.clear()

    def abandon(self) -> list[int]:
        """The connection is gone: the tokens of all who wait, who will wait no more."""
        tokens = []
        for outgoing in (*self._inflight.values(), *self._waiting):
            if outgoing.token:
                tokens.append(outgoing.token)
                outgoing.token = 0
        return tokens

    def reserve_id(self) -> int:
        """A packet identifier that is not in use [MQTT-2.2.1-3]."""
        for _ in range(65535):
            self._last_id = self._last_id % 65535 + 1
            if self._last_id not in self._ids:
                self._ids.add(self._last_id)
                return self._last_id
        raise MqttError("all 65535 packet identifiers are in use; wait for acknowledgements")

    def free_id(self, packet_id: int) -> None:
        self._ids.discard(packet_id)
