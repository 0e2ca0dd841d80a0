"""Feeds mutated packets to a whole broker in memory: `python -m fuzz.packets --count 1000000 --seed 1`.

Several clients send what no client should. The broker may close them with a reason code of the standard; it must never
raise, never send a packet that cannot be decoded, never disturb the witnesses, and what it journalled must be readable.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fuzz.corpus import VERSIONS, connects, mutate, packets
from metromq.errors import MetroError, PeerViolation
from metromq.protocol.session import records
from metromq.protocol.session.access import Access, AccessDecision, Peer
from metromq.protocol.session.connection import Connection
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_recovery import recover
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.log import Log
from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connect,
    Packet,
    Publish,
    Subscribe,
    Subscription,
)

ATTACKERS = 3
WORLD_PACKETS = 5000  # then the broker is stopped, its journal read again, and a new one starts
WITNESS_EVERY = 40
SETTINGS = {"max_queued_messages": 50, "max_connects_per_s": 0.0, "max_outgoing_bytes": 1 << 16, "memory_entries": 8}


class Found(MetroError):
    """The broker did what it must not do."""


class ListLog(Log):
    """A journal in a list."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes]] = []
        self.places: list[int] = []

    def append_message(self, body: bytes) -> int:
        self.places.append(len(self.records))
        self.records.append((records.MESSAGE, len(self.places) - 1, body))
        return len(self.places) - 1

    def append(self, kind: int, body: bytes) -> None:
        self.records.append((kind, -1, body))

    def read(self, offset: int) -> bytes:
        return self.records[self.places[offset]][2]

    def scan(self, offset: int) -> Iterator[tuple[int, int, bytes]]:
        return iter(self.records[self.places[offset] :] if offset < len(self.places) else [])

    def full(self) -> bool:
        return False

    def next_offset(self) -> int:
        return len(self.places)

    def flush(self) -> None:
        """It is where it can be read at once."""


class TwoSteps(Access):
    """Lets everyone in; the method `X` asks one question more, so that AUTH has a place."""

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        if method is None:
            return AccessDecision(0, "", username or "")
        answer = AccessDecision(0x18, "", "", b"?") if method == "X" else AccessDecision(0x8C, "no such method")
        answer.exchange = method
        return answer

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        return AccessDecision(0) if data == b"!" else AccessDecision(0x87, "wrong answer")


class Client:
    """One end of a connection; it decodes everything that the broker sends."""

    def __init__(self, hub: Hub, access: Access, version: int) -> None:
        self.connection = Connection(hub, access, Peer("fuzz", True))
        self.version = version
        self.framer = Framer(1 << 28)
        self.wildness = 1.0  # how many of its packets are mutated

    def received(self) -> list[Packet]:
        data = self.connection.output.take()
        self.connection.output.sent(0)
        found: list[Packet] = []
        self.framer.feed(data)
        try:
            while (frame := self.framer.next()) is not None:
                found.append(decode(frame[0], frame[1], self.version, False))
        except PeerViolation as error:
            raise Found(
                f"the broker sent what cannot be decoded in version {self.version}: {error}: {data.hex()}"
            ) from error
        return found


class Witness:
    """An honest publisher with three honest subscribers, one for each QoS."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.count = 0
        self.publisher = self._enter("witness-p", MQTT311)
        self.subscribers = [self._enter(f"witness-{qos}", (MQTT311, MQTT5, MQTT5)[qos]) for qos in range(3)]
        for qos, subscriber in enumerate(self.subscribers):
            data = encode(Subscribe(1, [Subscription("witness/+", qos)]), subscriber.version)
            subscriber.connection.receive(data)
            world.settle()
            subscriber.received()

    def _enter(self, name: str, version: int) -> Client:
        client = Client(self.world.hub, self.world.access, version)
        client.connection.receive(encode(Connect(name, version), version))
        self.world.settle()
        client.received()
        return client

    def check(self) -> None:
        """A message of each QoS reaches every subscriber, once, in the right form."""
        for qos in range(3):
            self.count += 1
            payload = b"%d" % self.count
            packet_id = self.count % 65535 + 1 if qos else 0
            self._say(self.publisher, encode(Publish("witness/t", payload, qos, packet_id=packet_id), MQTT311))
            if qos == 2:
                self._say(self.publisher, encode(Ack(PUBREL, packet_id), MQTT311))
            answers = [packet.kind for packet in self.publisher.received() if isinstance(packet, Ack)]
            if answers != [[], [PUBACK], [PUBREC, PUBCOMP]][qos]:
                raise Found(f"the witness got {answers} for its message of QoS {qos}")
            for granted, subscriber in enumerate(self.subscribers):
                self._got(subscriber, payload, min(qos, granted))

    def _say(self, client: Client, data: bytes) -> None:
        client.connection.receive(data)
        self.world.settle()

    def _got(self, subscriber: Client, payload: bytes, qos: int) -> None:
        found = [packet for packet in subscriber.received() if isinstance(packet, Publish)]
        if [(packet.payload, packet.qos) for packet in found] != [(payload, qos)]:
            raise Found(f"a witness got {found} instead of {payload!r} with QoS {qos}")
        if qos:
            packet_id = found[0].packet_id
            for kind in (PUBACK,) if qos == 1 else (PUBREC, PUBCOMP):
                self._say(subscriber, encode(Ack(kind, packet_id), subscriber.version))
            subscriber.received()


class World:
    """A broker, its attackers and its witnesses."""

    def __init__(self, chosen: random.Random, journal: bool) -> None:
        self.chosen = chosen
        self.log = ListLog() if journal else None
        self.access = TwoSteps()
        self.hub = Hub(HubSettings(**SETTINGS), self.log)  # type: ignore[arg-type]
        self.now = 1000.0
        self.hub.at(self.now, 10**15)
        self.outcomes: Counter[str] = Counter()
        self.witness = Witness(self)
        self.attackers: list[Client] = []

    def settle(self) -> None:
        """What the shell does at the end of a turn."""
        if self.log is not None:
            self.hub.commits.committed(self.hub.commits.position)
        for output in self.hub.dirty:
            output.marked = False
        self.hub.dirty.clear()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.hub.at(self.now, 10**15 + int(self.now * 1e6))
        for connection in list(self.hub.connections.open):
            if connection not in (self.witness.publisher.connection, *(s.connection for s in self.witness.subscribers)):
                connection.check()
        self.hub.sessions.tick()
        self.settle()

    def attacker(self) -> Client:
        if len(self.attackers) < ATTACKERS:
            version = self.chosen.choice(VERSIONS)
            client = Client(self.hub, self.access, version)
            client.wildness = self.chosen.choice((0.05, 0.3, 0.9))  # the tame ones live long and reach deep states
            self.attackers.append(client)
            if self.chosen.random() < 0.9:
                client.connection.receive(self.chosen.choice(connects_of[version]))
                self.settle()
            return client
        return self.chosen.choice(self.attackers)

    def attack(self, client: Client, data: bytes) -> None:
        pieces = [data]
        if self.chosen.random() < 0.2:
            at = self.chosen.randrange(len(data) + 1)
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            client.connection.receive(piece)
            self.settle()
        self.clean_up()

    def clean_up(self) -> None:
        for client in list(self.attackers):
            output = client.connection.output
            client.version = output.version if output.version in VERSIONS else client.version
            for packet in client.received():
                self.outcomes[type(packet).__name__] += 1
            if output.closing:
                self.attackers.remove(client)
                client.connection.lost()
                self.settle()
                self.outcomes["closed"] += 1

    def finish(self) -> None:
        """The broker dies; another reads its journal."""
        if self.log is not None:
            again = Hub(HubSettings(**SETTINGS), self.log)  # type: ignore[arg-type]
            again.at(self.now, 10**15)
            recover(again, None, iter(list(self.log.records)))


connects_of = {version: connects(version) for version in VERSIONS}
packets_of = {version: packets(version) for version in VERSIONS}


@dataclass(frozen=True, slots=True)
class Report:
    packets: int
    outcomes: dict[str, int]


def run(count: int, seed: int, progress: Progress | None = None) -> Report:
    """Raises `Found`, with how to repeat it, when the broker does what it must not."""
    task = progress.add_task("packets", total=count) if progress is not None else None
    outcomes: Counter[str] = Counter()
    for first in range(0, count, WORLD_PACKETS):
        world_seed = seed + first
        step, data = 0, b""
        chosen = random.Random(world_seed)
        try:
            world = World(chosen, (first // WORLD_PACKETS) % 2 == 0)
            for step in range(min(WORLD_PACKETS, count - first)):
                client = world.attacker()
                choices = packets_of[client.version]
                data = chosen.choice(choices)
                if chosen.random() < 0.03:
                    data = chosen.choice(connects_of[client.version])
                if chosen.random() < client.wildness:
                    data = mutate(chosen, data, choices)
                world.attack(client, data)
                if step % WITNESS_EVERY == 0:
                    world.witness.check()
                    world.pass_time(chosen.choice((0.0, 0.5, 20.0, 100.0)))
            world.finish()
        except Exception as error:
            where = f"seed {world_seed}, packet {step}, bytes {data.hex()}"
            raise Found(f"{type(error).__name__}: {error} ({where}; repeat with --seed {world_seed})") from error
        outcomes += world.outcomes
        if progress is not None and task is not None:
            progress.advance(task, WORLD_PACKETS)
    return Report(count, dict(outcomes))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.packets", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="how many packets (default a million)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    console = Console()
    try:
        with Progress(console=console, transient=True) as progress:
            report = run(options.count, options.seed, progress)
    except Found as error:
        console.print_exception()
        console.print(f"[red]found:[/] {error}")
        return 1
    table = Table(title=f"{report.packets:,} mutated packets, seed {options.seed}: no harm done")
    table.add_column("what the broker did")
    table.add_column("times", justify="right")
    for name, times in sorted(report.outcomes.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{times:,}")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
