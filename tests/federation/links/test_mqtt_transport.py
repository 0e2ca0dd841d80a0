"""Parcels over MQTT: written past the client's core, a window of them at a time, settled by their PUBACKs."""

from itertools import pairwise

from metromq.federation.links.mqtt_transport import (
    CONNECT_TIMEOUT_S,
    KEEPALIVE_S,
    MAX_BATCHES_UNDER_WAY,
    Line,
    LinkCredentials,
    MqttTransport,
)
from metromq.federation.links.transport import OpenWay
from metromq.protocol.wire import MQTT5, PUBACK, Ack, Connack, Framer, Packet, Properties, Publish, decode, encode
from metromq.protocol.wire.packets import Pingreq

PEER = "b2"


class Stream:
    def __init__(self) -> None:
        self.framer = Framer(1 << 20)
        self.is_open = True

    def write(self, data: bytes) -> None:
        assert self.is_open
        self.framer.feed(data)

    def abort(self) -> None:
        self.is_open = False

    def take(self) -> list[Packet]:
        found: list[Packet] = []
        while (frame := self.framer.next()) is not None:
            found.append(decode(*frame, MQTT5))
        return found


class World:
    """A transport whose peer is played by the test."""

    def __init__(self, connack: Connack | None = None) -> None:
        self.now = 0.0
        self.connack = connack or Connack()
        self.way: OpenWay | None = None
        self.settled_as: list[tuple[int, bool]] = []
        self.problems: list[str] = []
        self.line: Line | None = None
        self.stream = Stream()
        credentials = LinkCredentials("b1", "0a", None, lambda: b"")
        self.transport = MqttTransport(self, credentials, lambda: self.now)
        self.transport.open(PEER, self)
        self.let_in()

    def dial(self, peer: str, line: Line) -> None:
        self.line, self.stream = line, Stream()

    def let_in(self) -> None:
        assert self.line is not None
        self.line.connected(self.stream)
        self.says(self.connack)
        self.stream.take()

    def says(self, *packets: Packet) -> None:
        assert self.line is not None
        self.line.received(b"".join(encode(packet, MQTT5) for packet in packets))

    def opened(self, way: OpenWay) -> None:
        self.way = way

    def lost(self, problem: str) -> None:
        self.problems.append(problem)

    def settled(self, token: int, is_stored: bool) -> None:
        self.settled_as.append((token, is_stored))

    def may_send(self, allowed: bool) -> None: ...

    def send(self, parcel: bytes, must_store: bool = True) -> int:
        assert self.way is not None
        return self.way.send("$metromq/batch", parcel, must_store)


def test_a_parcel_is_a_plain_publish_and_its_acknowledgement_settles_it() -> None:
    world = World()
    token = world.send(b"one")
    assert world.send(b"two", must_store=False) == 0
    first, second = world.stream.take()
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.topic, first.payload, first.qos) == ("$metromq/batch", b"one", 1)
    assert (second.topic, second.payload, second.qos, second.packet_id) == ("$metromq/batch", b"two", 0, 0)
    world.says(Ack(PUBACK, first.packet_id), Ack(PUBACK, first.packet_id), Ack(PUBACK, 999))
    assert world.settled_as == [(token, True)], "once, and nothing for what was not sent"
    refused = world.send(b"three")
    third = world.stream.take()[0]
    assert isinstance(third, Publish)
    world.says(Ack(PUBACK, third.packet_id, 0x97))
    assert world.settled_as[1:] == [(refused, False)]


def test_more_than_a_window_waits_and_keeps_its_order() -> None:
    world = World()
    tokens = [world.send(b"%d" % number) for number in range(MAX_BATCHES_UNDER_WAY + 6)]
    sent = world.stream.take()
    assert len(sent) == MAX_BATCHES_UNDER_WAY
    for packet in sent:
        assert isinstance(packet, Publish)
        world.says(Ack(PUBACK, packet.packet_id))
    rest = world.stream.take()
    assert [packet.payload for packet in (*sent, *rest) if isinstance(packet, Publish)] == [
        b"%d" % number for number in range(len(tokens))
    ]
    for packet in rest:
        assert isinstance(packet, Publish)
        world.says(Ack(PUBACK, packet.packet_id))
    assert world.settled_as == [(token, True) for token in tokens]


def test_a_peer_that_allows_less_gets_less_at_a_time() -> None:
    """[MQTT-3.3.4-9]: a broker whose `receive_maximum` is small would close the link."""
    world = World(Connack(properties=Properties(receive_maximum=3)))
    for number in range(10):
        world.send(b"%d" % number)
    payloads: list[bytes] = []
    while sent := world.stream.take():
        assert len(sent) <= 3
        for packet in sent:
            assert isinstance(packet, Publish)
            payloads.append(packet.payload)
            world.says(Ack(PUBACK, packet.packet_id))
    assert payloads == [b"%d" % number for number in range(10)]


def test_packet_identifiers_come_around() -> None:
    world = World()
    world.transport._ways[PEER]._token = 65_530
    for _ in range(10):
        token = world.send(b"")
        (packet,) = world.stream.take()
        assert isinstance(packet, Publish)
        assert 1 <= packet.packet_id <= 65_535
        world.says(Ack(PUBACK, packet.packet_id))
        assert world.settled_as.pop() == (token, True)


def test_nothing_of_a_lost_way_is_settled_or_sent_later() -> None:
    world = World()
    for number in range(MAX_BATCHES_UNDER_WAY + 6):
        world.send(b"%d" % number)
    old = world.stream.take()[0]
    assert isinstance(old, Publish)
    assert world.line is not None
    world.line.closed("the network is gone")
    assert world.problems == ["the network is gone"]
    assert world.send(b"into nothing") == 0
    world.now = 10.0
    world.transport.tick(world.now)
    world.let_in()
    world.says(Ack(PUBACK, old.packet_id))
    assert world.settled_as == []
    assert world.stream.take() == []


def test_a_way_that_carries_parcels_needs_no_pings() -> None:
    world = World()
    for _ in range(3 * KEEPALIVE_S):
        world.now += 1.0
        world.send(b"")
        world.transport.tick(world.now)
        (packet,) = world.stream.take()
        assert isinstance(packet, Publish)
        world.says(Ack(PUBACK, packet.packet_id))
    world.now += KEEPALIVE_S
    world.transport.tick(world.now)
    assert world.stream.take() == [Pingreq()], "in silence it does"


def test_a_peer_that_comes_by_itself_is_dialled_at_once() -> None:
    world = World()
    world.now = 100.0
    assert world.line is not None
    world.line.closed("the network is gone")
    for _ in range(5):  # tries that are refused: the pauses between them grow
        world.now += 10.0
        world.transport.tick(world.now)
        world.line.closed("connection refused")
    hanging = world.line
    world.now += 0.01
    world.transport.tick(world.now)
    assert world.line is hanging
    world.transport.came(PEER)
    world.transport.tick(world.now)
    assert world.line is not hanging, "without the rest of the pause"
    hanging = world.line
    world.now += 0.5
    world.transport.came(PEER)
    world.transport.tick(world.now)
    assert world.line is hanging, "a try that has only begun goes on"
    world.now += 1.0
    world.transport.came(PEER)
    world.transport.tick(world.now)
    assert world.line is not hanging, "one that began when the peer could not be reached does not"
    world.let_in()
    before = len(world.problems)
    world.now += 5.0
    world.transport.came(PEER)
    world.transport.came("stranger")
    assert len(world.problems) == before, "a way that is open stays"


def test_two_slow_brokers_do_not_hang_up_on_each_other_for_ever() -> None:
    """Where the answer takes longer than a try may hang, each comes while the other's try is under way."""
    world = World()
    assert world.line is not None
    world.line.closed("the network is gone")
    world.now += 3.0
    world.transport.tick(world.now)
    given_up = world.line
    world.now += 1.5
    world.transport.came(PEER)
    world.transport.tick(world.now)
    assert world.line is not given_up, "it may have begun when the peer could not be reached"
    second = world.line
    for _ in range(3):
        world.now += 1.2
        world.transport.came(PEER)
        world.transport.tick(world.now)
        assert world.line is second, "this one began when it could"
    world.let_in()
    assert world.line is second


def test_a_try_that_nobody_answered_may_be_given_up_again() -> None:
    world = World()
    assert world.line is not None
    world.line.closed("the network is gone")
    for _ in range(2):
        world.now += 3.0
        world.transport.tick(world.now)
        hanging = world.line
        world.now += 1.5
        world.transport.came(PEER)
        world.transport.tick(world.now)
        assert world.line is not hanging
        world.now += CONNECT_TIMEOUT_S + 0.1
        world.transport.tick(world.now)


def test_a_try_that_hung_was_a_pause() -> None:
    """A kernel sends its SYN after 0, 1 and 3 seconds: with the next try at 5 the peer is missed for 2 s at most."""
    world = World()
    assert world.line is not None
    world.now = 100.0
    world.line.closed("the network is gone")
    dialled: list[float] = []
    line = world.line
    while world.now < 160.0:
        world.now += 0.1
        world.transport.tick(world.now)
        if world.line is not line:
            line = world.line
            dialled.append(world.now)
    pauses = [later - earlier for earlier, later in pairwise(dialled)]
    assert len(pauses) > 8
    assert max(pauses) < CONNECT_TIMEOUT_S + 0.3
