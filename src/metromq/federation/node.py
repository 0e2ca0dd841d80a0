"""One broker's part in the city: joins router, coordination, directory and the interest of peers; no I/O.

The host (the live broker or the simulator) tells it what happens, with the time of a monotonic clock in microseconds,
and carries out the effects that come back, in their order. `route` answers without effects, so it can sit in the path
of every message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from metromq.errors import ProtocolViolation
from metromq.federation.announcer import Announcer
from metromq.federation.city import City
from metromq.federation.coordination.core import Change, TopicTable
from metromq.federation.coordination.embedded import EmbeddedCoordinator
from metromq.federation.directory import Directory
from metromq.federation.distribution import EMPTY_ROUTE, Hop, Route, distribute
from metromq.federation.effects import (
    Effect,
    HandOver,
    Keep,
    Replay,
    Reroute,
    RoutesChanged,
    Send,
    SendRetained,
    TableChanged,
)
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.interest import PeerInterest, plain_filter
from metromq.federation.links.frames import (
    VERSION,
    Beat,
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    Frame,
    Hello,
    Interest,
    InterestRequest,
    RetainedRequest,
    Table,
    decode_frame,
)
from metromq.federation.routing import Router, router_for
from metromq.federation.stages import CLIENT, FINAL
from metromq.protocol.topics.areas import area_of

CACHED_ROUTES: Final = 8192


@dataclass(slots=True)
class Counters:
    """What passed between brokers, for status and for the paper's formulas; the host counts the messages."""

    interest_in: int = 0
    interest_out: int = 0
    frames_in: int = 0
    frames_out: int = 0


class Node:
    def __init__(self, city: City, name: str, incarnation: int, now_us: int) -> None:
        city.broker(name)
        self.city = city
        self.name = name
        self.peers = tuple(other for other in city.names if other != name)
        self.table = TopicTable(city.homes if city.routing == "geographic" else {})
        self.router: Router = router_for(city, name, self.table)
        self.coordinator = EmbeddedCoordinator(city, name, incarnation, self.table, now_us)
        self.interest = PeerInterest(self.peers)
        self.announcer = Announcer(self.peers, self.router)
        self.clock = HybridClock()
        self.directory = Directory(name, city.names, self.clock)
        self.counters = Counters()
        self.up: set[str] = set()
        self._incarnation = incarnation
        self._alive = city.names
        self._claimed_us: dict[str, int] = {}  # areas that we stand in for, since when
        self._routes: dict[str, Route] = {}
        self._handlers: dict[type, Callable[[str, Any, int], list[Effect]]] = {
            Hello: self._hello,
            Table: self._table_frame,
            Interest: self._interest_frame,
            InterestRequest: lambda peer, frame, now_us: [Send(peer, self.announcer.whole(peer, now_us))],
            RetainedRequest: lambda peer, frame, now_us: [SendRetained(peer, frame.filters)],
            ClientClaim: lambda peer, frame, now_us: self.directory.claimed(peer, frame),
            ClientAnswer: lambda peer, frame, now_us: self.directory.answered(frame),
            ClientMoved: lambda peer, frame, now_us: self.directory.moved(frame),
            ClientReleased: self._released,
        }

    # What the host tells.

    def tick(self, now_us: int, clients: int = 0) -> list[Effect]:
        """Call at least five times per hello interval."""
        self.coordinator.set_clients(clients)
        due = self.coordinator.due(now_us)
        beats = self.coordinator.beats(now_us) if due else ()
        effects: list[Effect] = [Send(peer, self._own_hello(peer, beats)) for peer in due]
        effects += self._table_changes(self.coordinator.claims(now_us), "", now_us)
        alive = self.coordinator.alive(now_us)
        if alive != self._alive:
            self._alive = alive
            effects += self.directory.living(alive)
        return self._counted(effects)

    def peer_up(self, peer: str, now_us: int) -> list[Effect]:
        """Control frames can reach the peer from now on."""
        self.up.add(peer)
        self._routes.clear()  # which member of a shared subscription is reachable has changed
        effects = self._announce(peer, now_us)
        effects.append(Send(peer, self._own_hello(peer, self.coordinator.beats(now_us))))
        effects += self.directory.reconnected(peer)
        return self._counted(effects)

    def peer_down(self, peer: str, now_us: int) -> list[Effect]:
        self.up.discard(peer)
        self._routes.clear()
        return []

    def frame(self, peer: str, data: bytes, now_us: int) -> list[Effect]:
        """A control frame has come from the peer; raises PeerViolation for one that is not in order."""
        self.counters.frames_in += 1
        decoded = decode_frame(data)
        return self._counted(self._handlers[type(decoded)](peer, decoded, now_us))

    def subscribed(self, topic_filter: str, now_us: int, members: int = 1) -> list[Effect]:
        """The broker's own clients want a filter; for a shared subscription `members` says how many of them."""
        self._forget_routes(topic_filter)
        self.announcer.want(topic_filter, members, now_us)
        return self._counted(self._announce_filter(topic_filter, now_us))

    def unsubscribed(self, topic_filter: str, now_us: int) -> list[Effect]:
        """Nobody here wants the filter any more."""
        self._forget_routes(topic_filter)
        self.announcer.want(topic_filter, 0, now_us)
        return self._counted(self._announce_filter(topic_filter, now_us))

    def restore(self, peer: str, frame: Frame, now_us: int) -> None:
        """A frame that a Keep put into the journal of an earlier life."""
        if isinstance(frame, Table):
            self.table.merge(frame.entries)
        elif isinstance(frame, Interest) and peer in self.peers:
            self._apply_interest(peer, frame)

    def snapshot(self) -> list[Keep]:
        """Few frames in place of all that were kept: `restore` makes the same node of them."""
        kept = [Keep("", Table(self.table.entries()))]
        kept += [Keep(peer, Interest(True, tuple(self.interest.filters_of(peer)), ())) for peer in self.peers]
        return kept

    # What the host asks.

    def route(
        self,
        topic: str,
        stage: int = CLIENT,
        origin: str = "",
        number: int = 0,
        served: tuple[str, ...] = (),
        shares: tuple[str, ...] = (),
        shares_done: tuple[str, ...] = (),
        check: bool = False,
    ) -> Route:
        """Where a message goes from here. `number` is its offset at its origin, or any counter at QoS 0."""
        if stage >= FINAL:
            return Route((), shares) if shares else EMPTY_ROUTE
        if stage == CLIENT and not check:
            cached = self._routes.get(topic)
            if cached is not None:
                return cached
        route, plain = distribute(self, topic, stage, origin or self.name, number, served, shares_done, check)
        if shares:
            route = Route(route.hops, tuple(dict.fromkeys(route.shares + shares)))
        if stage == CLIENT and plain and not check:
            if len(self._routes) >= CACHED_ROUTES:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def replays(self, topic: str, origin: str, age_us: int, now_us: int) -> bool:
        """Whether a journalled message is ours to send to a peer whose interest came late (see Replay)."""
        area = area_of(topic, self.city.areas.l_b) if self.table.homes else None
        if area is None:
            return origin in ("", self.name) or self.router.serves(topic)
        if self.table.home(area) == self.name:
            return True
        claimed_us = self._claimed_us.get(area)
        return claimed_us is not None and now_us - age_us >= claimed_us

    def explain(self, topic_or_filter: str) -> tuple[str, ...]:
        lines = list(self.router.explain(topic_or_filter))
        if "+" in topic_or_filter or "#" in topic_or_filter:
            peers = sorted(self.router.announce_to(topic_or_filter))
            lines.append(f"{self.name} announces it to {', '.join(peers) or 'nobody'}.")
        else:
            hops = [f"{hop.peer} ({hop.stage_name})" for hop in self.route(topic_or_filter).hops]
            lines.append(f"From {self.name} it goes to {', '.join(hops) or 'no other broker'}.")
        return tuple(lines)

    # Inside.

    def _own_hello(self, peer: str, beats: tuple[Beat, ...]) -> Hello:
        return Hello(
            VERSION, self._incarnation, self.table.digest(), self.announcer.digest(peer), beats, self.clock.latest_us()
        )

    def _hello(self, peer: str, hello: Hello, now_us: int) -> list[Effect]:
        if hello.version != VERSION:
            raise ProtocolViolation(f"{peer} speaks version {hello.version} of the link, this broker {VERSION}")
        self.clock.heard(hello.time_us)
        self.coordinator.heard(hello, now_us)
        effects: list[Effect] = []
        if hello.table_digest != self.table.digest():
            effects.append(Send(peer, Table(self.table.entries())))
        if hello.interest_digest != self.interest.digest(peer):
            effects.append(Send(peer, InterestRequest()))
        return effects

    def _table_frame(self, peer: str, frame: Table, now_us: int) -> list[Effect]:
        if any(entry.owner not in self.city.by_name for entry in frame.entries):
            raise ProtocolViolation(f"{peer} sent a topic table with a broker that is not in the city's file")
        return self._table_changes(self.coordinator.merge(frame.entries, now_us), peer, now_us)

    def _table_changes(self, changes: tuple[Change, ...], source: str, now_us: int) -> list[Effect]:
        if not changes:
            return []
        self._routes.clear()
        entries = tuple(change.after for change in changes)
        claimed = any(entry.owner == self.name for entry in entries)
        effects: list[Effect] = [Keep("", Table(entries)), TableChanged(entries), RoutesChanged(("#",))]
        # The source knows its own entries, but not the claims that they made us do.
        effects += [Send(peer, Table(entries)) for peer in sorted(self.up) if peer != source or claimed]
        self.announcer.table_changed()
        for peer in sorted(self.up):
            effects += self._announce(peer, now_us)
        for change in changes:
            effects += self._owner_changed(change, now_us)
        return effects

    def _owner_changed(self, change: Change, now_us: int) -> list[Effect]:
        area, before, after = change.after.area, change.before.owner, change.after.owner
        effects: list[Effect] = []
        if before not in (after, self.name) and before not in self.up:
            effects.append(Reroute(area, before, after))
        if after == self.name and before != self.name:
            self._claimed_us[area] = now_us
            effects += [Send(peer, RetainedRequest((f"{area}/#",))) for peer in sorted(self.up)]
        if before == self.name and after != self.name:
            claimed_us = self._claimed_us.pop(area, now_us)
            if after != self.table.home(area):
                effects.append(HandOver(area, after, now_us - claimed_us))
        return effects

    def _interest_frame(self, peer: str, frame: Interest, now_us: int) -> list[Effect]:
        self.counters.interest_in += len(frame.wanted)
        fresh = [item for item in frame.wanted if not self.interest.wants(peer, item.topic_filter)]
        changed = self._apply_interest(peer, frame)
        if not changed:
            return []
        for topic_filter in changed:
            self._forget_routes(topic_filter)
        effects: list[Effect] = [Keep(peer, frame), RoutesChanged(tuple(plain_filter(text) for text in changed))]
        plain = [item for item in fresh if item.topic_filter == plain_filter(item.topic_filter)]
        if plain:
            effects.append(SendRetained(peer, tuple(item.topic_filter for item in plain)))
        late = tuple((item.topic_filter, item.age_ms * 1000) for item in plain if item.age_ms)
        if late:
            effects.append(Replay(peer, late))
        return effects

    def _apply_interest(self, peer: str, frame: Interest) -> list[str]:
        """Returns the filters whose interest differs from before."""
        wanted = {item.topic_filter: item.members for item in frame.wanted}
        for topic_filter in frame.unwanted:
            wanted[topic_filter] = 0
        if frame.whole:
            for item in self.interest.filters_of(peer):
                wanted.setdefault(item.topic_filter, 0)
        changed = [text for text, members in wanted.items() if self.interest.wants(peer, text) != members]
        for topic_filter in changed:
            self.interest.set(peer, topic_filter, wanted[topic_filter])
        return changed

    def _announce_filter(self, topic_filter: str, now_us: int) -> list[Effect]:
        effects: list[Effect] = [RoutesChanged((plain_filter(topic_filter),))]
        for peer, frame in self.announcer.changes_of_filter(topic_filter, self.up, now_us):
            effects.append(Send(peer, frame))
        return effects

    def _announce(self, peer: str, now_us: int) -> list[Effect]:
        frame = self.announcer.changes(peer, now_us)
        return [Send(peer, frame)] if frame is not None else []

    def _released(self, peer: str, frame: ClientReleased, now_us: int) -> list[Effect]:
        self.directory.released(peer, frame)
        return []

    def _forget_routes(self, topic_filter: str) -> None:
        topic_filter = plain_filter(topic_filter)
        if "+" in topic_filter or "#" in topic_filter:
            self._routes.clear()
        else:
            self._routes.pop(topic_filter, None)

    def _counted(self, effects: list[Effect]) -> list[Effect]:
        """Frames to peers that cannot be reached are left out: digests mend what they would have said."""
        sent: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send):
                if effect.peer not in self.up:
                    continue
                self.counters.frames_out += 1
                if isinstance(effect.frame, Interest):
                    self.counters.interest_out += len(effect.frame.wanted)
            sent.append(effect)
        return sent


__all__ = ["Hop", "Node", "Route"]
