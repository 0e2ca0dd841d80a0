"""Subscriptions of this broker's clients: what was granted, and what the city is told of it."""

from typing import final

from metromq.protocol.packing import Packer
from metromq.protocol.session import records, store
from metromq.protocol.session.clock import Clock
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
    """Changes the route table, and tells the city of first and last subscriptions."""

    def __init__(
        self,
        settings: HubSettings,
        clock: Clock,
        commits: Commits,
        routes: RouteTable,
        city: CityPlace,
        counters: BrokerCounters,
        topic_counts: TopicCounts,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._commits = commits
        self._routes = routes
        self._city = city
        self._counters = counters
        self._topic_counts = topic_counts

    def subscribe(self, session: Session, wanted: Subscription, identifier: int) -> bool:
        """Grants a subscription that has been checked; returns whether it is new."""
        share, _ = split_shared(wanted.filter)
        qos = min(wanted.qos, self._settings.max_qos)
        grant = session.grant(
            share, qos, wanted.no_local, wanted.retain_as_published, wanted.retain_handling, identifier
        )
        old = session.grants.get(wanted.filter)
        self._add(session, wanted.filter, grant)
        return old is None or old.of_replay  # which the client does not have under this name

    def follow(self, session: Session, wanted: Subscription, identifier: int) -> None:
        """The same for what comes after a replay, at QoS 0; what is retained comes with the replay."""
        grant = Grant(session, "", 0, wanted.no_local, wanted.retain_as_published, 2, identifier)
        grant.of_replay = True
        self._add(session, wanted.filter, grant)

    def _add(self, session: Session, full_filter: str, grant: Grant) -> None:
        share, filter = split_shared(full_filter)
        if self._city.joined and full_filter not in session.grants:
            session.wants_since(full_filter, self._clock.wall_us)
        new = self._routes.add(full_filter, grant)
        self._counters.subscribes += 1
        if new and self._topic_counts.recording:  # one that is granted again is no further subscriber
            count = self._topic_counts.of(filter)
            count.opened += 1
            count.most_subscribers = max(count.most_subscribers, self._routes.subscriptions(filter, share))
        if session.backlog.durable and not grant.of_replay:
            self._commits.append(records.SUBSCRIBED, store.pack_grant(full_filter, grant), True)
        if new:
            self._interested(filter, share)

    def unsubscribe(self, session: Session, full_filter: str) -> bool:
        grant = session.grants.get(full_filter)
        if grant is None or grant.of_replay:
            return False
        self._give_up(session, full_filter)
        backlog = session.backlog
        if backlog.durable:
            self._commits.append(records.UNSUBSCRIBED, Packer().u32(backlog.number).text(full_filter).done(), True)
        return True

    def unfollow(self, session: Session, full_filter: str) -> None:
        """Ends what came after a replay; a subscription that has taken its place stays."""
        grant = session.grants.get(full_filter)
        if grant is not None and grant.of_replay:
            self._give_up(session, full_filter)

    def _give_up(self, session: Session, full_filter: str) -> None:
        self.drop(session, full_filter)
        self._counters.unsubscribes += 1
        if self._topic_counts.recording:
            self._topic_counts.of(split_shared(full_filter)[1]).closed += 1

    def end_replays(self, session: Session) -> None:
        """Its connection is gone."""
        for full_filter, grant in list(session.grants.items()):
            if grant.of_replay:
                self.drop(session, full_filter)

    def restore(self, full_filter: str, grant: Grant) -> None:
        """A subscription that the journal, or another broker, knows of."""
        if self._routes.add(full_filter, grant):
            share, filter = split_shared(full_filter)
            self._interested(filter, share)

    def drop(self, session: Session, full_filter: str) -> None:
        """Takes a subscription away without a record of it."""
        if self._routes.remove(session, full_filter) is None:
            return
        session.gave_up(full_filter)
        share, filter = split_shared(full_filter)
        count = self._routes.subscriptions(filter, share)
        if count == 0:
            self._city.federation.unsubscribed(filter, share)
        elif share:
            self._city.federation.subscribed(filter, share, count)

    def _interested(self, filter: str, share: str) -> None:
        count = self._routes.subscriptions(filter, share)
        if count == 1 or share:
            self._city.federation.subscribed(filter, share, count)
