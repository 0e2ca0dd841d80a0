"""Random lives of publishers and subscribers through crashes at any record: nothing is lost, QoS 2 comes once.

The clients here keep their own state as the standard asks of them. The broker loses everything that was not committed,
or keeps any number of the unwritten records, as a disk may. At the end every message must have arrived.
"""

import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.protocol.session.hub_recovery import Snapshot
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from tests.spec.world import Client, World, bits


class Publisher:
    """Keeps what is not confirmed and sends it again, in order, after every reconnect [MQTT-4.4.0-1]."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.open: dict[int, tuple[bytes, int, bool]] = {}  # packet id -> payload, QoS, released
        self.sent = 0
        self.client: Client | None = None

    def connect(self) -> None:
        self.client = self.world.client()
        self.client.send(Connect(self.name, clean_start=False, properties=bits(session_expiry_s=10**6)))
        for packet_id, (payload, qos, released) in self.open.items():
            if released:
                self.client.send(Ack(PUBREL, packet_id))
            else:
                self.client.send(Publish("t", payload, qos, False, True, packet_id))

    def publish(self, qos: int) -> None:
        self.sent += 1
        packet_id = self.sent % 65535 + 1
        payload = b"%s:%d:%d" % (self.name.encode(), qos, self.sent)
        self.open[packet_id] = (payload, qos, False)
        if self.client is not None and not self.client.closed:
            self.client.send(Publish("t", payload, qos, False, False, packet_id))

    def read(self) -> None:
        if self.client is None or self.client.closed:
            return
        for packet in self.client.take():
            if not isinstance(packet, Ack):
                assert isinstance(packet, Connack)
                continue
            if packet.kind == PUBREC:
                payload, qos, _ = self.open.pop(packet.packet_id)
                self.open[packet.packet_id] = (payload, qos, True)
                self.client.send(Ack(PUBREL, packet.packet_id))
            else:
                self.open.pop(packet.packet_id, None)


class Subscriber:
    """Takes each QoS 2 packet identifier once until PUBREL [MQTT-4.3.3-10]; reads when it is told to."""

    def __init__(self, world: World, name: str, version: int, qos: int, maximum: int) -> None:
        self.world = world
        self.name = name
        self.version = version
        self.maximum = maximum
        self.got: list[bytes] = []
        self.held: set[int] = set()
        self.unread: deque[Publish | Ack] = deque()
        self.client: Client | None = None
        self.connect()
        assert self.client is not None
        self.client.send(Subscribe(1, [Subscription("t", qos)]))
        world.commit()
        assert isinstance(self.client.take()[-1], Suback)

    def connect(self) -> None:
        self.unread.clear()
        self.client = self.world.client()
        properties = bits(session_expiry_s=10**6, receive_maximum=self.maximum)
        self.client.send(Connect(self.name, self.version, False, properties=properties))

    def read(self, count: int) -> None:
        client = self.client
        if client is None or client.closed:
            return
        self.unread.extend(packet for packet in client.take() if isinstance(packet, Publish | Ack))
        while self.unread and count:
            count -= 1
            packet = self.unread.popleft()
            if isinstance(packet, Ack):
                assert packet.kind == PUBREL
                self.held.discard(packet.packet_id)
                client.send(Ack(PUBCOMP, packet.packet_id))
            elif packet.qos == 2:
                if packet.packet_id not in self.held:
                    self.held.add(packet.packet_id)
                    self.got.append(packet.payload)
                client.send(Ack(PUBREC, packet.packet_id))
            else:
                self.got.append(packet.payload)
                client.send(Ack(PUBACK, packet.packet_id))


class Life:
    """What the numbers of a random list do to the broker."""

    def __init__(self, memory_entries: int) -> None:
        self.world = World(HubSettings(memory_entries=memory_entries, max_inflight=5))
        self.world.auto_commit = False
        self.publishers = [Publisher(self.world, "p"), Publisher(self.world, "q")]
        self.subscribers = [
            Subscriber(self.world, "two", MQTT5, 2, 3),
            Subscriber(self.world, "one", MQTT311, 1, 65535),
        ]
        for publisher in self.publishers:
            publisher.connect()

    def publish(self, amount: int) -> None:
        for _ in range(1 + amount % 4):
            self.publishers[amount % 2].publish(1 + amount % 3 % 2)

    def hear(self, amount: int) -> None:
        for publisher in self.publishers[amount % 2 :]:
            publisher.read()

    def read(self, amount: int) -> None:
        self.subscribers[amount % 2].read(amount)

    def commit(self, amount: int) -> None:
        self.world.commit()

    def leave(self, amount: int) -> None:
        subscriber = self.subscribers[amount % 2]
        if subscriber.client is not None:
            subscriber.client.drop()
        if amount % 3:
            subscriber.connect()

    def repeat(self, amount: int) -> None:
        publisher = self.publishers[amount % 2]
        if publisher.client is not None:
            publisher.client.drop()
        publisher.connect()

    def snapshot(self, amount: int) -> None:
        """On disk, but nobody has been told yet."""
        log = self.world.log
        assert log is not None
        log.flushed = len(log.records)
        self.world.state = Snapshot(self.world.hub)
        self.world.state_records = len(log.records)

    def crash(self, kept: int) -> None:
        self.world.crash(kept % 7)
        for publisher in self.publishers:
            publisher.connect()
        for subscriber in self.subscribers:
            if (kept + len(subscriber.name)) % 3:
                subscriber.connect()
            else:
                subscriber.client = None

    def finish(self) -> None:
        for subscriber in self.subscribers:
            if subscriber.client is None or subscriber.client.closed:
                subscriber.connect()
        for publisher in self.publishers:
            if publisher.client is None or publisher.client.closed:
                publisher.connect()
        for _ in range(400):
            self.world.commit()
            for publisher in self.publishers:
                publisher.read()
            for subscriber in self.subscribers:
                subscriber.read(100)

    def check(self) -> None:
        sent = [
            b"%s:%d:%d" % (publisher.name.encode(), qos, number)
            for publisher in self.publishers
            for number in range(1, publisher.sent + 1)
            for qos in (1, 2)
        ]
        for publisher in self.publishers:
            assert not publisher.open
        two, one = (subscriber.got for subscriber in self.subscribers)
        expected = sorted(payload for payload in sent if payload in set(two) | set(one))
        assert sum(publisher.sent for publisher in self.publishers) == len(expected)
        for got in (two, one):
            assert sorted(set(got)) == expected
        exactly = [payload for payload in two if payload.split(b":")[1] == b"2"]
        assert len(exactly) == len(set(exactly)), "a QoS 2 message came twice"
        for got in (two, one):
            for name in (b"p", b"q"):
                for qos in (b"1", b"2"):
                    first = [payload for payload in dict.fromkeys(got) if payload.split(b":")[:2] == [name, qos]]
                    assert first == sorted(first, key=lambda payload: int(payload.split(b":")[2])), (
                        "order [MQTT-4.6.0-5]"
                    )
        for session in self.world.hub.sessions.by_client_id.values():
            assert not session.backlog.inflight
            assert session.backlog.waiting() == 0
            assert session.backlog.queued_bytes == 0
            assert not session.incoming


Action = Callable[[Life, int], None]
LIVES: list[Action] = [
    Life.publish,
    Life.hear,
    Life.read,
    Life.commit,
    Life.leave,
    Life.repeat,
    Life.snapshot,
    Life.crash,
]
WEIGHTS = [5, 4, 8, 6, 1, 1, 1, 1]


@pytest.mark.parametrize("memory_entries", [1, 4, 1000])
def test_4_3_3_nothing_is_lost_and_qos_2_comes_once(memory_entries: int) -> None:
    """[MQTT-4.3.2-2], [MQTT-4.3.3-2], [MQTT-4.1.0-1], [MQTT-4.1.0-2]: forty long lives with some ten crashes each."""
    for seed in range(40):
        chosen = random.Random(seed)
        life = Life(memory_entries)
        for action in chosen.choices(LIVES, WEIGHTS, k=250):
            action(life, chosen.randrange(21))
        life.finish()
        life.check()


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(st.tuples(st.sampled_from(LIVES), st.integers(0, 20)), max_size=60))
def test_4_3_3_short_lives(actions: list[tuple[Action, int]]) -> None:
    """The same with lists that Hypothesis can shrink."""
    life = Life(2)
    for action, amount in actions:
        action(life, amount)
    life.finish()
    life.check()
