"""Subscriptions of this broker's clients: what was granted, and what the city is told of it."""

from typing import final

from metromq.protocol.packing import Packer
from metromq.protocol.session import records, store
from metromq.protocol.session.commits import Commits
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.federation import CityPlace
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.routes import RouteTable
from metromq.protocol.session.session import Grant, Session
from metromq.protocol.session.topic_counts import TopicCounts
from metromq.protocol.topics.names import split_shared
from metromq.protocol.wire.packets import Subscription


@final
class Subscriptions:
    """Changes the route table, and knows how many subscriptions each filter has."""

    def __init__(
        self,
        settings: HubSettings,
        commits: Commits,
        routes: RouteTable,
        city: CityPlace,
        counters: BrokerCounters,
        topic_counts: TopicCounts,
    ) -> None:
        self.interests: dict[tuple[str, str], int] = {}  # (filter, share) -> subscriptions
        self._settings = settings
        self._commits = commits
        self._routes = routes
        self._city = city
        self._counters = counters
        self._topic_counts = topic_counts

    def subscribe(self, session: Session, wanted: Subscription, identifier: int) -> bool:
        """Grants a subscription that has been checked; returns whether it is new."""
        share, filter = split_shared(wanted.filter)
        qos = min(wanted.qos, self._settings.max_qos)
        grant = Grant(
            session, filter, share, qos, wanted.no_local, wanted.retain_as_published, wanted.retain_handling, identifier
        )
        new = self._routes.add(grant)
        self._counters.subscribes += 1
        if new and self._topic_counts.recording:  # one that is granted again is no further subscriber
            count = self._topic_counts.of(filter)
            count.opened += 1
            count.most_subscribers = max(count.most_subscribers, self.interests.get((filter, share), 0) + 1)
        if session.backlog.durable:
            self._commits.append(records.SUBSCRIBED, store.pack_grant(grant), True)
        if new:
            self._interested(filter, share)
        return new

    def unsubscribe(self, session: Session, full_filter: str) -> bool:
        if full_filter not in session.grants:
            return False
        self.drop(session, full_filter)
        self._counters.unsubscribes += 1
        if self._topic_counts.recording:
            self._topic_counts.of(split_shared(full_filter)[1]).closed += 1
        backlog = session.backlog
        if backlog.durable:
            self._commits.append(records.UNSUBSCRIBED, Packer().u32(backlog.number).text(full_filter).done(), True)
        return True

    def restore(self, grant: Grant) -> None:
        """A subscription that the journal, or another broker, knows of."""
        if self._routes.add(grant):
            self._interested(grant.filter, grant.share)

    def drop(self, session: Session, full_filter: str) -> None:
        """Takes a subscription away without a record of it."""
        grant = self._routes.remove(session, full_filter)
        if grant is None:
            return
        key = (grant.filter, grant.share)
        count = self.interests.get(key, 0) - 1
        if count > 0:
            self.interests[key] = count
            if grant.share:
                self._city.federation.subscribed(grant.filter, grant.share, count)
        else:
            self.interests.pop(key, None)
            self._city.federation.unsubscribed(grant.filter, grant.share)

    def _interested(self, filter: str, share: str) -> None:
        key = (filter, share)
        count = self.interests.get(key, 0)
        self.interests[key] = count + 1
        if count == 0 or share:
            self._city.federation.subscribed(filter, share, count + 1)
