"""Where messages go from this broker: asked of the router, joined with what peers want, and remembered; no I/O.

It answers questions and has no effects, so it can sit in the path of every message. The node tells it what changes.
"""

import dataclasses
from collections.abc import Callable
from typing import Final, final

from metromq.federation.announcer import Announcer
from metromq.federation.distribution import NOWHERE, Arrival, Distribution, distribute
from metromq.federation.interest import PeerInterest, plain_filter
from metromq.federation.reach import Reach
from metromq.federation.routing.router import Router
from metromq.federation.stages import CLIENT, FINAL, HOP_LIMIT
from metromq.protocol import Remembered

ROUTES_BYTES: Final = 8 << 20  # of routes that are remembered by topic,
ROUTE_BYTES: Final = 300  # each beside its own size
Way = tuple[str, int, str, tuple[str, ...], int]  # by which a message came: topic, stage, origin, served, limit


@final
class RouteBook:
    """`holds` says whether what clients publish of a topic waits here because the topic is changing hands."""

    def __init__(
        self,
        name: str,
        router: Router,
        peers: tuple[str, ...],
        up: Reach,
        interest: PeerInterest,
        announcer: Announcer,
        holds: Callable[[str], bool],
    ) -> None:
        self.name = name
        self.router = router
        self.peers = peers
        self.up = up
        self.interest = interest
        self.announcer = announcer
        self.copies_dropped = 0  # that had crossed as many links as a copy may
        self._holds = holds
        self.may_be_missed: Callable[[], bool] = lambda: False  # whether others may take this broker for lost
        # What `route` has said of what our clients publish, and of what peers send, where it says the same of all that
        # come so. Who asks for every message looks here first.
        self.of_topics: Remembered[str, Distribution] = Remembered(ROUTES_BYTES)
        self.onward: Remembered[Way, Distribution] = Remembered(ROUTES_BYTES)

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
        targets: tuple[str, ...] = (),
    ) -> Distribution:
        """Where a message goes from here. `number` is its offset at its origin, or any counter at QoS 0."""
        if stage >= FINAL:
            return Distribution((), shares) if shares else NOWHERE
        usual = not check and not shares and not shares_done and not targets
        known: Distribution | None = None
        if usual and stage == CLIENT and limit == HOP_LIMIT:
            known = self.of_topics.get(topic)
        elif usual:
            known = self.onward.get((topic, stage, origin, served, limit))
        if known is not None:
            return known
        arrival = Arrival(topic, stage, origin or self.name, number, served, shares_done, check, limit, targets=targets)
        route, plain = distribute(self, arrival)
        if shares:
            route = Distribution(route.hops, tuple(dict.fromkeys(route.shares + shares)), route.dropped)
        self.copies_dropped += len(route.dropped)
        if usual and stage == CLIENT and self._holds(topic):
            route = dataclasses.replace(route, held=True)
        elif usual and plain and not route.dropped:
            self._remember(arrival, origin, route)
        return route

    def _remember(self, arrival: Arrival, origin: str, route: Distribution) -> None:
        """It is the same for every message that comes this way."""
        topic, stage, served, limit = arrival.topic, arrival.stage, arrival.served, arrival.limit
        size = ROUTE_BYTES + len(topic) + route.size_bytes()
        if stage == CLIENT and limit == HOP_LIMIT:
            self.of_topics.put(topic, route, size)
        else:
            self.onward.put((topic, stage, origin, served, limit), route, size + 100 * len(served))

    def published(self, topic: str) -> None:
        """A client of this broker publishes the topic: the router may choose other ways for it."""
        ways = self.router.ways
        if ways.leads and ways.expects(topic) and ways.published(topic):
            self.forget(topic)

    def forget(self, topic_filter: str) -> None:
        """Messages of the filter may go elsewhere now."""
        topic_filter = plain_filter(topic_filter)
        if "+" in topic_filter or "#" in topic_filter:
            self.forget_all()
        else:
            self.of_topics.pop(topic_filter)
            self.onward.clear()

    def forget_all(self) -> None:
        self.of_topics.clear()
        self.onward.clear()
