"""One broker's part in the city: joins router, coordinator, directory and the interest of peers; no I/O.

It knows none of their kinds: the city's file names a routing and a coordination, and their registries make them.

The host (the live broker or the simulator) tells it what happens, with the time of a monotonic clock in microseconds,
and carries out the effects that come back, in their order. `route` answers without effects, so it can sit in the path
of every message.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from metromq.errors import ProtocolViolation
from metromq.federation.announcer import Announcer
from metromq.federation.city import City
from metromq.federation.clock_skew import ClockSkews
from metromq.federation.coordination import coordinator_for
from metromq.federation.coordination.coordinator import (
    AliveChanged,
    Event,
    FactsChanged,
    Greet,
    MemberJoined,
    MemberLeft,
    Tell,
)
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.directory import Directory
from metromq.federation.distribution import NOWHERE, Arrival, Distribution, distribute
from metromq.federation.effects import (
    ClockSkewed,
    Effect,
    FactsLearnt,
    Keep,
    NeighboursChanged,
    Replay,
    RetainedTold,
    RoutesChanged,
    Send,
    SendRetained,
)
from metromq.federation.hop import Hop
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.interest import PeerInterest, plain_filter
from metromq.federation.links.frames import (
    VERSION,
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    Facts,
    Frame,
    Hello,
    Interest,
    InterestRequest,
    RetainedNone,
    RetainedRequest,
    WillDropped,
    WillsAnew,
    WillsFired,
    WillTold,
    decode_frame,
)
from metromq.federation.routing import ROUTINGS, Audience, Router
from metromq.federation.silences import Silences
from metromq.federation.stages import CLIENT, FINAL, HOP_LIMIT, OWNER
from metromq.federation.takeover import Takeover
from metromq.federation.wills import Wills
from metromq.protocol import Remembered

ROUTES_BYTES: Final = 8 << 20  # of routes that are remembered by topic,
ROUTE_BYTES: Final = 300  # each beside its own size


@dataclass(slots=True)
class NodeCounters:
    """What passed between brokers, for status and for the paper's formulas; the host counts the messages."""

    interest_in: int = 0
    interest_out: int = 0
    frames_in: int = 0
    frames_out: int = 0
    copies_dropped: int = 0  # that had crossed as many links as a copy may


class Node:
    """What one broker knows of the others and decides from it: frames and changes in, effects out.

    It has many methods because each kind of frame and each event has a handler of its own, looked up by type.
    """

    def __init__(
        self, city: City, name: str, incarnation: int, now_us: int, wall_us: Callable[[], int] | None = None
    ) -> None:
        city.broker(name)
        self.city = city
        self.name = name
        self.peers = tuple(other for other in city.names if other != name)
        routing = ROUTINGS[city.routing]
        succession = routing.succession(city)
        self.coordinator = coordinator_for(city, name, incarnation, succession, now_us)
        self.table = TopicTable(self.coordinator.book, succession)
        self.router: Router = routing.router(city, name, self.table)
        self.interest = PeerInterest(self.peers)
        self.announcer = Announcer(self.peers, self.router)
        self.clock = HybridClock(wall_us)
        self._silences = Silences(city.membership.hello_interval_ms * city.membership.far_factor * 2000)
        self.skews = ClockSkews()
        self._wall_us = wall_us or (lambda: 0)
        self._apart: set[str] = set()  # peers whose clocks differ too much from ours
        self.up: set[str] = set()
        self.directory = Directory(name, city.names, self.clock, self.up)
        self.wills = Wills(name, self.directory, self.up, city.names)
        self.counters = NodeCounters()
        self._takeover = Takeover(name, self.table)
        self._neighbours = self.neighbours
        self._routes: Remembered[str, Distribution] = Remembered(ROUTES_BYTES)
        self._handlers: dict[type, Callable[[str, Any, int], list[Effect]]] = {
            Hello: self._hello,
            Facts: lambda peer, frame, now_us: self._carry_out(
                self.coordinator.told(peer, frame.facts, now_us), now_us
            ),
            Interest: self._interest_frame,
            InterestRequest: lambda peer, frame, now_us: [Send(peer, self.announcer.whole(peer, now_us))],
            RetainedRequest: lambda peer, frame, now_us: [SendRetained(peer, frame.filters)],
            RetainedNone: lambda peer, frame, now_us: [RetainedTold(peer, frame.filters)],
            ClientClaim: lambda peer, frame, now_us: self.directory.claimed(peer, frame),
            ClientAnswer: lambda peer, frame, now_us: self.directory.answered(frame),
            ClientMoved: lambda peer, frame, now_us: self.directory.moved(frame),
            ClientReleased: self._released,
            WillTold: lambda peer, frame, now_us: self.wills.told(frame, now_us),
            WillDropped: lambda peer, frame, now_us: self.wills.taken_back(peer, frame),
            WillsAnew: lambda peer, frame, now_us: self.wills.anew(peer),
            WillsFired: lambda peer, frame, now_us: self.wills.fired(peer, frame),
        }
        self._events: dict[type, Callable[[Any, int], list[Effect]]] = {
            MemberJoined: self._member_joined,
            MemberLeft: self._member_left,
            AliveChanged: self._alive_changed,
            FactsChanged: self._facts_changed,
            Greet: lambda event, now_us: [Send(event.peer, self._hello_to(event, now_us))],
            Tell: lambda event, now_us: [Send(event.peer, Facts(event.facts))],
        }

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The peers that the host keeps links to."""
        wanted = self.router.neighbours()
        return tuple(peer for peer in self.peers if peer in wanted)

    # What the host tells.

    def tick(self, now_us: int, clients: int = 0) -> list[Effect]:
        """Call at least five times per hello interval."""
        effects = self.coordinated(self.coordinator.tick(now_us, clients), now_us)
        return effects + self._counted(self.wills.tick(now_us))

    def coordinated(self, events: Iterable[Event], now_us: int) -> list[Effect]:
        """The coordinator has found out something: from its own shim, if it has one, these come at any time."""
        return self._counted(self._carry_out(events, now_us))

    def member_joined(self, name: str, now_us: int, address: str = "") -> list[Effect]:
        """The city gets a new member; the coordinator tells the others."""
        return self.coordinated(self.coordinator.join(name, address, now_us), now_us)

    def member_left(self, name: str, now_us: int) -> list[Effect]:
        """A member leaves for good; what it was responsible for goes to heirs."""
        return self.coordinated(self.coordinator.leave(name, now_us), now_us)

    def peer_up(self, peer: str, now_us: int) -> list[Effect]:
        """Control frames can reach the peer from now on."""
        if peer not in self.peers:
            return []  # it has left the city, and its link will too
        self.up.add(peer)
        self._routes.clear()  # which member of a shared subscription is reachable has changed
        effects = self._announce(peer, now_us)
        effects += self._carry_out(self.coordinator.met(peer, now_us), now_us)
        effects += self.directory.reconnected(peer)
        effects += self.wills.met(peer, now_us)
        return self._counted(effects)

    def peer_down(self, peer: str, now_us: int) -> list[Effect]:
        self.up.discard(peer)
        self._routes.clear()
        return []

    def frame(self, peer: str, data: bytes, now_us: int) -> list[Effect]:
        """A control frame has come from the peer; raises PeerViolation for one that is not in order."""
        if peer not in self.peers:
            raise ProtocolViolation(f"{peer} is no member of the city")
        self.counters.frames_in += 1
        self._silences.heard(peer, now_us)
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
        if isinstance(frame, Facts):
            for event in self.coordinator.restore(frame.facts, now_us):
                if isinstance(event, MemberJoined | MemberLeft):
                    self._events[type(event)](event, now_us)
            self.announcer.facts_changed()
            self._routes.clear()
        elif isinstance(frame, Interest) and peer in self.peers:
            self._apply_interest(peer, frame)
        elif isinstance(frame, WillsFired):
            self.wills.restore(peer, frame)

    def snapshot(self) -> list[Keep]:
        """Few frames in place of all that were kept: `restore` makes the same node of them."""
        kept = [Keep("", Facts(self.coordinator.book.facts()))]
        kept += [Keep(peer, Interest(True, tuple(self.interest.filters_of(peer)), ())) for peer in self.peers]
        return kept + self.wills.snapshot()

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
        limit: int = HOP_LIMIT,
    ) -> Distribution:
        """Where a message goes from here. `number` is its offset at its origin, or any counter at QoS 0."""
        if stage >= FINAL:
            return Distribution((), shares) if shares else NOWHERE
        usual = stage == CLIENT and not check and limit == HOP_LIMIT
        if usual:
            cached = self._routes.get(topic)
            if cached is not None:
                return cached
        arrival = Arrival(topic, stage, origin or self.name, number, served, shares_done, check, limit)
        route, plain = distribute(self, arrival)
        if shares:
            route = Distribution(route.hops, tuple(dict.fromkeys(route.shares + shares)), route.dropped)
        if route.dropped:
            self.counters.copies_dropped += len(route.dropped)
        elif usual and plain:
            self._routes.put(topic, route, ROUTE_BYTES + len(topic) + route.size_bytes())
        return route

    def replays(self, topic: str, origin: str, age_us: int, now_us: int) -> bool:
        """Whether a journalled message is ours to send to a peer whose interest came late (see Replay)."""
        key = self.router.key(topic)
        if key is not None:
            return self._takeover.covers(key, age_us, now_us)
        # Whoever would distribute a message that others send here has distributed this one too.
        return origin in ("", self.name) or self.router.decide(topic, OWNER, origin).audience is not Audience.NOBODY

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

    def _hello_to(self, event: Greet, now_us: int) -> Hello:
        digest, time_us = self.announcer.digest(event.peer), self.clock.stamp_us()
        clocks = self._wall_us(), *self.skews.echo(event.peer, now_us)
        return Hello(VERSION, digest, event.greeting, time_us, self.city.identity, *clocks)

    def _carry_out(self, events: Iterable[Event], now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            effects += self._events[type(event)](event, now_us)
        return effects

    def _hello(self, peer: str, hello: Hello, now_us: int) -> list[Effect]:
        if hello.city != self.city.identity:
            raise ProtocolViolation(_difference(peer, hello.city, self.city.identity))
        self.clock.heard(hello.time_us)
        effects = self._carry_out(self.coordinator.greeted(peer, hello.greeting, now_us), now_us)
        if hello.interest_digest != self.interest.digest(peer):
            effects.append(Send(peer, InterestRequest()))
        self.skews.heard(peer, hello.wall_us, hello.echo_us, hello.held_us, self._wall_us(), now_us)
        return effects + self._compare_clocks(peer)

    def _compare_clocks(self, peer: str) -> list[Effect]:
        """Says once that a peer's clock is wrong, and once that it is right again."""
        skew = self.skews.of(peer)
        if skew is None:
            return []
        is_apart = abs(skew.ahead_us) > self.city.membership.clock_warning_ms * 1000
        if is_apart == (peer in self._apart):
            return []
        (self._apart.add if is_apart else self._apart.discard)(peer)
        return [ClockSkewed(peer, skew.ahead_us, is_apart)]

    def _alive_changed(self, event: AliveChanged, now_us: int) -> list[Effect]:
        effects = self.directory.living(event.alive)
        return effects + self.wills.living(event.alive, now_us)

    def _member_joined(self, event: MemberJoined, now_us: int) -> list[Effect]:
        if event.name == self.name or event.name in self.peers:
            return []
        self.peers = (*self.peers, event.name)
        self.interest.member_joined(event.name)
        self.announcer.member_joined(event.name)
        return self._neighbours_changed()

    def _member_left(self, event: MemberLeft, now_us: int) -> list[Effect]:
        if event.name not in self.peers:
            return []
        self.peers = tuple(peer for peer in self.peers if peer != event.name)
        self.up.discard(event.name)
        self.skews.forget(event.name)
        self.interest.member_left(event.name)
        self.announcer.member_left(event.name)
        self.directory.member_left(event.name)
        self.wills.member_left(event.name)
        self._routes.clear()
        return [RoutesChanged(("#",)), *self._neighbours_changed()]

    def _neighbours_changed(self) -> list[Effect]:
        before, self._neighbours = self._neighbours, self.neighbours
        return [NeighboursChanged(self._neighbours)] if self._neighbours != before else []

    def _facts_changed(self, event: FactsChanged, now_us: int) -> list[Effect]:
        self._routes.clear()
        facts = tuple(change.after for change in event.changes)
        frame = Facts(facts)
        effects: list[Effect] = [Keep("", frame), FactsLearnt(facts), RoutesChanged(("#",))]
        effects += [Send(peer, frame) for peer in event.tell if peer in self.up]
        effects += self._neighbours_changed()
        self.announcer.facts_changed()
        for peer in sorted(self.up):
            effects += self._announce(peer, now_us)
        for change in event.changes:
            effects += self._takeover.owner_changed(change, self.up, now_us)
        return effects

    def _interest_frame(self, peer: str, frame: Interest, now_us: int) -> list[Effect]:
        self.counters.interest_in += len(frame.wanted)
        fresh = [item for item in frame.wanted if not self.interest.wants(peer, item.topic_filter)]
        under_way_us = self._silences.under_way(peer, now_us)
        ages = {item.topic_filter: max(item.age_ms * 1000, under_way_us) for item in fresh}
        unserved = [item for item in fresh if not self._has_members(item.topic_filter)]
        changed = self._apply_interest(peer, frame)
        if not changed:
            return []
        for topic_filter in changed:
            self._forget_routes(topic_filter)
        effects: list[Effect] = [Keep(peer, frame), RoutesChanged(tuple(plain_filter(text) for text in changed))]
        plain = [item for item in fresh if item.topic_filter == plain_filter(item.topic_filter)]
        late = tuple((item.topic_filter, ages[item.topic_filter]) for item in plain if ages[item.topic_filter])
        if late:  # who announces at once asks for retained messages itself
            effects.append(SendRetained(peer, tuple(text for text, _ in late)))
        late += tuple(
            (item.topic_filter, ages[item.topic_filter])
            for item in unserved
            if ages[item.topic_filter] and item not in plain
        )
        if late:
            effects.append(Replay(peer, late))
        return effects

    def peer_connected(self, peer: str, now_us: int) -> None:
        """The peer has opened the connection over which it speaks to us."""
        self._silences.connected(peer, now_us)

    def restarted(self, away_us: int, now_us: int) -> None:
        """This broker has a journal whose last message is so old."""
        self._silences.restarted(self.peers, away_us, now_us)

    def unheard_us(self, peer: str, now_us: int) -> int:
        """How long the peer could not be heard until lately; 0: it could."""
        return self._silences.before(peer, now_us)

    def _has_members(self, share: str) -> bool:
        """Whether a shared subscription has had members that this broker could choose from."""
        return bool(self.announcer.members(share) or self.interest.members_of(share))

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
            self._routes.pop(topic_filter)

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


def _difference(peer: str, theirs: str, ours: str) -> str:
    pairs = zip(theirs.split(), ours.split(), strict=False)
    differ = [f"{one} there, {other} here" for one, other in pairs if one != other]
    return f"{peer} has another city file: {'; '.join(differ)}. All brokers of a city need the same file"


__all__ = ["Distribution", "Hop", "Node", "NodeCounters"]
