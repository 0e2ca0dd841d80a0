"""What the coordinator finds out about the city, and what follows from it for all that depends on it; no I/O."""

from collections.abc import Callable, Iterable
from typing import Any, final

from metromq.federation.city import City
from metromq.federation.coordination.coordinator import (
    AliveChanged,
    CityChanged,
    Coordinator,
    Count,
    Event,
    FactsChanged,
    Greet,
    MemberJoined,
    MemberLeft,
    Returned,
    Spread,
    Tell,
)
from metromq.federation.coordination.facts import FOLLOWS, Fact
from metromq.federation.coordination.succession import Succession, TopicTable
from metromq.federation.descriptions import Descriptions
from metromq.federation.directory import Directory
from metromq.federation.effects import (
    CityFollowed,
    Effect,
    FactsLearnt,
    GoAround,
    Keep,
    NeighboursChanged,
    Reopen,
    RoutesChanged,
    Send,
)
from metromq.federation.greetings import Greetings
from metromq.federation.handover import Handover
from metromq.federation.interest_exchange import InterestExchange
from metromq.federation.links.frames import Facts, Followers, Gossip, RetainedRequest, StepDone
from metromq.federation.outgoing_frames import OutgoingFrames
from metromq.federation.route_book import RouteBook
from metromq.federation.routing import EVERYTHING, must_retain, router_for, succession_for
from metromq.federation.takeover import Takeover
from metromq.federation.wills import Wills


@final
class CityChanges:
    """Each event of the coordinator has a handler, looked up by type. It asks for new facts, too (`proposed`)."""

    def __init__(
        self,
        coordinator: Coordinator,
        descriptions: Descriptions,
        table: TopicTable,
        routes: RouteBook,
        exchange: InterestExchange,
        greetings: Greetings,
        directory: Directory,
        wills: Wills,
        takeover: Takeover,
        handover: Handover,
        outgoing: OutgoingFrames,
    ) -> None:
        self._name = routes.name
        self._coordinator = coordinator
        self._descriptions = descriptions
        self._table = table
        self._routes = routes
        self._exchange = exchange
        self._greetings = greetings
        self._directory = directory
        self._wills = wills
        self._takeover = takeover
        self._handover = handover
        self._outgoing = outgoing
        self._neighbours = self.neighbours()
        coordinator.reads_city = self._read_city
        coordinator.writes_city = descriptions.text
        self._events: dict[type, Callable[[Any, int], list[Effect]]] = {
            MemberJoined: self._member_joined,
            MemberLeft: self._member_left,
            AliveChanged: self._alive_changed,
            FactsChanged: self._facts_changed,
            CityChanged: self._city_changed,
            Greet: self._greet,
            Tell: lambda event, now_us: [Send(event.peer, Facts(event.facts))],
            Spread: self._spread,
            Count: self._count,
            Returned: self._returned,
        }

    def carry_out(self, events: Iterable[Event], now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            effects += self._events[type(event)](event, now_us)
        return effects

    def proposed(self, facts: tuple[Fact, ...], now_us: int) -> list[Effect]:
        return self.carry_out(self._coordinator.propose(facts, now_us), now_us) if facts else []

    def restore(self, facts: tuple[Fact, ...], now_us: int) -> None:
        """The journal of an earlier life knew these."""
        for event in self._coordinator.restore(facts, now_us):
            if isinstance(event, MemberJoined | MemberLeft | CityChanged):
                self._events[type(event)](event, now_us)
            elif isinstance(event, FactsChanged):
                self._routes.router.ways.learnt(event.changes)
        self._exchange.announcer.facts_changed()
        self._handover.restored()
        self._routes.forget_all()

    # What changes hands.

    def is_handing_over(self) -> bool:
        """Whether `hand_over` would find something to do, though nothing has happened."""
        return not self._handover.is_idle()

    def hand_over(self, now_us: int) -> list[Effect]:
        """What filters that change hands need now, here and, at the central broker, next."""
        alive = self._coordinator.alive(now_us)
        effects = self._handover.refresh(alive, self._greetings.clock.stamp_us(), now_us)
        if self._handover.take_changed():
            self._routes.forget_all()
        facts = self._handover.next_facts(self._coordinator.alive(now_us), now_us)
        return effects + self.proposed(facts, now_us)

    def step_done(self, peer: str, frame: StepDone, now_us: int) -> list[Effect]:
        """A peer whose interest is not known to us has not done its part."""
        unknown = self._exchange.compare(peer, frame.interest_digest, now_us)
        if unknown:
            return unknown
        self._handover.told(peer, frame.key, frame.epoch)
        return self.hand_over(now_us)

    # Who is there.

    def neighbours(self) -> tuple[str, ...]:
        """The peers that the host keeps links to."""
        router, contacts, book = self._routes.router, self._coordinator.contacts(), self._coordinator.book
        kept = contacts.kept(router.neighbours, router.has_neighbours)
        if contacts.on_demand:  # few: not everybody is looked at
            return tuple(sorted(peer for peer in kept if peer != self._name and book.is_member(peer)))
        return tuple(peer for peer in self._routes.peers if peer in kept)

    def _neighbours_changed(self) -> list[Effect]:
        before, self._neighbours = self._neighbours, self.neighbours()
        return [NeighboursChanged(self._neighbours)] if self._neighbours != before else []

    def _member_joined(self, event: MemberJoined, now_us: int) -> list[Effect]:
        routes = self._routes
        if event.name == self._name or event.name in routes.peers:
            return []
        routes.peers = (*routes.peers, event.name)
        return self._neighbours_changed()

    def _member_left(self, event: MemberLeft, now_us: int) -> list[Effect]:
        name, routes = event.name, self._routes
        if name not in routes.peers:
            return []
        routes.peers = tuple(peer for peer in routes.peers if peer != name)
        if routes.up.is_linked(name):
            self._outgoing.parts(name)
        routes.up.forget(name)
        self._greetings.member_left(name)
        self._exchange.member_left(name)
        self._directory.member_left(name)
        self._wills.member_left(name)
        routes.forget_all()
        return [RoutesChanged(("#",)), *self._neighbours_changed()]

    def _alive_changed(self, event: AliveChanged, now_us: int) -> list[Effect]:
        self._routes.forget_all()  # where links open on demand, who is there can be reached
        effects = self._led_otherwise(event.alive) if self._routes.router.ways.leads else []
        effects += self._directory.living(event.alive)
        effects += self._wills.living(event.alive, now_us)
        return effects + self._neighbours_changed()

    def _led_otherwise(self, alive: tuple[str, ...]) -> list[Effect]:
        """Relays have come or gone, so that messages go other ways."""
        routes = self._routes
        gone = [GoAround(peer) for peer in routes.router.ways.living(alive) if peer in routes.peers]
        return [*gone, RoutesChanged(EVERYTHING)]

    def _returned(self, event: Returned, now_us: int) -> list[Effect]:
        """Only who must be told something gets a link for it."""
        name = event.name
        self._routes.up.returned(name)
        self._wills.reborn(name, now_us)
        return [*self._exchange.announce(name, now_us), *self._directory.reconnected(name), Reopen(name)]

    # What the coordinator wants to say.

    def greet_guests(self, now_us: int) -> list[Effect]:
        guests = self._greetings.guests(self._routes.up, now_us)
        if not guests:
            return []
        return self.carry_out([event for peer in guests for event in self._coordinator.met(peer, now_us)], now_us)

    def _greet(self, event: Greet, now_us: int) -> list[Effect]:
        digest = self._exchange.announcer.digest(event.peer)
        return [Send(event.peer, self._greetings.hello(event, digest, now_us))]

    def _spread(self, event: Spread, now_us: int) -> list[Effect]:
        if not self._greetings.reads_rumours(event.peer):
            return []
        return [Send(event.peer, Gossip(event.rumours, event.whole))]

    def is_mixed(self) -> bool:
        """Whether a peer that we keep a link to would not understand if we only counted who follows a change."""
        return any(not self._greetings.reads_counts(peer) for peer in self._neighbours)

    def _count(self, event: Count, now_us: int) -> list[Effect]:
        if not self._greetings.reads_counts(event.peer):
            return []
        return [
            Send(event.peer, Followers(event.mark, event.bits.to_bytes((event.bits.bit_length() + 7) // 8, "little")))
        ]

    # What the city agrees on.

    def _facts_changed(self, event: FactsChanged, now_us: int) -> list[Effect]:
        routes = self._routes
        if all(change.after.kind == FOLLOWS for change in event.changes):
            return self._followers_learnt(event)
        concerned = routes.router.ways.learnt(event.changes)
        for topic_filter in concerned:
            routes.forget(topic_filter)
        facts = tuple(change.after for change in event.changes)
        frame = Facts(facts)
        effects: list[Effect] = [Keep("", frame), FactsLearnt(facts), RoutesChanged(concerned)]
        effects += self._told(event, frame)
        if concerned == EVERYTHING:  # otherwise it is only about ways, not about who must know what
            effects += self._neighbours_changed()
            effects += self._exchange.announce_to_all(now_us)
        for change in event.changes:
            effects += self._takeover.owner_changed(change, routes.up, now_us)
        return effects + self.hand_over(now_us)

    def _told(self, event: FactsChanged, frame: Facts) -> list[Effect]:
        peers = [peer for peer in event.tell if peer in self._routes.up]
        shorter = self._coordinator.patch_of(frame.facts) if peers else ()
        if not shorter:
            return [Send(peer, frame) for peer in peers]
        patch = Facts(shorter)
        return [Send(peer, patch if self._greetings.reads_counts(peer) else frame) for peer in peers]

    def _followers_learnt(self, event: FactsChanged) -> list[Effect]:
        """Everybody says so after each change of the city, and it changes nothing else."""
        facts = tuple(change.after for change in event.changes)
        frame = Facts(facts)
        told = [Send(peer, frame) for peer in event.tell if peer in self._routes.up]
        return [Keep("", frame), FactsLearnt(facts), *told]

    def _read_city(self, fact: Fact) -> tuple[City, Succession]:
        city = self._descriptions.read(fact)
        return city, succession_for(city)

    def _city_changed(self, event: CityChanged, now_us: int) -> list[Effect]:
        """Everything that depends on the city is asked anew from here on; FactsChanged follows and announces anew."""
        before, overruled = self._descriptions.adopt(event.after)
        after, routes = self._descriptions.now, self._routes
        self._table.succession_changed(event.succession)
        router = routes.router = router_for(after.city, self._name, self._table)
        self._exchange.lead(router.ways)
        router.ways.living(self._coordinator.alive(now_us))
        is_routed_anew = before.city.routings != after.city.routings
        self._exchange.announcer.router_changed(router, after.city.summarise_above, now_us if is_routed_anew else None)
        self._takeover.city_changed(after.city, now_us)
        self._handover.city_changed(after.city.central)
        routes.forget_all()
        effects: list[Effect] = [CityFollowed(before, after, overruled)]
        retains = must_retain(router, self._table) if is_routed_anew else ()
        if retains:
            effects += [Send(peer, RetainedRequest(retains)) for peer in sorted(routes.up)]
        return effects
