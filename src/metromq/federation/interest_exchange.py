"""What brokers want of each other: what ours announces, and what follows from what peers announce; no I/O."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import final

from metromq.federation.announcer import Announcer
from metromq.federation.effects import Effect, Keep, Replay, RoutesChanged, Send, SendRetained
from metromq.federation.interest import PeerInterest, plain_filter
from metromq.federation.links.frames import Announcement, Interest, InterestRequest, Owed, RetainedRequest
from metromq.federation.outgoing_frames import NodeCounters
from metromq.federation.route_book import RouteBook
from metromq.federation.routing import Ways
from metromq.federation.silences import Silences
from metromq.federation.takeover import Takeover


@final
class InterestExchange:
    """Times are microseconds of a monotonic clock, `wall_us` is that on the wall."""

    def __init__(
        self,
        routes: RouteBook,
        takeover: Takeover,
        silences: Silences,
        counters: NodeCounters,
        wall_us: Callable[[], int],
    ) -> None:
        self.interest: PeerInterest = routes.interest
        self.announcer: Announcer = routes.announcer
        self._routes = routes
        self._takeover = takeover
        self._silences = silences
        self._counters = counters
        self._wall_us = wall_us
        self._wanted_sets: dict[str, tuple[int, AbstractSet[str]]] = {}
        self._echoes: dict[str, int] = {}  # of each peer the last one
        self.is_new = True  # the journal had no message
        self._asked: set[str] = set()  # peers that a new broker has asked for what they retain
        routes.router.ways.wanted_by = self.wanted_by

    # What our clients want.

    def wanted(self, topic_filter: str, members: int, now_us: int) -> list[Effect]:
        """So many of our clients want the filter, which counts for shared subscriptions; 0: nobody does any more."""
        self._routes.forget(topic_filter)
        self._routes.router.ways.wanted(topic_filter, bool(members))
        self.announcer.want(topic_filter, members, now_us)
        effects: list[Effect] = [RoutesChanged((plain_filter(topic_filter),))]
        if self.announcer.regroup():
            return effects + self._announce_changes(now_us)
        for peer, frame in self.announcer.changes_of_filter(topic_filter, self._routes.up, now_us):
            effects.append(Send(peer, frame))
        return effects

    def came_untold(self, topic_filter: str, peers: tuple[str, ...], age_us: int, now_us: int) -> list[Effect]:
        """A session has come that wants the filter so long, and these peers were not told of it where it was."""
        wall_us = self._wall_us() - age_us
        new = self.announcer.owe(topic_filter, peers, now_us - age_us, wall_us)
        return [Keep("", Owed(topic_filter, new, wall_us))] if new else []

    def was_heard(self, peer: str, echo_us: int, now_us: int) -> None:
        """The last of our greetings that the peer has heard was sent when the clock on our wall showed `echo_us`."""
        if echo_us and echo_us != self._echoes.get(peer):  # an old one again says nothing new, whatever our clock says
            self._echoes[peer] = echo_us
            self.announcer.was_heard(peer, min(now_us, now_us - self._wall_us() + echo_us))

    def announce(self, peer: str, now_us: int) -> list[Effect]:
        """What the peer does not know yet, or should forget."""
        frame = self.announcer.changes(peer, now_us)
        return [Send(peer, frame)] if frame is not None else []

    def announce_to_all(self, now_us: int) -> list[Effect]:
        """Others may be responsible now."""
        self.announcer.facts_changed()
        return self._announce_changes(now_us)

    def _announce_changes(self, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for peer in sorted(self._routes.up.among(self.announcer.concerned())):
            effects += self.announce(peer, now_us)
        return effects

    def ask_as_newcomer(self, peer: str) -> list[Effect]:
        """Where everything is sent everywhere nobody is asked later for the values from before we came."""
        if not self.is_new or not self._routes.router.sends_unasked or peer in self._asked:
            return []
        self._asked.add(peer)
        return [Send(peer, RetainedRequest(("#",)))]

    # What peers want.

    def told(self, peer: str, frame: Interest, now_us: int) -> list[Effect]:
        """A peer announces."""
        self._counters.interest_in += len(frame.wanted)
        fresh = [item for item in frame.wanted if not self.interest.wants(peer, item.topic_filter)]
        unserved = [item for item in fresh if not self._had_members(item, now_us)]
        changed = self.interest.apply(peer, frame)
        if not changed:
            return []
        for topic_filter in changed:
            self._routes.forget(topic_filter)
        kept = Interest(frame.whole, frame.wanted, frame.unwanted)
        effects: list[Effect] = [Keep(peer, kept), RoutesChanged(tuple(plain_filter(text) for text in changed))]
        plain = [item for item in fresh if item.topic_filter == plain_filter(item.topic_filter)]
        effects += self._late(peer, frame, plain, unserved, now_us)
        return effects + self._takeover.asks(peer, tuple(item.topic_filter for item in plain), now_us)

    def _late(
        self, peer: str, frame: Interest, plain: list[Announcement], unserved: list[Announcement], now_us: int
    ) -> list[Effect]:
        """What the peer has missed of filters that it wanted before we heard of it."""
        under_way_us = self._silences.under_way(peer, now_us)
        held_up_us = self._silences.held_up(peer, frame.said_us, now_us)
        ages = {item: max(item.age_ms * 1000 + held_up_us, under_way_us) for item in (*plain, *unserved)}
        late = tuple((item.topic_filter, ages[item]) for item in plain if ages[item])
        effects: list[Effect] = []
        if late and (under_way_us or any(item.age_ms for item in plain)):  # who announces at once asks for them itself
            effects.append(SendRetained(peer, tuple(text for text, _ in late)))
        late += tuple((item.topic_filter, ages[item]) for item in unserved if ages[item] and item not in plain)
        if late:
            effects.append(Replay(peer, late))
        return effects

    def came_unheard(self, peer: str, old: str, wanted: tuple[tuple[str, int], ...]) -> list[Effect]:
        """A session has come to the peer, and its old broker could not say whether all had heard what it wants, and
        since when. Who has heard it has sent there what came, and that follows the session."""
        late = tuple((text, age_us) for text, age_us in wanted if not self.interest.wants(old, text))
        return [Replay(peer, late)] if late and peer in self._routes.peers else []

    def _had_members(self, item: Announcement, now_us: int) -> bool:
        """Whether a shared subscription has had members that this broker could choose from, all the time."""
        share = item.topic_filter
        is_ours = self.announcer.has_wanted(share, now_us - item.age_ms * 1000)
        return is_ours or bool(self.interest.members_of(share))

    def compare(self, peer: str, digest: int, now_us: int) -> list[Effect]:
        """Of all that the peer has announced to us: if we know something else, we ask for it again."""
        if digest != self.interest.digest(peer):
            return [Send(peer, InterestRequest())]
        self._takeover.in_step(peer, now_us)
        return []

    def wanted_by(self, broker: str) -> AbstractSet[str]:
        """What a broker's clients want; counted again only when it has changed."""
        is_own = broker == self._routes.name
        if not is_own and broker not in self._routes.peers:
            return frozenset()
        version = self.announcer.version if is_own else self.interest.digest(broker)
        known = self._wanted_sets.get(broker)
        if known is None or known[0] != version:
            filters = self.announcer.filters() if is_own else self.interest.plain_filters_of(broker)
            known = self._wanted_sets[broker] = version, frozenset(filters)
        return known[1]

    # When something else changes.

    def lead(self, ways: Ways) -> None:
        """A new router's ways hear what the old one's knew."""
        ways.wanted_by = self.wanted_by
        for topic_filter in self.announcer.filters():
            ways.wanted(topic_filter, True)

    def member_left(self, peer: str) -> None:
        self.interest.member_left(peer)
        self.announcer.member_left(peer)
        self._echoes.pop(peer, None)

    def snapshot(self) -> list[Keep]:
        kept = [Keep(peer, Interest(True, tuple(self.interest.filters_of(peer)), ())) for peer in self.interest.peers()]
        return kept + [Keep("", owed) for owed in self.announcer.owed()]

    def restore_owed(self, frame: Owed, now_us: int) -> None:
        since_us = now_us - max(0, self._wall_us() - frame.since_us)
        self.announcer.owe(frame.topic_filter, frame.peers, since_us, frame.since_us)
