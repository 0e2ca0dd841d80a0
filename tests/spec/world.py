"""A broker in memory for the tests of its behaviour: virtual clock, list-backed log, clients that speak real bytes."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from metromq.protocol.session import records
from metromq.protocol.session.access import Access, Peer
from metromq.protocol.session.connection import Connection
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_recovery import Snapshot, recover
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.log import Log
from metromq.protocol.session.session import Session
from metromq.protocol.wire.decoding import Framer, decode
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

EPOCH_S = 1_800_000_000  # the wall clock at the start
VERSIONS = (MQTT31, MQTT311, MQTT5)
P = TypeVar("P", bound=Packet)


class ListLog(Log):
    """A journal in a list. Records count as flushed when `World.commit` says so; a crash loses the others."""

    def __init__(self, kept: Sequence[tuple[int, int, bytes]] = ()) -> None:
        self.records = list(kept)
        self.flushed = len(self.records)
        self.offset = 1 + max((offset for _, offset, _ in self.records), default=-1)
        self.is_full = False

    def append_message(self, body: bytes) -> int:
        offset = self.offset
        self.offset += 1
        self.records.append((records.MESSAGE, offset, body))
        return offset

    def append(self, kind: int, body: bytes) -> None:
        self.records.append((kind, -1, body))

    def read(self, offset: int) -> bytes:
        return next(body for _, at, body in self.records if at == offset)

    def scan(self, offset: int) -> Iterator[tuple[int, int, bytes]]:
        start = next((i for i, (_, at, _) in enumerate(self.records) if at == offset), self.flushed)
        return iter(self.records[start : self.flushed])

    def full(self) -> bool:
        return self.is_full

    def next_offset(self) -> int:
        return self.offset

    def flush(self) -> None:
        self.flushed = len(self.records)

    def lose_messages(self) -> None:
        """What a full disk does: unwritten messages are taken back, control records wait for the next flush."""
        kept = [record for record in self.records[self.flushed :] if record[0] != records.MESSAGE]
        del self.records[self.flushed :]
        self.offset = 1 + max((offset for _, offset, _ in self.records), default=-1)
        self.records += kept


class World:
    """One broker and the shell around it, driven by hand. `journal=False` is durability "memory"."""

    def __init__(self, settings: HubSettings | None = None, journal: bool = True, access: Access | None = None) -> None:
        self.settings = settings or HubSettings()
        self.access = access or Access()
        self.asks_access = access is not None  # who reads what; as a broker without an access list, it asks nobody
        self.log = ListLog() if journal else None
        self.now = 1000.0
        self.auto_commit = True
        self.clients: list[Client] = []
        self.state: Snapshot | None = None  # the latest; packed late, as a slow disk would
        self.state_records = 0  # records it stands for
        self.hub = self._hub()

    def _hub(self) -> Hub:
        hub = Hub(self.settings, self.log, "spec")
        hub.at(self.now, self.wall_us())
        hub.routes.read_check = self.access if self.asks_access else None
        self.committed = 0  # records committed since the hub was made
        self.base = len(self.log.records) if self.log is not None else 0
        return hub

    def wall_us(self) -> int:
        return int((EPOCH_S + self.now) * 1_000_000)

    # --- the journal ----------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Everything appended so far is on disk."""
        if self.log is not None:
            self.log.flushed = len(self.log.records)
            self.hub.commits.committed(self.hub.commits.position)
        self.deliver()

    def disk_full(self) -> None:
        """The next write finds no room: what was not committed fails."""
        assert self.log is not None
        lost_from = self.hub.commits.committed_position
        self.log.lose_messages()
        self.hub.commits.failed(lost_from, self.hub.commits.position)
        self.deliver()

    def take_snapshot(self) -> None:
        assert self.log is not None
        self.commit()
        self.state = Snapshot(self.hub)
        self.state_records = len(self.log.records)

    def crash(self, unflushed_kept: int = 0) -> None:
        """The process dies; of what was not committed, the first few records may have reached the disk."""
        assert self.log is not None
        keep = self.log.flushed + unflushed_kept
        self.log = ListLog(self.log.records[:keep])
        for client in self.clients:
            client.closed = True
        self.clients = []
        self.hub = self._hub()
        state = None if self.state is None else b"".join(self.state.pieces())
        recover(self.hub, state, iter(self.log.records[self.state_records :]))
        self.hub.at(self.now, self.wall_us())

    # --- time and turns -------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Lets time pass; the shell's tick comes at the end of it."""
        self.now += seconds
        self.hub.at(self.now, self.wall_us())
        self.hub.tick()
        self.settle()

    def settle(self) -> None:
        """The end of a loop turn: what waits is committed, if commits are not held back, and written."""
        for _ in range(5):
            if self.auto_commit:
                self.commit()
            else:
                self.deliver()

    def deliver(self) -> None:
        while self.hub.dirty:
            output = self.hub.dirty.pop()
            output.marked = False
            for client in list(self.clients):
                if client.connection.output is output:
                    client.collect()

    # --- clients --------------------------------------------------------------------------------------------------

    def client(self, peer: Peer | None = None) -> "Client":
        return Client(self, peer or Peer("10.0.0.1:5", True))

    def connect(
        self,
        client_id: str = "",
        version: int = MQTT5,
        clean: bool = True,
        expiry: int | None = None,
        will: Will | None = None,
        keepalive: int = 0,
        properties: Properties | None = None,
    ) -> "Client":
        """A client that has got its CONNACK, which is in `connack`."""
        client = self.client()
        properties = properties or Properties()
        if expiry is not None:
            properties.session_expiry_s = expiry
        client.send(Connect(client_id, version, clean, keepalive, None, None, will, properties))
        client.connack = client.one(Connack)
        assert client.connack.reason_code == 0, client.connack
        return client


class Client:
    """The other end of one connection."""

    def __init__(self, world: World, peer: Peer) -> None:
        self.world = world
        self.connection = Connection(world.hub, world.access, peer)
        self.framer = Framer(1 << 28)
        self.version = MQTT5
        self.raw = b""
        self.inbox: list[Packet] = []
        self.reading = True
        self.closed = False
        self.connack = Connack()
        self.next_id = 0
        world.clients.append(self)

    # --- bytes ----------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Bytes to the broker, then one turn."""
        self.connection.receive(data)
        self.world.settle()

    def send(self, packet: Packet, version: int = 0) -> None:
        if isinstance(packet, Connect):
            self.version = packet.version
        self.feed(encode(packet, version or self.version))

    def collect(self) -> None:
        """What the network gets; a client that does not read leaves it where it is."""
        output = self.connection.output
        if not self.reading:
            output.sent(0)
            return
        data = output.take()
        self.raw += data
        self.framer.feed(data)
        while (frame := self.framer.next()) is not None:
            self.inbox.append(decode(frame[0], frame[1], self.version, False))
        output.sent(0)
        if output.hungry:
            self.connection.drained()
        if output.closing:
            self.drop()

    def drop(self) -> None:
        """The network connection ends."""
        if not self.closed:
            self.closed = True
            self.world.clients.remove(self)
            self.connection.lost()
            self.world.settle()

    # --- what came ------------------------------------------------------------------------------------------------

    def take(self) -> list[Packet]:
        packets, self.inbox = self.inbox, []
        return packets

    def one(self, kind: type[P]) -> P:
        """The only packet that came, of this kind."""
        packets = self.take()
        assert len(packets) == 1, packets
        assert isinstance(packets[0], kind), packets
        return packets[0]

    def messages(self) -> list[Publish]:
        """The PUBLISH packets that came; nothing else may have come."""
        packets = self.take()
        found = [packet for packet in packets if isinstance(packet, Publish)]
        assert len(found) == len(packets), packets
        return found

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages()]

    def disconnected(self) -> int:
        """The reason code of the DISCONNECT that came last; the connection is closed."""
        assert self.closed
        last = self.take()[-1]
        assert isinstance(last, Disconnect), last
        return last.reason_code

    # --- what a client does ---------------------------------------------------------------------------------------

    def packet_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def subscribe(self, *wanted: Subscription | str, qos: int = 0, identifier: int = 0) -> list[int]:
        """Returns the reason codes; retained messages that come behind SUBACK stay in the inbox."""
        subscriptions = [Subscription(one, qos) if isinstance(one, str) else one for one in wanted]
        packet_id = self.packet_id()
        self.send(Subscribe(packet_id, subscriptions, identifier))
        subacks = [packet for packet in self.inbox if isinstance(packet, Suback)]
        assert len(subacks) == 1, self.inbox
        assert subacks[0].packet_id == packet_id
        self.inbox.remove(subacks[0])
        return subacks[0].reason_codes

    def unsubscribe(self, *filters: str) -> list[int]:
        packet_id = self.packet_id()
        self.send(Unsubscribe(packet_id, list(filters)))
        answer = self.one(Unsuback)
        assert answer.packet_id == packet_id
        return answer.reason_codes

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        packet_id: int = 0,
        expiry_s: int = -1,
    ) -> int:
        """Sends PUBLISH and returns its packet identifier; answers are for the caller to read."""
        if qos and not packet_id:
            packet_id = self.packet_id()
        self.send(Publish(topic, payload, qos, retain, False, packet_id, b"", expiry_s))
        return packet_id

    def deliver(self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, expiry_s: int = -1) -> None:
        """Publishes and goes through the whole exchange."""
        packet_id = self.publish(topic, payload, qos, retain, 0, expiry_s)
        if qos == 1:
            ack = self.one(Ack)
            assert (ack.kind, ack.packet_id) == (PUBACK, packet_id)
            assert ack.reason_code in (0, 0x10)
        elif qos == 2:
            ack = self.one(Ack)
            assert (ack.kind, ack.packet_id) == (PUBREC, packet_id)
            assert ack.reason_code in (0, 0x10)
            self.send(Ack(PUBREL, packet_id))
            assert self.one(Ack) == Ack(PUBCOMP, packet_id)

    def answer(self, message: Publish) -> None:
        """Acknowledges a message that came, to the end."""
        if message.qos == 1:
            self.send(Ack(PUBACK, message.packet_id))
        elif message.qos == 2:
            self.send(Ack(PUBREC, message.packet_id))
            release = self.inbox.pop()
            assert release == Ack(PUBREL, message.packet_id), release
            self.send(Ack(PUBCOMP, message.packet_id))

    def ping(self) -> None:
        self.send(Pingreq())
        self.one(Pingresp)

    def disconnect(self, reason_code: int = 0, expiry: int | None = None) -> None:
        properties = None
        if expiry is not None or reason_code:
            properties = Properties()
            properties.session_expiry_s = expiry
        self.send(Disconnect(reason_code, properties))


def bits(**values: object) -> Properties:
    """Properties by name."""
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


class Lists(Access):
    """Nobody publishes below `closed/` or reads below `hidden/`."""

    def unrestricted(self, session: Session) -> bool:
        return False

    def may_publish(self, session: Session, topic: str) -> bool:
        return not topic.startswith("closed/")

    def may_read(self, session: Session, topic: str) -> bool:
        return not topic.startswith("hidden/")

    def may_subscribe(self, session: Session, filter: str) -> bool:
        return not filter.startswith("hidden/")


def pair(world: World, qos: int, version: int = MQTT5, publisher_version: int = MQTT5) -> tuple[Client, Client]:
    """A subscriber of `t/#` and a publisher."""
    subscriber = world.connect("s", version)
    subscriber.subscribe("t/#", qos=qos)
    return subscriber, world.connect("p", publisher_version)
