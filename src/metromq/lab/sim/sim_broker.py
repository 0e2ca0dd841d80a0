"""A whole broker under the virtual clock: the product's hub, sessions, host and links on simulated disk and network."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from metromq.federation import City
from metromq.federation.coordination import Shim
from metromq.federation.host import Host, Reporting
from metromq.federation.links import Line, LinkAccess, LinkCredentials, MqttTransport, auth
from metromq.lab.sim.clock import Due
from metromq.lab.sim.disk import Disk, DiskLog
from metromq.lab.sim.network import Network, StreamEnd, StreamListener
from metromq.protocol.session import (
    Access,
    AccessDecision,
    Connection,
    Flusher,
    Hub,
    HubSettings,
    Peer,
    Snapshot,
    recover,
)

EPOCH_US: Final = 1_800_000_000_000_000  # the wall clock at the start
TICK_S: Final = 0.25
COMMIT_S: Final = 0.0005  # from a record to the disk


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages in and out, as the paper counts them: publications and subscriptions, with clients and with peers."""

    publications_in: int
    publications_out: int
    subscriptions_in: int
    subscriptions_out: int
    between: int  # messages sent to peers


class SimBroker:
    def __init__(self, city: City, name: str, network: Network, report: Reporting, settings: HubSettings) -> None:
        self.city = city
        self.name = name
        self.link_version = 0  # the newest that it reads, as an earlier release would; 0: as this one
        self.skew_us = 0  # how far its wall clock is ahead
        self.disk = Disk(_digest(f"journal of {name}").hex()[:14])
        self.hub: Hub | None = None
        self.host: Host | None = None
        self._network = network
        self._report = report
        self._settings = settings
        self._held: list[Callable[[], None]] | None = None  # while paused
        self._access: Access = Access()
        self._committing = False
        self._nonces = 0
        self.shim_for: Callable[[SimBroker, Host], Shim] | None = None  # where the coordinator needs servers

    @property
    def running(self) -> bool:
        return self.hub is not None

    @property
    def is_awake(self) -> bool:
        return self.running and self._held is None

    # Life and death.

    def start(self) -> None:
        disk = self.disk
        disk.lives += 1
        self._held = None
        self._committing = False
        self.hub = hub = Hub(self._settings, DiskLog(disk), self.name)
        self._look_at_the_clock(hub)
        self.host = host = Host(self.city, self.name, hub, self._report)
        recover(hub, disk.state, disk.after_state())
        self._look_at_the_clock(hub)
        secret = (self.city.links.secret or "").encode()
        links = LinkAccess(self.name, lambda: host.node.peers, secret, False, host.peer_came, self._nonce)
        self._access = _SimAccess(links)
        self._network.acceptors[self.name] = self
        credentials = LinkCredentials(self.name, disk.journal_id, secret, self._nonce)
        if self.link_version:
            credentials.newest = host.node.greetings.versions.newest = self.link_version
        self.run(lambda: host.start(MqttTransport(_Dialler(self), credentials, lambda: hub.clock.now)))
        shim = self.shim_for(self, host) if self.shim_for is not None else None
        if shim is not None:
            shim.start()
        self.tick_later(_HostTick(self, host, shim))
        self.tick_later(_HubTick(self, hub))

    def kill(self, power: bool = False, torn: bool = False) -> None:
        """As kill -9, or a power cut, maybe in the middle of a record: what is not on disk is gone."""
        self.hub = self.host = self._held = None
        self._network.acceptors.pop(self.name, None)
        self._network.drop(self.name)
        self.disk.crash(power, torn)

    def pause(self) -> None:
        """As SIGSTOP: connections stay, nothing is answered."""
        if self._held is None and self.running:
            self._held = []

    def resume(self) -> None:
        held, self._held = self._held or [], None
        for action in held:
            self.run(action)

    def take_snapshot(self) -> None:
        if self.hub is not None:
            self.commit(self.disk.lives)
            self.disk.keep_state(b"".join(Snapshot(self.hub).pieces()))

    # Every event is a turn: look at the clock, act, write what there is to write.

    def run(self, action: Callable[[], None]) -> None:
        if self._held is not None:
            self._held.append(action)
        elif self.begins():
            action()
            self.worked()

    def begins(self) -> bool:
        """A turn, unless the broker stands still or does not run: then `run` does what is to be done."""
        hub = self.hub
        if hub is None or self._held is not None:
            return False
        self._look_at_the_clock(hub)
        return True

    def _look_at_the_clock(self, hub: Hub) -> None:
        now = self._network.clock.now
        hub.at(now + 1.0, EPOCH_US + self.skew_us + int(now * 1_000_000))

    def worked(self) -> None:
        """A turn ends."""
        hub = self.hub
        if hub is None:
            return
        while hub.dirty:
            output = hub.dirty.pop(0)
            output.marked = False
            if output.owner is not None:
                output.owner.flush()
        if hub.commits.position > hub.commits.committed_position and not self._committing:
            self._committing = True
            self._network.clock.add(COMMIT_S, _Commit(self, self.disk.lives))

    def commit(self, life: int) -> None:
        if self.hub is not None and life == self.disk.lives:
            self._committing = False
            self.disk.sync()  # as with durability = "fsync": what is confirmed outlives a power cut
            self.hub.commits.committed(self.hub.commits.position)

    def tick_later(self, tick: "_Tick") -> None:
        self._network.clock.add(tick.rest_s(), tick)

    # Connections.

    def accept(self, end: StreamEnd) -> StreamListener | None:
        if self.hub is None:
            return None
        self._look_at_the_clock(self.hub)
        return _Served(self, end, Connection(self.hub, self._access, Peer(end.far, True)))

    def dial(self, peer: str, line: Line) -> None:
        def connected(end: StreamEnd) -> None:
            end.listener = _Dialled(self, line)
            self.run(lambda: line.connected(end))

        life = self.disk.lives

        def failed(problem: str) -> None:
            self.run(lambda: line.closed(problem))

        self._network.dial(self.name, peer, connected, failed, lambda: self.running and self.disk.lives == life)

    def _nonce(self) -> bytes:
        self._nonces += 1
        return _digest(f"{self.name} {self.disk.lives} {self._nonces}")

    # Seeing.

    def counts(self) -> Counts:
        hub, host = self.hub, self.host
        assert hub is not None
        assert host is not None
        between = sum(link.sent_messages for link in host.links.values())
        return Counts(
            hub.counters.messages_received + sum(host.receiving.messages.values()),
            hub.counters.messages_sent + between,
            hub.counters.subscribes + host.node.counters.interest_in,
            host.node.counters.interest_out,
            between,
        )

    def backlog(self, peer: str) -> int:
        """Messages that wait for a peer or are on their way to it."""
        backlog = self.hub.links.by_peer.get(peer) if self.hub is not None else None
        return backlog.unsettled() if backlog is not None else 0


@final
class _Commit(Due):
    """What was written is on the disk."""

    def __init__(self, broker: SimBroker, life: int) -> None:
        self._broker = broker
        self._life = life

    def happen(self) -> None:
        broker = self._broker
        if broker.begins():
            broker.commit(self._life)
            broker.worked()
        else:
            broker.run(lambda: broker.commit(self._life))


class _Tick(Due):
    """What one life of a broker does now and then. A process that stands still misses its ticks."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self._life = broker.disk.lives

    def happen(self) -> None:
        broker = self._broker
        if broker.running and broker.disk.lives == self._life:
            if broker.begins():
                self.act()
                broker.worked()
            broker.tick_later(self)

    def rest_s(self) -> float:
        raise NotImplementedError

    def act(self) -> None:
        raise NotImplementedError


@final
class _HostTick(_Tick):
    def __init__(self, broker: SimBroker, host: Host, shim: Shim | None) -> None:
        super().__init__(broker)
        self._host = host
        self._shim = shim

    def rest_s(self) -> float:
        return self._host.rest_s()

    def act(self) -> None:
        self._host.tick()
        if self._shim is not None:
            self._shim.take_writes()


@final
class _HubTick(_Tick):
    def __init__(self, broker: SimBroker, hub: Hub) -> None:
        super().__init__(broker)
        self._hub = hub

    def rest_s(self) -> float:
        return TICK_S

    def act(self) -> None:
        self._hub.tick()


@final
class _Dialler:
    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker

    def dial(self, peer: str, line: Line) -> None:
        self._broker.dial(peer, line)


@final
class _Dialled:
    """A stream that this broker opened: what it brings is for its line."""

    def __init__(self, broker: SimBroker, line: Line) -> None:
        self._broker = broker
        self._line = line

    def received(self, data: bytes) -> None:
        broker = self._broker
        if broker.begins():
            self._line.received(data)
            broker.worked()
        else:
            broker.run(lambda: self._line.received(data))

    def closed(self, problem: str) -> None:
        self._broker.run(lambda: self._line.closed(problem))


@final
class _Served(Flusher):
    """A stream that a client or a peer opened to this broker."""

    def __init__(self, broker: SimBroker, end: StreamEnd, connection: Connection) -> None:
        self._broker = broker
        self._end = end
        self._connection = connection
        connection.output.owner = self

    def received(self, data: bytes) -> None:
        broker = self._broker
        if broker.begins():
            self._connection.receive(data)
            broker.worked()
        else:
            broker.run(lambda: self._connection.receive(data))

    def closed(self, problem: str) -> None:
        self._broker.run(self._connection.lost)

    def flush(self) -> None:
        output = self._connection.output
        data = output.take()
        output.sent(0)
        if data:
            self._end.write(data)
        if output.closing:
            self._end.abort()
            self._connection.lost()
        elif output.hungry:
            self._connection.drained()


class _SimAccess(Access):
    """Peers prove the secret; clients may do everything."""

    def __init__(self, links: LinkAccess) -> None:
        self._links = links

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        if method == auth.METHOD:
            return self._links.connect(peer, client_id, username, password, method, data)
        return super().connect(peer, client_id, username, password, method, data)

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        return self._links.continued(exchange, data)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=auth.NONCE_BYTES).digest()
