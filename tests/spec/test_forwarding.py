"""The short way of QoS 0 and 1 against the long way: the same bytes for the same subscribers, however they are cut."""

import random

import pytest

from metromq.protocol.session.access import Access
from metromq.protocol.session.backlog import LinkBacklog
from metromq.protocol.session.federation import Federation, LinkCopy
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import Message
from metromq.protocol.session.session import Session
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, MQTT311, PUBACK, Ack, Pingreq, Publish, Subscription
from tests.spec.world import VERSIONS, Client, Lists, World, bits


def take_short_ways(client: Client, fast: bool) -> None:
    client.publish("nobody/yet")  # the first message takes the long way
    incoming = client.connection.incoming
    assert incoming is not None
    incoming.fast = fast


class Scene:
    """A publisher and one subscriber of each version and kind; `fast` chooses the way."""

    def __init__(self, version: int, fast: bool) -> None:
        self.world = World(journal=False, access=Lists())
        self.readers: list[Client] = []
        for number, reader_version in enumerate((*VERSIONS, MQTT5)):
            reader = self.world.connect(f"r{number}", reader_version)
            reader.subscribe("a", "b/#", qos=number % 3)
            self.readers.append(reader)
        small = self.world.connect("small", properties=bits(maximum_packet_size=40))
        small.subscribe("#")
        self.readers.append(small)
        picky = self.world.connect("picky")
        picky.subscribe(Subscription("c/#", 0, no_local=True, retain_as_published=True), identifier=3)
        picky.subscribe("$share/g/d")
        self.readers.append(picky)
        self.publisher = self.world.connect("p", version)
        self.publisher.subscribe("a")
        self.readers.append(self.publisher)
        take_short_ways(self.publisher, fast)
        for reader in self.readers:
            reader.raw = b""

    def received(self) -> list[bytes]:
        return [reader.raw for reader in self.readers]


def _stream(version: int, seed: int) -> list[bytes]:
    """Runs of equal packets between packets of other topics, sizes, flags and kinds."""
    chosen = random.Random(seed)
    packets: list[bytes] = []
    for _ in range(12):
        topic = chosen.choice(["a", "b", "b/x", "c/y", "d", "closed/t", "nobody", "$dollar", "ä/ö"])
        size = chosen.choice([0, 1, 5, 30, 33, 40, 119, 120, 121, 122, 123, 300])
        properties = b"\x26\x00\x01k\x00\x01v" if version == MQTT5 and chosen.random() < 0.2 else b""
        retain = chosen.random() < 0.1
        for number in range(chosen.choice([1, 1, 2, 7])):
            payload = bytes([number]) * size
            packets.append(encode(Publish(topic, payload, 0, retain, properties=properties), version))
        if chosen.random() < 0.3:
            packets.append(encode(Pingreq(), version))
        if chosen.random() < 0.5:
            topic = chosen.choice(["b", "b/x", "nobody", "ä/ö"])
            for _ in range(chosen.choice([1, 2, 7])):
                payload = bytes([chosen.randint(0, 255)]) * chosen.choice([1, 1, 1, 40])
                packets.append(encode(Publish(topic, payload, 1, packet_id=chosen.randint(1, 9)), version))
    return packets


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(8))
def test_both_ways_give_the_same_bytes(version: int, seed: int) -> None:
    data = b"".join(_stream(version, seed))
    slow, fast = Scene(version, False), Scene(version, True)
    for scene in (slow, fast):
        scene.publisher.feed(data)
        scene.publisher.feed(data)  # now every route is known
    assert fast.received() == slow.received()
    assert any(slow.received())
    counters = [scene.world.hub.counters for scene in (slow, fast)]
    for name in ("messages_received", "messages_sent", "publish_bytes_received", "publish_bytes_sent", "dropped"):
        assert getattr(counters[1], name) == getattr(counters[0], name), name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(8))
def test_a_lone_message_may_take_the_express_way(version: int, seed: int) -> None:
    packets = _stream(version, seed)
    slow, fast = Scene(version, False), Scene(version, True)
    taken = 0
    for packet in packets * 2:
        slow.publisher.feed(packet)
        connection = fast.publisher.connection
        for cut in (packet[:-1], packet + b"\x30"):  # neither less nor more than one packet
            assert not connection.express(cut)
        if connection.express(packet):
            taken += 1
        else:
            connection.receive(packet)
        fast.world.settle()
    assert fast.received() == slow.received()
    assert taken
    counters = [scene.world.hub.counters for scene in (slow, fast)]
    for name in ("bytes_received", "messages_received", "messages_sent", "publish_bytes_sent", "dropped"):
        assert getattr(counters[1], name) == getattr(counters[0], name), name


def test_the_express_way_waits_its_turn() -> None:
    world = World()
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("a")
    publisher.publish("a", b"0")
    lone = encode(Publish("a", b"1"), MQTT5)
    connection = publisher.connection
    connection.receive(lone[:3])
    assert not connection.express(lone)  # the rest of a packet comes first
    connection.receive(lone[3:])
    assert not world.client().connection.express(lone)  # CONNECT comes first
    connection.shut("gone")
    assert not connection.express(lone)
    world.settle()
    assert [message.payload for message in reader.messages()] == [b"0", b"1"]


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_a_run_may_be_cut_anywhere(version: int) -> None:
    data = b"".join(encode(Publish("a", bytes([n]) * 3), version) for n in range(5))
    data += b"".join(encode(Publish("b/x", b"y" * 130), version) for _ in range(2))
    whole = Scene(version, True)
    whole.publisher.feed(data)
    for cut in range(1, len(data)):
        scene = Scene(version, True)
        scene.publisher.feed(encode(Publish("a", b""), version))
        for reader in scene.readers:
            reader.raw = b""
        scene.publisher.feed(data[:cut])
        scene.publisher.feed(data[cut:])
        assert scene.received() == whole.received(), cut


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_random_cuts(version: int) -> None:
    data = b"".join(_stream(version, 99))
    whole = Scene(version, False)
    whole.publisher.feed(data)
    expected = whole.received()
    for seed in range(10):
        chosen = random.Random(seed)
        scene = Scene(version, True)
        position = 0
        while position < len(data):
            step = chosen.choice([1, 2, 3, 50, 400])
            scene.publisher.feed(data[position : position + step])
            position += step
        assert scene.received() == expected


def test_a_change_of_subscriptions_reaches_the_short_way() -> None:
    world = World()
    reader, publisher = world.connect("r"), world.connect("p")
    for change in range(3):
        publisher.publish("a/b", b"1")
        publisher.publish("a/b", b"2")
        assert reader.messages() == []
        reader.subscribe("a/+" if change % 2 else "a/b")
        publisher.publish("a/b", b"3")
        publisher.publish("a/b", b"4")
        assert reader.payloads() == [b"3", b"4"]
        reader.unsubscribe("a/+" if change % 2 else "a/b")


def test_a_change_of_rights_reaches_the_short_way() -> None:
    """After SIGHUP the access list is asked again."""

    class Changing(Lists):
        open = True

        def may_publish(self, session: object, topic: str) -> bool:
            return self.open

    access = Changing()
    world = World(access=access)
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("a")
    for _ in range(3):
        publisher.publish("a", b"x")
    access.open = False
    world.hub.routes.clear()
    for connection in world.hub.connections.open:
        connection.permissions_changed()
    publisher.publish("a", b"y")
    publisher.publish("a", b"y")
    assert reader.payloads() == [b"x", b"x", b"x"]


def test_bytes_that_are_no_topic_are_refused_on_the_short_way_too() -> None:
    world = World()
    publisher = world.connect("p", MQTT311)
    publisher.publish("a", b"x")
    publisher.feed(b"\x30\x03\x00\x05a")  # the topic ends beyond the packet
    assert publisher.closed
    publisher = world.connect("p", MQTT311)
    publisher.feed(b"\x30\x01\x00")
    assert publisher.closed


class Peered(Federation):
    """A city in which one peer, for now without a connection, gets a copy of everything."""

    def __init__(self) -> None:
        self.backlog = LinkBacklog(99, "peer")

    def copies(self, message: Message) -> list[LinkCopy]:
        return [LinkCopy(self.backlog, b"")]

    def run_copies(self, topic: str) -> list[LinkCopy] | None:
        return [LinkCopy(self.backlog, b"")]


@pytest.mark.parametrize("journal", [False, True])
def test_peers_get_qos_1_by_the_short_way_too(journal: bool) -> None:
    world = World(journal=journal)
    city = Peered()
    world.hub.federate(city)
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("a", qos=1)
    for number in range(3):  # from the second one on the route is known
        publisher.publish("a", b"%d" % number, qos=1)
    assert reader.payloads() == [b"0", b"1", b"2"]
    assert city.backlog.waiting() == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_qos_1_waits_for_the_window_on_both_ways(version: int) -> None:
    received: list[list[bytes]] = []
    for fast in (False, True):
        world = World(HubSettings(max_inflight=2), journal=False)
        reader, publisher = world.connect("r", version), world.connect("p", version)
        reader.subscribe("a", qos=1)
        take_short_ways(reader, fast)
        take_short_ways(publisher, fast)
        reader.raw = publisher.raw = b""
        packets = [encode(Publish("a", b"%d" % n, 1, packet_id=n), version) for n in range(1, 6)]
        publisher.feed(b"".join(packets))
        publisher.feed(packets[0])
        first = reader.raw
        for packet_id in (1, 2, 2, 9, 3, 4):  # some of them are not under way
            reader.feed(encode(Ack(PUBACK, packet_id), version))
        received.append([first, reader.raw, publisher.raw])
        assert not reader.closed
    assert received[0] == received[1]
    assert received[1][1].startswith(received[1][0])


@pytest.mark.parametrize("seed", range(6))
def test_packets_of_one_size_are_numbered_together(seed: int) -> None:
    """Two receivers, one for each packet; sizes that stay or change; identifiers that begin anew after 65,535."""
    chosen = random.Random(seed)
    stretches = [(chosen.choice("aab"), chosen.choice([1, 8, 200]), chosen.choice([1, 2, 30])) for _ in range(12)]
    payloads = [(topic, bytes(chosen.randbytes(size))) for topic, size, count in stretches for _ in range(count)]
    packets = [
        encode(Publish(f"{topic}/{chosen.randint(10, 99)}", payload, 1, packet_id=chosen.randint(1, 65_535)), MQTT311)
        for topic, payload in payloads
    ]
    received: list[list[bytes]] = []
    for fast in (False, True):
        world = World(journal=False)
        readers = [world.connect(name, MQTT311) for name in "ab"]
        publisher = world.connect("p", MQTT311)
        for name, reader in zip("ab", readers, strict=True):
            reader.subscribe(f"{name}/#", qos=1)
            session = reader.connection.session
            assert session is not None
            session.window = 1000
            session.backlog.sequence = 65_500
        take_short_ways(publisher, fast)
        for client in (*readers, publisher):
            client.raw = b""
        publisher.feed(b"".join(packets))
        received.append([client.raw for client in (*readers, publisher)])
    assert received[1] == received[0]
    assert all(received[1])


ODD_ONES = {
    "a wildcard in the topic": Publish("a/+9", b"12345678", 1, packet_id=7),
    "a null character in the topic": Publish("a/\x009", b"12345678", 1, packet_id=7),
    "no packet identifier": Publish("a/19", b"12345678", 1, packet_id=0x7E7E),
    "a broker's own topic": Publish("$/19", b"12345678", 1, packet_id=7),
    "a topic of someone else": Publish("b/19", b"12345678", 1, packet_id=7),
    "a topic that someone else has too": Publish("a/99", b"12345678", 1, packet_id=7),
    "a closed topic": Publish("a/77", b"12345678", 1, packet_id=7),
    "a letter of two bytes": Publish("a/ä", b"12345678", 1, packet_id=7),
    "a letter that is none": Publish("a/~9", b"12345678", 1, packet_id=7),
    "another size": Publish("a/19", b"123", 1, packet_id=7),
    "a longer topic": Publish("a/190", b"1234567", 1, packet_id=7),
}


class OneClosed(Access):
    """Nobody publishes to `a/77`."""

    def unrestricted(self, session: Session) -> bool:
        return False

    def may_publish(self, session: Session, topic: str) -> bool:
        return topic != "a/77"


@pytest.mark.parametrize("window", [5, 1000])
@pytest.mark.parametrize("filter", ["a/#", "#", "+/19", "a/19"])
@pytest.mark.parametrize("odd", ODD_ONES)
def test_packets_that_are_alike_but_for_one(odd: str, filter: str, window: int) -> None:
    """A stretch of packets that are alike goes in one piece: the one that is not alike ends it."""
    odd_one = encode(ODD_ONES[odd], MQTT311).replace(b"~~", b"\0\0").replace(b"~", b"\xff")
    packets = [encode(Publish(f"a/{n}", b"%08d" % n, 1, packet_id=n), MQTT311) for n in range(10, 26)]
    packets.insert(12, odd_one)
    received: list[list[object]] = []
    for fast in (False, True):
        world = World(journal=False, access=OneClosed() if odd == "a closed topic" else None)
        world.hub.routes.read_check = None
        reader, other, publisher = (world.connect(name, MQTT311) for name in ("r", "o", "p"))
        reader.subscribe(filter, qos=1)
        if "someone else" in odd:
            other.subscribe("b/#" if odd == "a topic of someone else" else "a/99", qos=1)
        session = reader.connection.session
        assert session is not None
        session.window = window
        session.backlog.sequence = 65_531
        take_short_ways(publisher, fast)
        for client in (reader, other, publisher):
            client.raw = b""
        publisher.feed(b"".join(packets))
        while session.backlog.inflight:
            reader.feed(encode(Ack(PUBACK, next(iter(session.backlog.inflight))), MQTT311))
        publisher.feed(b"".join(packets))  # now it is known who may publish where
        counters = world.hub.counters
        counted = [counters.messages_received, counters.messages_sent, counters.publish_bytes_received]
        received.append([*(client.raw for client in (reader, other, publisher)), publisher.closed, *counted])
    assert received[1] == received[0]
    assert received[1][0]
