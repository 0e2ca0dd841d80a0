"""One broker's part in the city: joins router, coordinator, directory and the interest of peers; no I/O.

It knows none of their kinds: the city's file names a routing and a coordination, and their registries make them.

The host (the live broker or the simulator) tells it what happens, with the time of a monotonic clock in microseconds,
and carries out the effects that come back, in their order. Where messages go is asked of `routes`, without effects.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from metromq.errors import ProtocolViolation
from metromq.federation.announcer import Announcer
from metromq.federation.city import City
from metromq.federation.clock_skew import ClockSkews
from metromq.federation.coordination import coordinator_for
from metromq.federation.coordination.contacts import Contacts
from metromq.federation.coordination.coordinator import (
    AliveChanged,
    CityChanged,
    Event,
    FactsChanged,
    Greet,
    MemberJoined,
    MemberLeft,
    Returned,
    Spread,
    Tell,
)
from metromq.federation.coordination.facts import Fact
from metromq.federation.coordination.succession import Succession, TopicTable
from metromq.federation.description import Description
from metromq.federation.descriptions import Descriptions
from metromq.federation.directory import Directory
from metromq.federation.effects import (
    CityFollowed,
    ClockSkewed,
    Drain,
    Effect,
    FactsLearnt,
    GoAround,
    Keep,
    NeighboursChanged,
    Reopen,
    Replay,
    RetainedTold,
    RoutesChanged,
    Send,
    SendRetained,
)
from metromq.federation.handover import Handover
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.interest import PeerInterest, plain_filter
from metromq.federation.links.frames import (
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    ClockTold,
    Facts,
    Frame,
    Gossip,
    Hello,
    Interest,
    InterestRequest,
    Owed,
    Rest,
    RetainedNone,
    RetainedRequest,
    StepDone,
    WillDropped,
    WillsAnew,
    WillsFired,
    WillTold,
    decode_frame,
)
from metromq.federation.links.versions import RUMOURS_SINCE, SAID_SINCE, LinkVersions
from metromq.federation.reach import Reach
from metromq.federation.route_book import RouteBook
from metromq.federation.routing import EVERYTHING, Audience, Router, must_retain, router_for, succession_for
from metromq.federation.silences import Silences
from metromq.federation.stages import CLIENT, OWNER
from metromq.federation.takeover import Takeover
from metromq.federation.wills import Wills
from metromq.protocol.topics import matches


@dataclass(slots=True)
class NodeCounters:
    """What passed between brokers, for status and for the paper's formulas; the host counts the messages."""

    interest_in: int = 0
    interest_out: int = 0
    frames_in: int = 0
    frames_out: int = 0


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
        succession = succession_for(city)
        self.coordinator = coordinator_for(city, name, incarnation, succession, now_us)
        self.coordinator.reads_city = self._read_city
        self.descriptions = Descriptions(city, name, self.coordinator.book)
        self.versions = LinkVersions()
        self.table = TopicTable(self.coordinator.book, succession)
        self.router: Router = router_for(city, name, self.table)
        self.interest = PeerInterest()
        self.announcer = Announcer(self.router)
        self.router.ways.wanted_by = self._wanted_by
        self._wanted_sets: dict[str, tuple[int, AbstractSet[str]]] = {}
        self.clock = HybridClock(wall_us)
        self._far_us = city.membership.hello_interval_ms * city.membership.far_factor * 1000
        self._greeted_us = now_us  # when guests were
        self._silences = Silences(2 * self._far_us)
        self.skews = ClockSkews()
        self._wall_us = wall_us or (lambda: 0)
        self.up = Reach(lambda peer: self.contacts.on_demand and self.coordinator.is_alive(peer, 0))
        self._parting: set[str] = set()  # members that have just left: the last frames for them say so
        self._is_new = True  # the journal had no message
        self._asked: set[str] = set()  # peers that a new broker has asked for what they retain
        self.directory = Directory(name, city.names, self.clock, self.up)
        self.wills = Wills(name, self.directory, self.up, city.names)
        self.counters = NodeCounters()
        self._takeover = Takeover(name, city, self.table)
        self.handover = Handover(name, city.central, self.table, self.announcer.digest)
        peers = tuple(other for other in city.names if other != name)
        self.routes = RouteBook(name, self.router, peers, self.up, self.interest, self.announcer, self._holds)
        self._neighbours = self.neighbours
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
            StepDone: self._step_done,
            Gossip: lambda peer, frame, now_us: self._carry_out(
                self.coordinator.heard_of(peer, frame.rumours, frame.whole, now_us), now_us
            ),
            Rest: self._rests,
            ClockTold: self._clock_told,
            Owed: self._not_to_be_sent,
        }
        self._events: dict[type, Callable[[Any, int], list[Effect]]] = {
            MemberJoined: self._member_joined,
            MemberLeft: self._member_left,
            AliveChanged: self._alive_changed,
            FactsChanged: self._facts_changed,
            CityChanged: self._city_changed,
            Greet: lambda event, now_us: [Send(event.peer, self._hello_to(event, now_us))],
            Tell: lambda event, now_us: [Send(event.peer, Facts(event.facts))],
            Spread: self._spread,
            Returned: self._returned,
        }

    @property
    def peers(self) -> tuple[str, ...]:
        """All other members."""
        return self.routes.peers

    @property
    def description(self) -> Description:
        """Of the city as it is now."""
        return self.descriptions.now

    @property
    def contacts(self) -> Contacts:
        """Whom this broker has links to, and whether others get one on demand."""
        return self.coordinator.contacts()

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The peers that the host keeps links to."""
        kept = self.contacts.kept(self.router.neighbours(), self.router.has_neighbours)
        return tuple(peer for peer in self.peers if peer in kept)

    # What the host tells.

    def tick(self, now_us: int, clients: int = 0) -> list[Effect]:
        """Call at least five times per hello interval, or when `next_us` says."""
        effects = self.coordinated(self.coordinator.tick(now_us, clients), now_us)
        effects += self._counted(self._greet_guests(now_us))
        expected = self.router.ways.listens(now_us)
        if expected:  # the hub asks for the copies of these topics once more
            effects.append(RoutesChanged(expected))
        proposals = self.router.ways.proposals()
        if proposals:
            effects += self.coordinated(self.coordinator.propose(proposals, now_us), now_us)
        effects += self._counted(self._proposed(self.descriptions.unsaid(), now_us))
        return effects + self._counted([*self.wills.tick(now_us), *self._hand_over(now_us)])

    def next_us(self, now_us: int) -> int:
        """When the next tick must come if nothing happens before. Now: at the usual pace."""
        if self.handover.is_busy or self.wills.is_waiting():
            return now_us
        return self.coordinator.next_us(now_us)

    def _greet_guests(self, now_us: int) -> list[Effect]:
        """Peers that have a link for now: they too compare what was announced, and clocks."""
        if now_us - self._greeted_us < self._far_us:
            return []
        self._greeted_us = now_us
        guests = self.contacts.guests(self.up)
        return self._carry_out([event for peer in guests for event in self.coordinator.met(peer, now_us)], now_us)

    def coordinated(self, events: Iterable[Event], now_us: int) -> list[Effect]:
        """The coordinator has found out something: from its own shim, if it has one, these come at any time."""
        return self._counted(self._carry_out(events, now_us))

    def member_joined(self, name: str, now_us: int, address: str = "") -> list[Effect]:
        """The city gets a new member; the coordinator tells the others."""
        return self.coordinated(self.coordinator.join(name, address, now_us), now_us)

    def member_left(self, name: str, now_us: int) -> list[Effect]:
        """A member leaves for good; what it was responsible for goes to heirs."""
        return self.coordinated(self.coordinator.leave(name, now_us), now_us)

    def change_city(self, city: City, author: str, time: float, note: str, now_us: int) -> list[Effect]:
        """Somebody here wants the city to be another one; raises UsageError for what a running city cannot become."""
        lagging = self.versions.cannot_follow(self.peers)
        wanted = self.descriptions.wanted(city, author, time, note, lagging)
        return self.coordinated(self.coordinator.propose((wanted,), now_us), now_us)

    def delegate(self, topic_filter: str, broker: str, now_us: int) -> list[Effect]:
        """The broker becomes responsible for the filter; raises UsageError if it cannot be. At the central broker."""
        alive = self.coordinator.alive(now_us)
        return self._proposed(self.handover.begin(topic_filter, broker, alive), now_us)

    def drained(self, effect: Drain, now_us: int) -> list[Effect]:
        """A Drain is done."""
        return self._counted([*self.handover.drained(effect.key, effect.epoch, now_us), *self._hand_over(now_us)])

    def peer_up(self, peer: str, now_us: int) -> list[Effect]:
        """Control frames can reach the peer from now on."""
        if not self.is_peer(peer):
            return []  # it has left the city, and its link will too
        if not self.up.opened(peer):
            return []  # the link had only been at rest
        self.routes.forget_all()  # which member of a shared subscription is reachable has changed
        effects = self._announce(peer, now_us)
        effects += self._carry_out(self.coordinator.met(peer, now_us), now_us)
        effects += self.directory.reconnected(peer)
        effects += self.wills.met(peer, now_us)
        return self._counted(effects + self._ask_as_newcomer(peer))

    def _ask_as_newcomer(self, peer: str) -> list[Effect]:
        """Where everything is sent everywhere nobody is asked later for the values from before we came."""
        if not self._is_new or not self.router.sends_unasked or peer in self._asked:
            return []
        self._asked.add(peer)
        return [Send(peer, RetainedRequest(("#",)))]

    def peer_down(self, peer: str, now_us: int) -> list[Effect]:
        self.up.lost(peer)
        self.routes.forget_all()
        return []

    def peer_rests(self, peer: str) -> None:
        """The link to it was closed because there was nothing to send, and opens again when there is."""
        self.up.rested(peer)

    def reads_time(self, peer: str) -> bool:
        """Whether the peer would understand that it is told the hybrid time."""
        return self._spoken_to(peer) >= SAID_SINCE

    def may_rest(self, peer: str) -> bool:
        """Whether the peer would understand that its link rests."""
        return self._spoken_to(peer) >= RUMOURS_SINCE

    def is_peer(self, name: str) -> bool:
        return name != self.name and self.coordinator.book.is_member(name)

    def frame(self, peer: str, data: bytes, now_us: int) -> list[Effect]:
        """A control frame has come from the peer; raises PeerViolation for one that is not in order."""
        if not self.is_peer(peer):
            raise ProtocolViolation(f"{peer} is no member of the city")
        self.counters.frames_in += 1
        self._silences.heard(peer, now_us)
        decoded = decode_frame(data)
        return self._counted(self._handlers[type(decoded)](peer, decoded, now_us))

    def subscribed(self, topic_filter: str, now_us: int, members: int = 1) -> list[Effect]:
        """The broker's own clients want a filter; for a shared subscription `members` says how many of them."""
        self.routes.forget(topic_filter)
        self.router.ways.wanted(topic_filter, True)
        self.announcer.want(topic_filter, members, now_us)
        return self._counted(self._announce_filter(topic_filter, now_us))

    def came_untold(self, topic_filter: str, peers: tuple[str, ...], age_us: int, now_us: int) -> list[Effect]:
        """A session has come that wants the filter so long, and these peers were not told of it where it was."""
        wall_us = self._wall_us() - age_us
        new = self.announcer.owe(topic_filter, peers, now_us - age_us, wall_us)
        return [Keep("", Owed(topic_filter, new, wall_us))] if new else []

    def unsubscribed(self, topic_filter: str, now_us: int) -> list[Effect]:
        """Nobody here wants the filter any more."""
        self.routes.forget(topic_filter)
        self.router.ways.wanted(topic_filter, False)
        self.announcer.want(topic_filter, 0, now_us)
        return self._counted(self._announce_filter(topic_filter, now_us))

    def restore(self, peer: str, frame: Frame, now_us: int) -> None:
        """A frame that a Keep put into the journal of an earlier life."""
        if isinstance(frame, Facts):
            for event in self.coordinator.restore(frame.facts, now_us):
                if isinstance(event, MemberJoined | MemberLeft | CityChanged):
                    self._events[type(event)](event, now_us)
                elif isinstance(event, FactsChanged):
                    self.router.ways.learnt(event.changes)
            self.announcer.facts_changed()
            self.handover.restored()
            self.routes.forget_all()
        elif isinstance(frame, Interest) and self.is_peer(peer):
            self.interest.apply(peer, frame)
        elif isinstance(frame, WillsFired):
            self.wills.restore(peer, frame)
        elif isinstance(frame, Owed):
            since_us = now_us - max(0, self._wall_us() - frame.since_us)
            self.announcer.owe(frame.topic_filter, frame.peers, since_us, frame.since_us)

    def snapshot(self) -> list[Keep]:
        """Few frames in place of all that were kept: `restore` makes the same node of them."""
        kept = [Keep("", Facts((earlier,))) for earlier in self.descriptions.facts()]
        kept.append(Keep("", Facts(self.coordinator.book.facts())))
        for peer in self.interest.peers():
            kept.append(Keep(peer, Interest(True, tuple(self.interest.filters_of(peer)), ())))
        kept += [Keep("", owed) for owed in self.announcer.owed()]
        return kept + self.wills.snapshot()

    # What the host asks.

    def replays(self, topic: str, origin: str, age_us: int, now_us: int, was_handed: bool = False) -> bool:
        """Whether a journalled message is ours to send to a peer whose interest came late (see Replay).

        `was_handed`: a peer sent it here to be distributed.
        """
        key = self.router.key(topic)
        if key is not None:
            return self._takeover.covers(key, age_us, now_us, was_handed)
        # Whoever would distribute a message that came here so has distributed this one too.
        stage = CLIENT if origin in ("", self.name) else OWNER
        return self.router.decide(topic, stage, origin).audience is not Audience.NOBODY

    def senders_of(self, filters: Iterable[str]) -> frozenset[str] | None:
        """The peers that may send messages of these filters here; None: everybody."""
        if not self.contacts.on_demand or self.router.has_neighbours or self.router.sends_unasked:
            return None
        return frozenset(peer for text in filters for peer in self.announcer.told_of(text) if self.is_peer(peer))

    def _holds(self, topic: str) -> bool:
        """Whether the topic is changing hands: asked for every topic that is new here, so it says no quickly."""
        return self.handover.is_holding and self.handover.holds(self.router.key(topic))

    def is_of(self, key: str, topic: str) -> bool:
        """Whether the topic belongs to a key, or did before the table changed."""
        return any(matches(text, topic) for text in self.table.succession.filters(key))

    # Inside.

    def _hello_to(self, event: Greet, now_us: int) -> Hello:
        digest, time_us = self.announcer.digest(event.peer), self.clock.stamp_us()
        clocks = self._wall_us(), *self.skews.echo(event.peer, now_us)
        version = self._spoken_to(event.peer)
        return Hello(
            version, digest, event.greeting, time_us, self.descriptions.identity, *clocks, self.description.epoch
        )

    def _spoken_to(self, peer: str) -> int:
        return self.versions.to(peer, not self.contacts.on_demand)

    def _spread(self, event: Spread, now_us: int) -> list[Effect]:
        if self._spoken_to(event.peer) < RUMOURS_SINCE:
            return []
        return [Send(event.peer, Gossip(event.rumours, event.whole))]

    def _carry_out(self, events: Iterable[Event], now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            effects += self._events[type(event)](event, now_us)
        return effects

    def _hello(self, peer: str, hello: Hello, now_us: int) -> list[Effect]:
        self.versions.check(peer, hello.version)
        self.descriptions.check(peer, hello)
        self.clock.heard(hello.time_us)
        if hello.wall_us:
            self._silences.greeted(peer, hello.wall_us, now_us)
        effects = self._carry_out(self.coordinator.greeted(peer, hello.greeting, now_us), now_us)
        effects += self._compare_interest(peer, hello.interest_digest, now_us)
        self.skews.heard(peer, hello.wall_us, hello.echo_us, hello.held_us, self._wall_us(), now_us)
        return effects + self._compare_clocks(peer)

    def _compare_interest(self, peer: str, digest: int, now_us: int) -> list[Effect]:
        if digest != self.interest.digest(peer):
            return [Send(peer, InterestRequest())]
        self._takeover.in_step(peer, now_us)
        return []

    def _step_done(self, peer: str, frame: StepDone, now_us: int) -> list[Effect]:
        """A peer whose interest is not known to us has not done its part."""
        unknown = self._compare_interest(peer, frame.interest_digest, now_us)
        if unknown:
            return unknown
        self.handover.told(peer, frame.key, frame.epoch)
        return self._hand_over(now_us)

    def _hand_over(self, now_us: int) -> list[Effect]:
        """What filters that change hands need now, here and, at the central broker, next."""
        effects = self.handover.refresh(self.coordinator.alive(now_us), self.clock.stamp_us(), now_us)
        if self.handover.take_changed():
            self.routes.forget_all()
        facts = self.handover.next_facts(self.coordinator.alive(now_us), now_us)
        return effects + self._proposed(facts, now_us)

    def _proposed(self, facts: tuple[Fact, ...], now_us: int) -> list[Effect]:
        return self._carry_out(self.coordinator.propose(facts, now_us), now_us) if facts else []

    def _compare_clocks(self, peer: str) -> list[Effect]:
        """Says once that a peer's clock is wrong, and once that it is right again."""
        known = self.skews.of(peer)
        if known is not None:
            self.clock.compared(peer, known.ahead_us, known.round_trip_us)
        skew = self.skews.news(peer, self.city.membership.clock_warning_ms * 1000)
        return [ClockSkewed(peer, skew.ahead_us, self.skews.is_apart(peer))] if skew is not None else []

    def _alive_changed(self, event: AliveChanged, now_us: int) -> list[Effect]:
        self.routes.forget_all()  # where links open on demand, who is there can be reached
        effects = self._led_otherwise(event.alive) if self.router.ways.leads else []
        effects += self.directory.living(event.alive)
        effects += self.wills.living(event.alive, now_us)
        return effects + self._neighbours_changed()

    def _returned(self, event: Returned, now_us: int) -> list[Effect]:
        """Only who must be told something gets a link for it."""
        self.up.returned(event.name)
        self.wills.reborn(event.name, now_us)
        return [*self._announce(event.name, now_us), *self.directory.reconnected(event.name), Reopen(event.name)]

    def _clock_told(self, peer: str, frame: ClockTold, now_us: int) -> list[Effect]:
        self.clock.heard(frame.time_us)
        self.clock.happened(frame.time_us)
        return []

    def _not_to_be_sent(self, peer: str, frame: Frame, now_us: int) -> list[Effect]:
        raise ProtocolViolation(f"{peer} sends a frame that brokers keep for themselves")

    def _rests(self, peer: str, frame: Rest, now_us: int) -> list[Effect]:
        self._silences.rests(peer)
        return []

    def _led_otherwise(self, alive: tuple[str, ...]) -> list[Effect]:
        """Relays have come or gone, so that messages go other ways."""
        gone = [GoAround(peer) for peer in self.router.ways.living(alive) if peer in self.peers]
        return [*gone, RoutesChanged(EVERYTHING)]

    def _member_joined(self, event: MemberJoined, now_us: int) -> list[Effect]:
        if event.name == self.name or event.name in self.peers:
            return []
        self.routes.peers = (*self.peers, event.name)
        return self._neighbours_changed()

    def _member_left(self, event: MemberLeft, now_us: int) -> list[Effect]:
        if event.name not in self.peers:
            return []
        self.routes.peers = tuple(peer for peer in self.peers if peer != event.name)
        if self.up.is_linked(event.name):
            self._parting.add(event.name)
        self.up.forget(event.name)
        self.skews.forget(event.name)
        self.clock.forget(event.name)
        self.versions.forget(event.name)
        self.interest.member_left(event.name)
        self.announcer.member_left(event.name)
        self.directory.member_left(event.name)
        self.wills.member_left(event.name)
        self.routes.forget_all()
        return [RoutesChanged(("#",)), *self._neighbours_changed()]

    def _read_city(self, fact: Fact) -> tuple[City, Succession]:
        city = self.descriptions.read(fact)
        return city, succession_for(city)

    def _city_changed(self, event: CityChanged, now_us: int) -> list[Effect]:
        """Everything that depends on the city is asked anew from here on; FactsChanged follows and announces anew."""
        before, overruled = self.descriptions.adopt(event.after)
        city = self.city = self.description.city
        self.table.succession_changed(event.succession)
        self.router = self.routes.router = router_for(city, self.name, self.table)
        self._lead(now_us)
        is_routed_anew = before.city.routings != city.routings
        self.announcer.router_changed(self.router, now_us if is_routed_anew else None)
        self._takeover.city_changed(city, now_us)
        self.handover.city_changed(city.central)
        self.routes.forget_all()
        effects: list[Effect] = [CityFollowed(before, self.description, overruled)]
        retains = must_retain(self.router, self.table) if is_routed_anew else ()
        if retains:
            effects += [Send(peer, RetainedRequest(retains)) for peer in sorted(self.up)]
        return effects

    def _lead(self, now_us: int) -> None:
        """A new router's ways hear what the old one's knew."""
        ways = self.router.ways
        ways.wanted_by = self._wanted_by
        for topic_filter in self.announcer.filters():
            ways.wanted(topic_filter, True)
        ways.living(self.coordinator.alive(now_us))

    def _neighbours_changed(self) -> list[Effect]:
        before, self._neighbours = self._neighbours, self.neighbours
        return [NeighboursChanged(self._neighbours)] if self._neighbours != before else []

    def _facts_changed(self, event: FactsChanged, now_us: int) -> list[Effect]:
        concerned = self.router.ways.learnt(event.changes)
        for topic_filter in concerned:
            self.routes.forget(topic_filter)
        facts = tuple(change.after for change in event.changes)
        frame = Facts(facts)
        effects: list[Effect] = [Keep("", frame), FactsLearnt(facts), RoutesChanged(concerned)]
        effects += [Send(peer, frame) for peer in event.tell if peer in self.up]
        if concerned == EVERYTHING:  # otherwise it is only about ways, not about who must know what
            effects += self._neighbours_changed()
            self.announcer.facts_changed()
            for peer in sorted(self.up.among(self.announcer.concerned())):
                effects += self._announce(peer, now_us)
        for change in event.changes:
            effects += self._takeover.owner_changed(change, self.up, now_us)
        return effects + self._hand_over(now_us)

    def _interest_frame(self, peer: str, frame: Interest, now_us: int) -> list[Effect]:
        self.counters.interest_in += len(frame.wanted)
        fresh = [item for item in frame.wanted if not self.interest.wants(peer, item.topic_filter)]
        under_way_us = self._silences.under_way(peer, now_us)
        held_up_us = self._silences.held_up(peer, frame.said_us, now_us)
        ages = {item.topic_filter: max(item.age_ms * 1000 + held_up_us, under_way_us) for item in fresh}
        unserved = [item for item in fresh if not self._has_members(item.topic_filter)]
        changed = self.interest.apply(peer, frame)
        if not changed:
            return []
        for topic_filter in changed:
            self.routes.forget(topic_filter)
        kept = replace(frame, said_us=0)
        effects: list[Effect] = [Keep(peer, kept), RoutesChanged(tuple(plain_filter(text) for text in changed))]
        plain = [item for item in fresh if item.topic_filter == plain_filter(item.topic_filter)]
        late = tuple((item.topic_filter, ages[item.topic_filter]) for item in plain if ages[item.topic_filter])
        if late and (under_way_us or any(item.age_ms for item in plain)):  # who announces at once asks for them itself
            effects.append(SendRetained(peer, tuple(text for text, _ in late)))
        late += tuple(
            (item.topic_filter, ages[item.topic_filter])
            for item in unserved
            if ages[item.topic_filter] and item not in plain
        )
        if late:
            effects.append(Replay(peer, late))
        return effects + self._takeover.asks(peer, tuple(item.topic_filter for item in plain), now_us)

    def _wanted_by(self, broker: str) -> AbstractSet[str]:
        """What a broker's clients want; counted again only when it has changed."""
        is_own = broker == self.name
        if not is_own and broker not in self.peers:
            return frozenset()
        version = self.announcer.version if is_own else self.interest.digest(broker)
        known = self._wanted_sets.get(broker)
        if known is None or known[0] != version:
            filters = self.announcer.filters() if is_own else self.interest.plain_filters_of(broker)
            known = self._wanted_sets[broker] = version, frozenset(filters)
        return known[1]

    def peer_connected(self, peer: str, now_us: int) -> None:
        """The peer has opened the connection over which it speaks to us."""
        self._silences.connected(peer, now_us)

    def restarted(self, away_us: int, now_us: int) -> None:
        """This broker has a journal whose last message is so old."""
        self._is_new = False
        self._silences.restarted(self.peers, away_us, now_us)
        self._takeover.restarted(away_us, now_us)

    def unheard_us(self, peer: str, now_us: int) -> int:
        """How long the peer could not be heard until lately; 0: it could."""
        return self._silences.before(peer, now_us)

    def _has_members(self, share: str) -> bool:
        """Whether a shared subscription has had members that this broker could choose from."""
        return bool(self.announcer.members(share) or self.interest.members_of(share))

    def _announce_filter(self, topic_filter: str, now_us: int) -> list[Effect]:
        effects: list[Effect] = [RoutesChanged((plain_filter(topic_filter),))]
        for peer, frame in self.announcer.changes_of_filter(topic_filter, self.up, now_us):
            effects.append(Send(peer, frame))
        return effects

    def _announce(self, peer: str, now_us: int) -> list[Effect]:
        frame = self.announcer.changes(peer, now_us)
        return [Send(peer, frame)] if frame is not None else []

    def _said(self, peer: str, frame: Interest) -> Interest:
        """With the time, so that the peer sees when it was held up on its way."""
        return replace(frame, said_us=self._wall_us()) if self._spoken_to(peer) >= SAID_SINCE else frame

    def _released(self, peer: str, frame: ClientReleased, now_us: int) -> list[Effect]:
        self.directory.released(peer, frame)
        return []

    def _counted(self, effects: list[Effect]) -> list[Effect]:
        """Frames to peers that cannot be reached are left out: digests mend what they would have said."""
        sent: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send):
                if effect.peer not in self.up and effect.peer not in self._parting:
                    continue
                self.counters.frames_out += 1
                if isinstance(effect.frame, Interest):
                    self.counters.interest_out += len(effect.frame.wanted)
                    effect = Send(effect.peer, self._said(effect.peer, effect.frame))
            sent.append(effect)
        self._parting.clear()
        return sent


__all__ = ["Node", "NodeCounters"]
