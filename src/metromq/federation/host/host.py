"""One broker's part in the city: answers the hub, carries out what the node wants, and keeps links to peers; no I/O.

Three narrow doors lead outside. What is stored goes through the hub into its log; what is sent goes to a transport;
what time it is the shell says with `hub.at` before it calls anything here. The live broker and the simulator differ
only behind these doors.
"""

from collections.abc import Callable
from typing import Any, Final, final

from metromq.errors import PeerViolation
from metromq.federation.city import City
from metromq.federation.description import Description
from metromq.federation.effects import (
    CityFollowed,
    ClockSkewed,
    Drain,
    Effect,
    FactsLearnt,
    FireWill,
    GoAround,
    HandOver,
    Keep,
    NeighboursChanged,
    Release,
    Reopen,
    Replay,
    Reroute,
    RetainedTold,
    RoutesChanged,
    Send,
    SendRetained,
    SessionFound,
    SessionRefused,
    SessionTaken,
    WillFired,
)
from metromq.federation.host.catch_up import CatchUp
from metromq.federation.host.city_news import CityNews
from metromq.federation.host.copies import Copies
from metromq.federation.host.draining import Draining
from metromq.federation.host.hub_answers import HubAnswers
from metromq.federation.host.last_wills import LastWills
from metromq.federation.host.leaving import Leaving
from metromq.federation.host.peer_links import PeerLinks
from metromq.federation.host.receiving import Receiving
from metromq.federation.host.retained_versions import RetainedVersions
from metromq.federation.host.roaming import LONGEST_REST_S, Roaming
from metromq.federation.host.roaming import Reporting as Reporting
from metromq.federation.host.timers import Timers
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import CONTROL_TOPIC
from metromq.federation.links.inbox import Inbox
from metromq.federation.links.link import Link
from metromq.federation.links.relay import RELAY_TOPIC, RelayTransport
from metromq.federation.links.transport import Transport
from metromq.federation.node import Node
from metromq.protocol import Packer, reasons
from metromq.protocol.session import Hub, Session, Waiter, records

TICKS_PER_HELLO: Final = 5
BUSY_TICK_S: Final = 0.01
LONGEST_TICK_S: Final = 0.25  # links and timers need a look several times a second, however rare hellos are


@final
class Host:
    """Make it before the hub recovers; `start` after that, then `tick` each time that `rest_s` seconds have passed.

    It has many methods because it stands between all parts: links and relays ask and tell it what happens to them, and
    the shell what the broker does and knows. Its attributes are the parts that do the work.
    """

    def __init__(self, city: City, name: str, hub: Hub, report: Reporting) -> None:
        self.name = name
        self.hub = hub
        self.node = Node(city, name, hub.clock.wall_us, self._now_us(), lambda: hub.clock.wall_us)
        self.node.routes.may_be_missed = lambda: self.node.may_be_missed(self._now_us())
        self.inbox = Inbox()
        self.on_city: Callable[[Description], None] = lambda description: None  # told of every new description
        self._report = report
        self._ticked_at = hub.clock.now
        self._rested_s = 0.0  # how long it was to be until the next tick
        self._paced_for: City | None = None
        self._hello_s = self.tick_s = self._calm_s = 0.0
        self._keep_pace()
        self._timers = Timers()
        self._links = PeerLinks(hub, self.node, self._timers, self, self.run)
        self.links: dict[str, Link] = self._links.by_peer
        self._copies = Copies(hub, self.node, self.inbox, self._links.wants)
        self._stood_at = 0  # how far the journal was at the last tick,
        self._is_stirred = False  # and whether it had grown since the one before
        self._retained = RetainedVersions(hub, self.node, self._copies, self._timers, self.run)
        self._catch_up = CatchUp(hub, self.node, self._copies)
        self._draining = Draining(hub, self.node, self.run)
        self.roaming = Roaming(hub, self.node, self._copies, self._catch_up, self._timers, self.run, report)
        self.receiving = Receiving(
            hub, self.node, self.inbox, self._copies, self._retained, self.roaming, self._other_parcel
        )
        self._wills = LastWills(hub, self.node, self.inbox, self._copies, self.run, report)
        self.leaving = Leaving(hub, self.node, self.roaming, self.run, self.change_city, report)
        self.answers = HubAnswers(
            hub,
            self.node,
            self.inbox,
            self._links,
            self._copies,
            self.receiving,
            self._retained,
            self._catch_up,
            self.roaming,
            self._wills,
            self.leaving,
            self.run,
        )
        hub.federate(self.answers)
        self._news = news = CityNews(name, report)
        self._runners: dict[type, Callable[[Any], None]] = {
            Send: self._links.send,
            Keep: self._keep,
            RoutesChanged: self._routes_changed,
            FactsLearnt: news.facts_learnt,
            CityFollowed: self._city_followed,
            NeighboursChanged: self._links.neighbours_changed,
            Reopen: self._links.reopen,
            Reroute: self._catch_up.reroute,
            GoAround: self._catch_up.go_around,
            HandOver: self._catch_up.hand_over,
            Replay: self._catch_up.replay,
            SendRetained: self._retained.send,
            RetainedTold: self._retained.told,
            Drain: self._draining.begin,
            Release: self._catch_up.release,
            SessionFound: self.roaming.found,
            SessionRefused: self.roaming.refused,
            SessionTaken: self.roaming.taken,
            ClockSkewed: news.clock_skewed,
            FireWill: self._wills.fire,
            WillFired: self._wills.fired,
        }

    def _now_us(self) -> int:
        return int(self.hub.clock.now * 1_000_000)

    @property
    def city(self) -> City:
        """As it is now."""
        return self.node.city

    def _keep_pace(self) -> None:
        """How often to tick, as the city is now."""
        city = self.node.city
        if city is not self._paced_for:
            self._paced_for = city
            self._hello_s = city.membership.hello_interval_ms / 1000
            self.tick_s = min(self._hello_s / TICKS_PER_HELLO, LONGEST_TICK_S)
            is_large = len(city.names) > city.membership.mesh_up_to
            self._calm_s = min(self._hello_s, LONGEST_REST_S) if is_large else min(self._hello_s / 2, LONGEST_TICK_S)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, transport: Transport) -> None:
        """After recovery: opens links to the peers and begins to greet."""
        clock = self.hub.clock
        relay = RelayTransport(self.name, transport, self, lambda: clock.now, clock.wall_us)
        self._ticked_at = self.hub.clock.now
        if self._catch_up.marks.away_us() >= 0:
            self.node.restarted(self._catch_up.marks.away_us(), self._now_us())
        self._links.start(relay)
        for session in list(self.hub.sessions.by_client_id.values()):
            if session.departed_to:
                self.roaming.restored(session)
            else:
                self.node.directory.restored(
                    session.client_id,
                    session.claimed_us,
                    session.username,
                    session.opened_us,
                    session.clean_us,
                )
            self._remember_ages(session)
        self.run(self.node.directory.living(self.node.coordinator.book.members))
        self._retained.restored()
        self._wills.start()
        self.leaving.restored()
        self._links.forget_departed_later()
        self.tick()

    def _remember_ages(self, session: Session) -> None:
        clock = self.hub.clock
        for full_filter in session.grants:
            since_us = session.since_us(full_filter)
            if since_us:
                age_us = max(0, clock.wall_us - since_us)
                self.node.exchange.announcer.wanted_since(full_filter, self._now_us() - age_us)

    def stop(self) -> None:
        self._links.stop()

    def tick(self) -> None:
        hub, now_us = self.hub, self._now_us()
        self._keep_pace()
        passed_s = hub.clock.now - self._ticked_at
        self._ticked_at = hub.clock.now
        if passed_s > max(self.tick_s, self._rested_s) + self._hello_s:
            self._report("warning", "this process stood still", seconds=round(passed_s, 3))
            self.node.coordinator.overslept(now_us, int(passed_s * 1_000_000))
        self._links.tick(hub.clock.now)
        self.run(self.node.tick(now_us, len(hub.connections.open) - len(self.answers.heard)))
        self._links.look()
        self._catch_up.marks.mark()
        self._is_stirred = hub.commits.position != self._stood_at
        self._stood_at = hub.commits.position
        self._timers.run(hub.clock.now)
        if self._draining.waiting:
            self._draining.tick()
        self.roaming.tick()
        self.leaving.tick()

    def rest_s(self) -> float:
        """How long the next tick may wait: while nothing happens, until something is due."""
        self._rested_s = self._may_rest_s()
        return self._rested_s

    def _may_rest_s(self) -> float:
        self._keep_pace()
        if self.roaming.is_busy() or self._draining.is_busy():
            return BUSY_TICK_S
        now, due_at = self.hub.clock.now, self.node.next_us(self._now_us()) / 1_000_000
        timer_at = self._timers.next_at()
        if timer_at is not None:
            due_at = min(due_at, timer_at)
        if due_at <= now:
            return self.tick_s
        return min(max(due_at - now, BUSY_TICK_S), self._longest_s())

    def _longest_s(self) -> float:
        return self._calm_s if self._is_calm() else self.tick_s

    def _is_calm(self) -> bool:
        """Whether nothing is going on: all that ticks are for is to greet, and to notice what does not come."""
        return not self._is_stirred and not self.leaving.is_away and self._links.is_calm()

    def delegate(self, topic_filter: str, broker: str) -> None:
        """Makes a broker responsible for a filter, or without one nobody in particular; raises UsageError."""
        self.run(self.node.delegate(topic_filter, broker, self._now_us()))

    def link_up(self, link: Link) -> None:
        via = {"through": self.via(link.peer)} if self.via(link.peer) else {}
        self._report("info", "link is up", peer=link.peer, waiting=link.backlog.unsettled(), **via)
        self.run(self.node.peer_up(link.peer, self._now_us()))
        self._retained.tell_back(link.peer)
        self.hub.links.resume(link.backlog)

    def link_down(self, link: Link, problem: str) -> None:
        if link.resting:
            self.node.up.rested(link.peer)
            return
        self._links.down(link.peer)
        self._report("info", "link is down", peer=link.peer, problem=problem)
        if link.peer in self.node.up:
            self.run(self.node.peer_down(link.peer, self._now_us()))

    def link_settled(self) -> None:
        """A peer has stored what it was sent."""
        if self._draining.waiting:  # no call: every batch comes by here
            self._draining.tick()

    def reads_time(self, peer: str) -> bool:
        return self.node.greetings.reads_time(peer)

    def is_alive(self, peer: str) -> bool:
        return self.node.coordinator.is_alive(peer, self._now_us())

    def is_peer(self, name: str) -> bool:
        return self.node.is_peer(name)

    def middles(self, peer: str) -> frozenset[str] | None:
        """The brokers that have a link to the peer in any case; None: all that we reach."""
        return self.node.coordinator.companions_of(peer)

    def reach_for(self, peer: str) -> None:
        self._links.reach_for(peer)

    def rests(self, peer: str) -> bool:
        """Whether there is no link to the peer because there was nothing to send."""
        return self._links.rests(peer)

    def via(self, peer: str) -> str:
        """The broker through which messages go to a peer that cannot be reached directly; empty: they need none."""
        transport = self._links.transport
        return transport.via(peer) if transport is not None else ""

    def problem(self, peer: str) -> str:
        """Why a peer cannot be reached directly; empty: it can."""
        transport = self._links.transport
        return transport.problem(peer) if transport is not None else ""

    # --- the node's effects ---------------------------------------------------------------------------------------

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._runners[type(effect)](effect)
        if effects:
            self._copies.changed()

    def _keep(self, effect: Keep) -> None:
        self.hub.commits.append(records.CONTROL, Packer().text(effect.peer).blob(encode_frame(effect.frame)).done())

    def change_city(self, city: City, author: str, note: str = "") -> None:
        """Proposes another description; raises UsageError for what a running city cannot become."""
        self.run(self.node.change_city(city, author, self.hub.clock.wall_us / 1e6, note, self._now_us()))

    def _city_followed(self, effect: CityFollowed) -> None:
        self._news.city_followed(effect)
        self._links.city_changed(effect.before.city, effect.after.city)
        self.on_city(effect.after)

    def _routes_changed(self, effect: RoutesChanged) -> None:
        for topic_filter in effect.filters:
            self.hub.routes.invalidate(topic_filter)

    # --- what comes through other brokers -------------------------------------------------------------------------

    def peer_came(self, peer: str, journal: str) -> None:
        """A peer has opened a link to us, and has proved its name."""
        self.journal_told(peer, journal)
        self.receiving.connected(peer)
        if self._links.transport is not None:
            self._links.transport.came(peer)

    def journal_told(self, peer: str, journal: str) -> None:
        """A peer that has proved its name says which journal its sequences count in."""
        try:
            number = int(journal, 16)
        except ValueError:
            return
        if self.inbox.journal_of(peer, number):
            self._report("warning", "the peer started with a new journal", peer=peer)

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None:
        """A parcel that came through another broker."""
        self.receiving.arrived(peer, topic, payload, waiter)

    def _other_parcel(self, peer: str, topic: str, payload: bytes) -> None:
        """One without messages."""
        if topic == CONTROL_TOPIC:
            if self.hub.commits.position != self._stood_at:
                self._catch_up.marks.mark()
            self.run(self.node.frame(peer, payload, self._now_us()))
        elif topic == RELAY_TOPIC and self._links.transport is not None:
            self._links.transport.arrived(peer, payload)
        else:
            raise PeerViolation(reasons.PROTOCOL_ERROR, f"{topic} is no topic of a link")
