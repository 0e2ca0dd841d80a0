"""What a peer broker sends over a link: parcels of the federation, each in a PUBLISH, and signs of life."""

from typing import Final, final

from metromq.errors import ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.replay import FETCH_TOPIC
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.output import ClientOutput
from metromq.protocol.wire.packets import MQTT5, PUBACK, Disconnect, Packet, Pingreq, Publish

PINGRESP_BYTES: Final = b"\xd0\x00"
MAX_TOPICS: Final = 8  # that are remembered: a link has fewer


@final
class _AckToPeer(Waiter):
    """PUBACK of a batch, which leaves when the journal has its messages."""

    def __init__(self, output: ClientOutput, counters: BrokerCounters, packet_id: int) -> None:
        self.output = output
        self.counters = counters
        self.packet_id = packet_id

    def committed(self) -> None:
        self.output.acknowledge(PUBACK, self.packet_id, 0)

    def failed(self) -> None:
        self.counters.refused += 1
        self.output.acknowledge(PUBACK, self.packet_id, reasons.QUOTA_EXCEEDED)


@final
class PeerIncoming:
    """One peer's side of a link; `is_reader`: it only reads this broker's journal."""

    def __init__(self, connection: NetworkConnection, hub: Hub, peer: str, is_reader: bool) -> None:
        self._connection = connection
        self._output = connection.output
        self._hub = hub
        self.peer = peer  # the broker at the other end
        self.is_reader = is_reader
        self._ear = hub.city.federation.ear()
        self._topics: dict[bytes, str] = {}  # on which parcels have come

    def parcel(self, first: int, data: bytes, start: int, stop: int) -> bool:
        """The short way: a PUBLISH of MQTT 5 without properties, on a topic that has come before; False: it is none."""
        topic_end = start + 2 + ((data[start] << 8) | data[start + 1]) if stop - start >= 2 else stop
        body = topic_end + 2 if first == 0x32 else topic_end
        if body >= stop or data[body] or (first != 0x32 and first != 0x30):
            return False
        topic = self._topics.get(data[start + 2 : topic_end])
        packet_id = ((data[topic_end] << 8) | data[topic_end + 1]) if first == 0x32 else 0
        if topic is None or (first == 0x32 and not packet_id):
            return False
        self._hub.counters.packets_received += 1
        self._arrived(topic, data[body + 1 : stop], packet_id)
        return True

    def packet(self, packet: Packet) -> None:
        """Any other one."""
        if isinstance(packet, Publish) and packet.topic == FETCH_TOPIC:
            self._hub.replay.fetch(self._connection, None, packet)
        elif isinstance(packet, Publish) and not self.is_reader:
            if len(self._topics) < MAX_TOPICS and self._output.version == MQTT5:
                self._topics[packet.topic.encode()] = packet.topic
            self._arrived(packet.topic, packet.payload, packet.packet_id)
        elif isinstance(packet, Pingreq):
            self._output.write(PINGRESP_BYTES)
        elif isinstance(packet, Disconnect):
            self._connection.shut("the peer said goodbye")
            self._connection.lost(True)
        else:
            raise ProtocolViolation("a link carries only PUBLISH")

    def _arrived(self, topic: str, payload: bytes, packet_id: int) -> None:
        waiter = _AckToPeer(self._output, self._hub.counters, packet_id) if packet_id else None
        self._ear.arrived(self.peer, topic, payload, waiter)
