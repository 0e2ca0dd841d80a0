"""One broker's part in the city: joins router, coordinator, directory and the interest of peers; no I/O.

It knows none of their kinds: the city's file names a routing and a coordination, and their registries make them.

The host (the live broker or the simulator) tells it what happens, with the time of a monotonic clock in microseconds,
and carries out the effects that come back, in their order. Where messages go is asked of `routes`, without effects.
"""

from collections.abc import Callable, Iterable
from typing import Any, final

from metromq.errors import ProtocolViolation
from metromq.federation.announcer import Announcer
from metromq.federation.city import City
from metromq.federation.city_changes import CityChanges
from metromq.federation.coordination import coordinator_for
from metromq.federation.coordination.coordinator import Event
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.description import Description
from metromq.federation.descriptions import Descriptions
from metromq.federation.directory import Directory
from metromq.federation.effects import Drain, Effect, Keep, RetainedTold, RoutesChanged, Send, SendRetained
from metromq.federation.greetings import Greetings
from metromq.federation.handover import Handover
from metromq.federation.interest import PeerInterest
from metromq.federation.interest_exchange import InterestExchange
from metromq.federation.links.frame_bytes import decode_frame
from metromq.federation.links.frames import (
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    ClockCompared,
    ClockTold,
    Facts,
    Followers,
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
)
from metromq.federation.outgoing_frames import NodeCounters, OutgoingFrames
from metromq.federation.reach import Reach
from metromq.federation.route_book import RouteBook
from metromq.federation.routing import Audience, Router, Ways, router_for, succession_for
from metromq.federation.stages import CLIENT, OWNER
from metromq.federation.takeover import Takeover
from metromq.federation.wills import Wills


@final
class Node:
    """What one broker knows of the others and decides from it: frames and changes in, effects out.

    It has many attributes because each is a part, which does the work for one kind of knowledge.
    """

    def __init__(
        self, city: City, name: str, incarnation: int, now_us: int, wall_us: Callable[[], int] | None = None
    ) -> None:
        city.broker(name)
        self.name = name
        wall_us = wall_us or (lambda: 0)
        succession = succession_for(city)
        self.coordinator = coordinator = coordinator_for(city, name, incarnation, succession, now_us)
        self.descriptions = Descriptions(city, name, coordinator)
        self.table = TopicTable(coordinator.book, succession)
        self.up = Reach(lambda peer: coordinator.contacts().on_demand and coordinator.is_alive(peer, 0))
        self.counters = NodeCounters()
        self.greetings = Greetings(coordinator, self.descriptions, wall_us, now_us)
        self.clock = self.greetings.clock
        self.directory = Directory(name, city.names, self.clock, self.up)
        self.wills = Wills(name, self.directory, self.up, city.names)
        router = router_for(city, name, self.table)
        announcer = Announcer(router, city.summarise_above)
        self.handover = handover = Handover(name, city.central, self.table, announcer.digest)
        peers = tuple(other for other in city.names if other != name)
        self.routes = RouteBook(
            name,
            router,
            peers,
            self.up,
            PeerInterest(),
            announcer,
            lambda topic: handover.is_holding and handover.holds(self.router.key(topic)),  # says no quickly
        )
        self._takeover = Takeover(name, city, self.table)
        self.exchange = InterestExchange(self.routes, self._takeover, self.greetings.silences, self.counters, wall_us)
        self._outgoing = OutgoingFrames(self.up, self.greetings, self.counters, wall_us)
        self._changes = CityChanges(
            coordinator,
            self.descriptions,
            self.table,
            self.routes,
            self.exchange,
            self.greetings,
            self.directory,
            self.wills,
            self._takeover,
            self.handover,
            self._outgoing,
        )
        self._handlers = self._frame_handlers()

    def _frame_handlers(self) -> dict[type, Callable[[str, Any, int], list[Effect]]]:
        directory, wills, greetings = self.directory, self.wills, self.greetings
        changes, coordinator = self._changes, self.coordinator
        return {
            Hello: self._hello,
            Facts: lambda peer, frame, now_us: changes.carry_out(coordinator.told(peer, frame.facts, now_us), now_us),
            Interest: self.exchange.told,
            InterestRequest: lambda peer, frame, now_us: [Send(peer, self.routes.announcer.whole(peer, now_us))],
            RetainedRequest: lambda peer, frame, now_us: [SendRetained(peer, frame.filters)],
            RetainedNone: lambda peer, frame, now_us: [RetainedTold(peer, frame.filters)],
            ClientClaim: lambda peer, frame, now_us: directory.claimed(peer, frame),
            ClientAnswer: lambda peer, frame, now_us: directory.answered(frame),
            ClientMoved: lambda peer, frame, now_us: directory.moved(frame, peer),
            ClientReleased: lambda peer, frame, now_us: directory.released(peer, frame),
            WillTold: lambda peer, frame, now_us: wills.told(frame, now_us),
            WillDropped: lambda peer, frame, now_us: wills.taken_back(peer, frame),
            WillsAnew: lambda peer, frame, now_us: wills.anew(peer),
            WillsFired: lambda peer, frame, now_us: wills.fired(peer, frame),
            StepDone: changes.step_done,
            Gossip: lambda peer, frame, now_us: changes.carry_out(
                coordinator.heard_of(peer, frame.rumours, frame.whole, now_us), now_us
            ),
            Followers: self._followers_told,
            Rest: lambda peer, frame, now_us: greetings.rests(peer),
            ClockTold: lambda peer, frame, now_us: greetings.time_told(frame),
        }

    @property
    def city(self) -> City:
        """As it is now."""
        return self.descriptions.now.city

    @property
    def description(self) -> Description:
        """Of the city as it is now."""
        return self.descriptions.now

    @property
    def router(self) -> Router:
        """Of the city as it is now."""
        return self.routes.router

    @property
    def peers(self) -> tuple[str, ...]:
        """All other members."""
        return self.routes.peers

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The peers that the host keeps links to."""
        return self._changes.neighbours()

    # What the host tells.

    def tick(self, now_us: int, clients: int = 0) -> list[Effect]:
        """Call at least five times per hello interval, or when `next_us` says."""
        effects = self.coordinated(self.coordinator.tick(now_us, clients), now_us)
        more = self._changes.greet_guests(now_us)
        if more:
            effects += self._outgoing.counted(more)
        ways = self.router.ways
        if ways.leads:
            effects += self._led(ways, now_us)
        unsaid = self.descriptions.unsaid(self._changes.is_mixed)
        if unsaid:
            effects += self._outgoing.counted(self._changes.proposed(unsaid, now_us))
        due = self.wills.tick(now_us)
        if self._changes.is_handing_over():
            due += self._changes.hand_over(now_us)
        return effects + self._outgoing.counted(due) if due else effects

    def _led(self, ways: Ways, now_us: int) -> list[Effect]:
        """What a routing with ways of its own wants now that time has passed."""
        effects: list[Effect] = []
        expected = ways.listens(now_us)
        if expected:  # the hub asks for the copies of these topics once more
            effects.append(RoutesChanged(expected))
        proposals = ways.proposals()
        if proposals:
            effects += self.coordinated(self.coordinator.propose(proposals, now_us), now_us)
        return effects

    def next_us(self, now_us: int) -> int:
        """When the next tick must come if nothing happens before. Now: at the usual pace."""
        if self.handover.is_busy or self.wills.is_waiting():
            return now_us
        return self.coordinator.next_us(now_us)

    def coordinated(self, events: Iterable[Event], now_us: int) -> list[Effect]:
        """The coordinator has found out something: from its own shim, if it has one, these come at any time."""
        return self._outgoing.counted(self._changes.carry_out(events, now_us))

    def change_city(self, city: City, author: str, time: float, note: str, now_us: int) -> list[Effect]:
        """Somebody here wants the city to be another one; raises UsageError for what a running city cannot become."""
        lagging = self.greetings.versions.cannot_follow(self.peers)
        wanted = self.descriptions.wanted(city, author, time, note, lagging)
        return self.coordinated(self.coordinator.propose((wanted,), now_us), now_us)

    def delegate(self, topic_filter: str, broker: str, now_us: int) -> list[Effect]:
        """The broker becomes responsible for the filter; raises UsageError if it cannot be. At the central broker."""
        alive = self.coordinator.alive(now_us)
        return self._changes.proposed(self.handover.begin(topic_filter, broker, alive), now_us)

    def drained(self, effect: Drain, now_us: int) -> list[Effect]:
        """A Drain is done."""
        drained = self.handover.drained(effect.key, effect.epoch, now_us)
        return self._outgoing.counted([*drained, *self._changes.hand_over(now_us)])

    def peer_up(self, peer: str, now_us: int) -> list[Effect]:
        """Control frames can reach the peer from now on."""
        if not self.is_peer(peer):
            return []  # it has left the city, and its link will too
        if not self.up.opened(peer):
            return []  # the link had only been at rest
        self.routes.forget_all()  # which member of a shared subscription is reachable has changed
        self.exchange.announcer.link_opened(peer)
        effects = self.exchange.announce(peer, now_us)
        effects += self._changes.carry_out(self.coordinator.met(peer, now_us), now_us)
        effects += self.directory.reconnected(peer)
        effects += self.wills.met(peer, now_us)
        return self._outgoing.counted(effects + self.exchange.ask_as_newcomer(peer))

    def peer_down(self, peer: str, now_us: int) -> list[Effect]:
        self.up.lost(peer)
        self.routes.forget_all()
        return []

    def is_peer(self, name: str) -> bool:
        return name != self.name and self.coordinator.book.is_member(name)

    def frame(self, peer: str, data: bytes, now_us: int) -> list[Effect]:
        """A control frame has come from the peer; raises PeerViolation for one that is not in order."""
        if not self.is_peer(peer):
            raise ProtocolViolation(f"{peer} is no member of the city")
        self.counters.frames_in += 1
        self.greetings.silences.heard(peer, now_us)
        decoded = decode_frame(data)
        handler = self._handlers.get(type(decoded))
        if handler is None:
            raise ProtocolViolation(f"{peer} sends a frame that brokers keep for themselves")
        return self._outgoing.counted(handler(peer, decoded, now_us))

    def _hello(self, peer: str, hello: Hello, now_us: int) -> list[Effect]:
        self.greetings.heard(peer, hello, now_us)
        effects = self._changes.carry_out(self.coordinator.greeted(peer, hello.greeting, now_us), now_us)
        effects += self.exchange.compare(peer, hello.interest_digest, now_us)
        self.exchange.was_heard(peer, hello.echo_us, now_us)
        return effects + self.greetings.compare_clocks(peer, hello, now_us)

    def _followers_told(self, peer: str, frame: Followers, now_us: int) -> list[Effect]:
        self.coordinator.counted(peer, frame.mark, int.from_bytes(frame.bits, "little"))
        return []

    def subscribed(self, topic_filter: str, now_us: int, members: int = 1) -> list[Effect]:
        """The broker's own clients want a filter; for a shared subscription `members` says how many of them."""
        return self._outgoing.counted(self.exchange.wanted(topic_filter, members, now_us))

    def unsubscribed(self, topic_filter: str, now_us: int) -> list[Effect]:
        """Nobody here wants the filter any more."""
        return self._outgoing.counted(self.exchange.wanted(topic_filter, 0, now_us))

    def restarted(self, away_us: int, now_us: int) -> None:
        """This broker has a journal whose last message is so old."""
        self.exchange.is_new = False
        self.greetings.silences.restarted(self.peers, away_us, now_us)
        self._takeover.restarted(away_us, now_us)

    def restore(self, peer: str, frame: Frame, now_us: int) -> None:
        """A frame that a Keep put into the journal of an earlier life."""
        if isinstance(frame, Facts):
            self._changes.restore(frame.facts, now_us)
        elif isinstance(frame, Interest) and self.is_peer(peer):
            self.exchange.interest.apply(peer, frame)
        elif isinstance(frame, WillsFired):
            self.wills.restore(peer, frame)
        elif isinstance(frame, Owed):
            self.exchange.restore_owed(frame, now_us)
        elif isinstance(frame, ClientMoved):
            self.directory.clean_starts.restore(frame)
            self.clock.heard(frame.clean_us)
        elif isinstance(frame, ClockCompared) and self.is_peer(peer):
            self.greetings.restore(peer, frame)

    def snapshot(self) -> list[Keep]:
        """Few frames in place of all that were kept: `restore` makes the same node of them."""
        kept = [Keep("", Facts((earlier,))) for earlier in self.descriptions.facts()]
        kept.append(Keep("", Facts(self.coordinator.book.facts())))
        kept += self.directory.clean_starts.snapshot()
        return kept + self.greetings.snapshot() + self.exchange.snapshot() + self.wills.snapshot()

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

    @property
    def owners_changed_us(self) -> int:
        """When this broker heard last that somebody else is responsible for a key, or started."""
        return self._takeover.changed_us

    def may_be_missed(self, now_us: int) -> bool:
        """Whether so much time has passed since somebody heard this broker that others may take it for lost."""
        heard_us, surely_us = self.routes.announcer.last_heard_us, self.coordinator.surely_us()
        return 0 < heard_us < now_us - surely_us and surely_us > 0

    def senders_of(self, filters: Iterable[str]) -> frozenset[str] | None:
        """The peers that may send messages of these filters here; None: everybody."""
        router = self.router
        if not self.coordinator.contacts().on_demand or router.has_neighbours or router.sends_unasked:
            return None
        announcer = self.routes.announcer
        return frozenset(peer for text in filters for peer in announcer.told_of(text) if self.is_peer(peer))


__all__ = ["Node", "NodeCounters"]
