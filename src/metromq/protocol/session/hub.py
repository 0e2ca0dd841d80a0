"""The broker without its network: the parts it is made of, and the moment at which they act."""

from collections.abc import Iterator
from typing import final

from metromq.protocol.session.backlog import Backlog, Backlogs
from metromq.protocol.session.clock import Clock
from metromq.protocol.session.commits import Commits
from metromq.protocol.session.connections import Connections
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.delivery import Delivery
from metromq.protocol.session.estates import Estates
from metromq.protocol.session.federation import CityPlace, Federation
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.links import Links
from metromq.protocol.session.log import Log
from metromq.protocol.session.output import Output
from metromq.protocol.session.publishing import Publishing
from metromq.protocol.session.replay_desk import ReplayDesk
from metromq.protocol.session.retained_messages import Retained
from metromq.protocol.session.routes import RouteTable
from metromq.protocol.session.sessions import Sessions
from metromq.protocol.session.subscriptions import Subscriptions
from metromq.protocol.session.topic_counts import TopicCounts


@final
class Hub:
    """All state of one broker, in parts; it has many attributes because each is such a part.

    Every call of a part happens at the moment that the shell has set with `at`.
    """

    def __init__(self, settings: HubSettings, log: Log | None = None, name: str = "metromq") -> None:
        self.name = name
        self.settings = settings
        self.clock = clock = Clock()
        self.counters = counters = BrokerCounters()
        self.topic_counts = counts = TopicCounts()
        self.city = city = CityPlace()
        self.routes = routes = RouteTable(settings.max_topic_levels)
        self.commits = commits = Commits(log)
        self.backlogs = backlogs = Backlogs(settings, commits)
        self.delivery = delivery = Delivery(name, clock, backlogs, routes, counters, counts)
        self.links = links = Links(commits, backlogs)
        self.retained = retained = Retained(settings, clock, commits, delivery, routes, city, counters)
        self.publishing = publishing = Publishing(
            name, settings, clock, commits, backlogs, delivery, links, routes, retained, city, counters, counts
        )
        self.subscriptions = subscriptions = Subscriptions(settings, clock, commits, routes, city, counters, counts)
        estates = Estates(name, commits, backlogs, delivery, links, routes, publishing, city)
        self.sessions = Sessions(
            name, settings, clock, commits, backlogs, delivery, publishing, subscriptions, city, counters, estates
        )
        self.connections = Connections(settings, clock, counters, counts)
        self.replay = ReplayDesk()
        self.dirty: list[Output] = []  # outputs that have something to write

    def at(self, now: float, wall_us: int) -> None:
        clock = self.clock
        clock.now = now
        clock.wall_us = wall_us
        counts = self.topic_counts
        if counts.recording and wall_us >= counts.until_us:
            counts.turn(wall_us)

    def tick(self) -> None:
        """Called now and then: ends what has taken too long."""
        self.connections.tick()
        self.sessions.tick()

    def federate(self, federation: Federation) -> None:
        """Makes this broker one of many."""
        self.city.join(federation, self.routes)

    def rights_changed(self) -> None:
        """The access list was read again: new routes follow it, and what waits is checked before it is sent."""
        self.routes.clear()
        for session in self.sessions.by_client_id.values():
            self.delivery.suspect(session)
        for connection in list(self.connections.open):
            connection.permissions_changed()

    def oldest_needed(self) -> int:
        """The oldest offset that a session or a link still needs; -1: none."""
        oldest = -1
        for backlog in self.all_backlogs():
            offset = backlog.oldest_offset()
            if offset >= 0 and (oldest < 0 or offset < oldest):
                oldest = offset
        return oldest

    def all_backlogs(self) -> Iterator[Backlog]:
        """Of clients and of links."""
        for session in self.sessions.by_client_id.values():
            yield session.backlog
        for session in self.sessions.estates.sessions.values():
            yield session.backlog
        yield from self.links.by_peer.values()
