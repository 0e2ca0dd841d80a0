"""Retained messages: what is stored, and who gets it when."""

from typing import Final, final

from metromq.protocol.session import records
from metromq.protocol.session.clock import Clock
from metromq.protocol.session.commits import Commits
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.delivery import Delivery, SentWhenStored
from metromq.protocol.session.federation import CityPlace
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import KIND_REPLAY, Message
from metromq.protocol.session.records import Target
from metromq.protocol.session.routes import RouteTable
from metromq.protocol.session.session import Grant, Session
from metromq.protocol.topics.retained import RetainedTree

RETAINED_BYTES: Final = 600  # what a retained message costs beside its topic, payload and properties


@final
class Retained:
    """The newest message with RETAIN of each topic, bounded in number and bytes."""

    def __init__(
        self,
        settings: HubSettings,
        clock: Clock,
        commits: Commits,
        delivery: Delivery,
        routes: RouteTable,
        city: CityPlace,
        counters: BrokerCounters,
    ) -> None:
        self.messages: RetainedTree[Message] = RetainedTree()
        self.bytes = 0
        self.limit_bytes = settings.max_retained_bytes
        self._settings = settings
        self._clock = clock
        self._commits = commits
        self._delivery = delivery
        self._routes = routes
        self._city = city
        self._counters = counters

    def has_room(self, topic: str, size: int) -> bool:
        """Whether a message with so many bytes of payload and properties can be retained, in place of the topic's
        present one if there is one."""
        old = self.messages.get(topic)
        if old is None and len(self.messages) >= self._settings.max_retained_messages:
            return False
        freed = 0 if old is None else _bytes_of(old)
        return self.bytes - freed + RETAINED_BYTES + len(topic) + size <= self.limit_bytes

    def store(self, message: Message) -> None:
        """The newest message with RETAIN stays; an empty payload removes it [MQTT-3.3.1-5..7]."""
        if self._city.joined and not self._city.federation.retains(message):
            return
        self._set_or_drop(message)

    def keep(self, message: Message) -> bool:
        """Stores a message that came from a peer later than it was published; False: a newer one is known."""
        if not self._city.federation.retains(message):
            return False
        self._set_or_drop(message)
        if self._commits.log is not None:
            message.offset = self._commits.store(records.encode_message(message, []), None, False)
        return True

    def _set_or_drop(self, message: Message) -> None:
        """Of a will or of a peer comes what nobody can refuse any more: without room for it the topic has no message,
        since the old one was replaced."""
        size = len(message.payload) + len(message.properties)
        if not message.payload or self.has_room(message.topic, size) or message.topic.startswith("$SYS/"):
            self.set(message)
            return
        self.remove(message.topic)
        self._counters.retained_dropped += 1
        if self._city.joined:
            self._city.federation.not_retained(message)

    def set(self, message: Message) -> None:
        """Makes it the topic's message, or the topic one without."""
        self.remove(message.topic)
        if message.payload:
            self.messages.set(message.topic, message)
            self.bytes += _bytes_of(message)

    def remove(self, topic: str) -> None:
        old = self.messages.get(topic)
        if old is not None:
            self.bytes -= _bytes_of(old)
            self.messages.remove(topic)

    def subscribed(self, session: Session, full_filter: str, new: bool) -> None:
        """Sends the messages a subscription asks for [MQTT-3.3.1-9..11]; shared ones get none."""
        grant = session.grants.get(full_filter)
        if grant is None or grant.share or grant.retain_handling == 2 or (grant.retain_handling == 1 and not new):
            return
        city = self._city
        if not city.joined or not city.federation.retained_waits(session, full_filter, new):
            self._send_matching(grant, full_filter)

    def waited(self, session: Session, full_filter: str) -> None:
        """The same for a subscription whose messages had to wait."""
        grant = session.grants.get(full_filter)
        if grant is not None:
            self._send_matching(grant, full_filter)

    def _send_matching(self, grant: Grant, filter: str) -> None:
        session = grant.session
        identifiers = (grant.identifier,) if grant.identifier else ()
        for message in self.messages.match(filter):
            if message.expires_at_us and message.expires_at_us <= self._clock.wall_us:
                self.remove(message.topic)
            elif self._routes.may_read(session, message.topic):
                self.send(session, message, min(grant.qos, message.qos), identifiers)
        self._delivery.pump(session)

    def send(self, session: Session, message: Message, qos: int, identifiers: tuple[int, ...]) -> None:
        """One stored message for one session, with RETAIN set [MQTT-3.3.1-8]; QoS 1 and 2 wait for `pump`."""
        if qos == 0:
            output = session.output
            if output is not None and output.room():
                data = self._delivery.packet(output, message, 0, True, False, 0, identifiers)
                if data is not None:
                    output.write(data)
        elif self._delivery.has_room(session):  # also if it has had it: each subscription is answered
            flags = qos | 4
            again = self._again(session, message, flags, identifiers)
            self._delivery.enqueue(session, again, flags, identifiers)

    def _again(self, session: Session, message: Message, flags: int, identifiers: tuple[int, ...]) -> Message:
        """The message as this session's queue can hold it: recorded for it, or in memory alone."""
        backlog = session.backlog
        is_recorded = self._commits.log is not None and (backlog.durable or backlog.behind())
        if not is_recorded and message.offset < 0:
            return message
        # Its own record may be older than the journal.
        copy = Message(message.topic, message.payload, message.qos, True, message.properties, message.expires_at_us)
        if is_recorded:
            copy.time_us = self._clock.wall_us
            copy.publisher = message.publisher
            copy.kind = KIND_REPLAY
            # The record tells where the value comes from. The copy does not: a session that roams must be able to get
            # the value again, each time that it subscribes.
            copy.origin, copy.origin_offset = message.origin, message.origin_offset
            body = records.encode_message(copy, [Target(backlog.number, flags, identifiers)])
            copy.origin, copy.origin_offset = "", -1
            copy.offset = self._commits.store(body, SentWhenStored(self._delivery, session, copy))
        return copy


def _bytes_of(message: Message) -> int:
    return RETAINED_BYTES + len(message.topic) + len(message.payload) + len(message.properties)
