"""What peers send: the short way takes what the long one would take, and says the same of it."""

from hypothesis import example, given
from hypothesis import strategies as st

from metromq.errors import PeerViolation
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.federation import Federation, PeerEar
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.output import ClientOutput
from metromq.protocol.session.peer_incoming import PeerIncoming
from metromq.protocol.wire import MQTT5, MQTT311, Publish, decode, encode

TOPIC = "$metromq/batch"
Parcel = tuple[str, str, bytes, bool]


class Ear(PeerEar):
    def __init__(self) -> None:
        self.parcels: list[Parcel] = []

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None:
        self.parcels.append((peer, topic, payload, waiter is not None))


class City(Federation):
    def __init__(self) -> None:
        self.heard = Ear()

    def ear(self) -> PeerEar:
        return self.heard


def incoming(version: int = MQTT5) -> tuple[PeerIncoming, list[Parcel]]:
    """Of a peer that has sent one parcel on the topic."""
    hub, city = Hub(HubSettings()), City()
    hub.federate(city)
    output = ClientOutput(hub.dirty, 1 << 20, 1 << 20)
    output.version = version
    made = PeerIncoming(NetworkConnection(output), hub, "b2", False)
    made.packet(Publish(TOPIC, b"first", 1, packet_id=1))
    assert city.heard.parcels.pop() == ("b2", TOPIC, b"first", True)
    return made, city.heard.parcels


def bytes_of(topic: str, payload: bytes, qos: int) -> tuple[int, bytes]:
    data = encode(Publish(topic, payload, qos, packet_id=7 if qos else 0), MQTT5)
    at = 1
    while data[at] >= 0x80:
        at += 1
    return data[0], data[at + 1 :]


@given(
    st.sampled_from((TOPIC, "$metromq/run")), st.binary(max_size=300), st.sampled_from((0, 1, 2)), st.binary(max_size=4)
)
def test_a_known_topic_is_taken_by_the_short_way(topic: str, payload: bytes, qos: int, before: bytes) -> None:
    made, parcels = incoming()
    first, body = bytes_of(topic, payload, qos)
    data = before + body + b"next"
    taken = made.parcel(first, data, len(before), len(before) + len(body))
    assert taken == (topic == TOPIC and qos < 2)
    assert parcels == ([("b2", TOPIC, payload, qos > 0)] if taken else [])


@given(st.sampled_from((0x30, 0x31, 0x32, 0x33, 0x3A, 0x34)), st.integers(0, 30), st.binary(max_size=6))
@example(0x32, 2 + len(TOPIC), b"\x00\x00\x00x")  # a packet identifier of 0
@example(0x32, 2 + len(TOPIC), b"\x00\x01\x02\x01\x01x")  # a property
def test_what_the_short_way_takes_the_long_one_reads_alike(first: int, kept: int, tail: bytes) -> None:
    body = bytes_of(TOPIC, b"x", 1)[1][:kept] + tail
    made, parcels = incoming()
    taken = made.parcel(first, body, 0, len(body))
    try:
        packet = decode(first, body, MQTT5)
    except PeerViolation:
        assert not taken
        return
    assert isinstance(packet, Publish)
    if taken:
        assert parcels == [("b2", packet.topic, packet.payload, packet.qos > 0)]
    else:
        properties_at = 2 + len(TOPIC) + (2 if packet.qos else 0)
        assert first not in (0x30, 0x32) or packet.topic != TOPIC or body[properties_at]
        assert not parcels


def test_a_peer_that_speaks_an_older_mqtt_takes_the_long_way() -> None:
    made, parcels = incoming(MQTT311)
    first, body = bytes_of(TOPIC, b"x", 1)
    assert not made.parcel(first, body, 0, len(body))
    assert not parcels
