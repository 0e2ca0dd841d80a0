"""How a message finds its receivers: routes, share groups, links to peers and the retained messages."""

from metromq.protocol.session import records
from metromq.protocol.session.city import Federation, LinkCopy
from metromq.protocol.session.commitment import Commitment, Pending
from metromq.protocol.session.forwarding import to_newer, to_older
from metromq.protocol.session.log import Log
from metromq.protocol.session.message import KIND_LINK, KIND_REPLAY, Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.packing import Packer
from metromq.protocol.session.records import Target
from metromq.protocol.session.routes import Route, RouteTable, RouteTarget
from metromq.protocol.session.session import RELEASED, SENT, Grant, Session
from metromq.protocol.session.settings import Settings
from metromq.protocol.topics.retained import RetainedTree
from metromq.protocol.wire.packets import MQTT5


class Publishing(Commitment):
    """Base of the hub: everything between an accepted message and the sessions it goes to."""

    def __init__(self, settings: Settings, log: Log | None, name: str) -> None:
        super().__init__(settings, log, name)
        self.routes = RouteTable()
        self.retained: RetainedTree[Message] = RetainedTree()
        self.federation = Federation()
        self.federated = False
        self.loose_offset = -1
        self.slow_outlet: Outlet | None = None  # the last receiver found lagging; who published to it slows down

    def take_slow(self) -> Outlet | None:
        """The receiver that was found lagging since the last time, if there was one."""
        slow = self.slow_outlet
        if slow is not None:
            self.slow_outlet = None
        return slow

    def federate(self, federation: Federation) -> None:
        """Makes this broker one of many."""
        self.federation = federation
        self.federated = True
        self.routes.remote_check = federation
        self.routes.clear()

    def may_read(self, session: Session, topic: str) -> bool:
        check = self.routes.read_check
        return check is None or check.may_read(session, topic)

    def suspect(self, session: Session) -> None:
        if self.routes.read_check is not None and not session.client_id.startswith("$"):  # links read everything
            super().suspect(session)

    # --- retained messages ----------------------------------------------------------------------------------------

    def _send_retained(self, grant: Grant) -> None:
        session = grant.session
        check = self.routes.read_check
        identifiers = (grant.identifier,) if grant.identifier else ()
        for message in self.retained.match(grant.filter):
            if message.expires_at_us and message.expires_at_us <= self.wall_us:
                self.retained.remove(message.topic)
                continue
            if check is None or check.may_read(session, message.topic):
                self.send_retained(session, message, min(grant.qos, message.qos), identifiers)
        self.pump(session)

    def send_retained(self, session: Session, message: Message, qos: int, identifiers: tuple[int, ...]) -> None:
        """One stored message for one session, with RETAIN set [MQTT-3.3.1-8]."""
        outlet = session.outlet
        if qos == 0:
            if outlet is not None and outlet.room():
                data = self.packet(outlet, message, 0, True, False, 0, identifiers)
                if data is not None:
                    outlet.write(data)
            return
        if not self.accepts(session, message):
            return
        log = self.log
        if log is not None and (session.durable or session.behind()):
            copy = Message(message.topic, message.payload, message.qos, True, message.properties, message.expires_at_us)
            copy.time_us = self.wall_us
            copy.publisher = message.publisher
            copy.kind = KIND_REPLAY
            target = Target(session.number, qos | 4, identifiers)
            copy.offset = self.append_message(records.encode_message(copy, [target]), True)
            self.pending.append(Pending(self.position, copy.offset, [session], None))
            self.enqueue(session, copy, qos | 4, identifiers)
        else:
            loose = message
            if message.offset >= 0:  # it may be older than the journal; this entry lives in memory only
                loose = Message(
                    message.topic, message.payload, message.qos, True, message.properties, message.expires_at_us
                )
            self.enqueue(session, loose, qos | 4, identifiers)

    def keep(self, message: Message) -> bool:
        """Stores a retained message that came from a peer later than it was published; False: a newer one is known."""
        if not self.federation.retains(message):
            return False
        if message.payload:
            self.retained.set(message.topic, message)
        else:
            self.retained.remove(message.topic)
        if self.log is not None:
            message.offset = self.append_message(records.encode_message(message, []), False)
            self.pending.append(Pending(self.position, message.offset, [], None))
        return True

    def queue_again(
        self, session: Session, message: Message, flags: int, identifiers: tuple[int, ...], state: int
    ) -> None:
        """Queues a message that came with its session from another broker."""
        message.kind = KIND_REPLAY
        message.offset = -1
        if self.log is not None:
            body = records.encode_message(message, [Target(session.number, flags, identifiers)])
            message.offset = self.append_message(body, True)
            self.pending.append(Pending(self.position, message.offset, [session], None))
        self.enqueue(session, message, flags, identifiers)
        if state and session.queue and not session.spilled:
            entry = session.queue.last()
            entry.dup = True
            if state != SENT:
                entry.state = RELEASED
                self.append(records.RECEIVED, Packer().u32(session.number).u16(entry.packet_id).done())

    def replay(self, message: Message, copies: list[LinkCopy], shares: tuple[str, ...] = ()) -> None:
        """Writes a message again for peers, and members of own share groups, that must get it by a new way; origin and
        time stay what they were."""
        copy = Message(message.topic, message.payload, message.qos, message.retain, message.properties)
        copy.expires_at_us = message.expires_at_us
        copy.time_us = message.time_us
        copy.publisher = message.publisher
        copy.kind = KIND_REPLAY
        copy.origin = message.origin or self.name
        copy.origin_offset = message.origin_offset if message.origin else message.offset
        queued: list[RouteTarget] = []
        for group in self.routes.find(message.topic.encode()).groups if shares else []:
            if f"$share/{group.name}/{group.filter}" not in shares:
                continue
            grant = group.pick(message.topic, self.routes.read_check)
            if grant is None:
                continue
            target = _target_of(grant)
            if target.qos == 0:
                self._send0(target, copy)
            elif self.accepts(target.session, copy):
                queued.append(target)
        self.deliver12(copy, queued, copies, None, 0)

    # --- publishing -----------------------------------------------------------------------------------------------

    def store_retained(self, message: Message) -> None:
        """The newest message with RETAIN stays; an empty payload removes it [MQTT-3.3.1-5..7]."""
        if self.federated and not self.federation.retains(message):
            return
        if not message.payload:
            self.retained.remove(message.topic)
        elif self.may_retain(message.topic) or message.topic.startswith("$SYS/"):
            self.retained.set(message.topic, message)

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for one more retained message, or the topic has one already."""
        return len(self.retained) < self.settings.max_retained_messages or self.retained.get(topic) is not None

    def publish(self, message: Message, publisher: Session | None, packet_id: int = 0, with_plain: bool = True) -> int:
        """Accepts a message and returns how many receivers it has; what must wait for the journal waits for
        `self.position` to be committed. Without `with_plain` only share groups and peers get it: others have it."""
        route = self.routes.find(message.topic.encode())
        if message.kind == KIND_LINK:
            message.arrived_us = self.wall_us
        if message.retain:
            self.store_retained(message)
        if self.census is not None and message.kind != KIND_LINK:
            self.census.of(message.topic).published(message.publisher, 1, len(message.payload))
        if message.qos == 0:
            if self.log is not None and (message.retain or self.settings.record_qos0):
                message.offset = self.append_message(records.encode_message(message, []), False)
            return self._publish0(route, message, publisher, with_plain)
        return self._publish12(route, message, publisher, packet_id, with_plain)

    def publish_known(self, route: Route, message: Message, publisher: Session, head: bytes) -> int:
        """A QoS 1 message on a plain route; without journal and peers it goes at once to whoever waits for nothing.

        `head` is its packet up to the packet identifier, as MQTT 3.1.1; empty: it came as MQTT 5.
        """
        census = self.census
        if census is not None:
            census.of(message.topic).published(message.publisher, 1, len(message.payload))
        if self.log is not None or self.federated:
            return self._publish12(route, message, publisher, 0, True)
        for target in route.targets:
            if target.qos == 0:
                self._send0(target, message)
            else:
                self.deliver_now(target.session, message, head)
        count = len(route.targets)
        if census is not None:
            census.of(message.topic).delivered(count, 0, 1, len(message.payload))
        return count

    def publish_system(self, message: Message) -> None:
        """A retained message of the broker itself; never journalled."""
        self.store_retained(message)
        self._publish0(self.routes.find(message.topic.encode()), message, None)

    def _publish0(self, route: Route, message: Message, publisher: Session | None, with_plain: bool = True) -> int:
        count = 0
        for target in route.targets if with_plain else []:
            chosen: RouteTarget | None = target
            if target.no_local and target.session is publisher:
                chosen = target.without_local()
            if chosen is not None:
                self._send0(chosen, message)
                count += 1
        for group in route.groups:
            if self.federation.picks_share(group.name, group.filter, message):
                grant = group.pick(message.topic, self.routes.read_check)
                if grant is not None:
                    self._send0(_target_of(grant), message)
                    count += 1
        peers = 0
        if self.federated:
            for copy in self.federation.copies(message):
                outlet = copy.session.outlet
                if outlet is not None:
                    outlet.forward(message, copy.note)
                    peers += 1
        if self.census is not None:
            self.census.of(message.topic).delivered(count, peers, 1, len(message.payload))
        return count + peers

    def spread(
        self,
        route: Route,
        run: bytes,
        size: int,
        header: int,
        topic_end: int,
        newer: bool,
        publisher: str,
        origin: str,
        copies: list[LinkCopy] | None,
    ) -> None:
        """Gives a run of QoS 0 packets of one size to everyone on a plain route, and to peers, as it came.

        `header` and `topic_end` are positions in each packet; `newer`: they are MQTT 5 packets without properties.
        """
        counters = self.counters
        count = len(run) // size
        payload_bytes = len(run) - count * (topic_end + 1 if newer else topic_end)
        other = b""
        sent = 0
        for target in route.targets:
            outlet = target.session.outlet
            if outlet is None:
                continue
            if (outlet.version == MQTT5) == newer:
                data = run
            else:
                if not other:
                    other = to_older(run, size, topic_end, header) if newer else to_newer(run, size, topic_end, header)
                data = other
            if (
                outlet.stalled
                or outlet.waiting_bytes >= outlet.hard_limit_bytes
                or len(data) > outlet.max_packet_bytes * count  # [MQTT-3.1.2-25]
            ):
                outlet.room()
                outlet.dropped += count
                counters.dropped += count
                continue
            outlet.write(data)
            if outlet.waiting_bytes > outlet.soft_limit_bytes:
                self.slow_outlet = outlet
            sent += count
        counters.messages_sent += sent
        counters.publish_bytes_sent += sent * (payload_bytes // count)
        peers = 0
        if copies:
            for copy in copies:
                link = copy.session.outlet
                if link is not None:
                    link.forward_run(run, count, newer, origin, copy.note)
                    peers += 1
                    if link.waiting_bytes > link.soft_limit_bytes:
                        self.slow_outlet = link
        if self.census is not None:
            topic_count = self.census.of(route.topic)
            if not origin:
                topic_count.published(publisher, count, payload_bytes)
            topic_count.delivered(sent // count, peers, count, payload_bytes)

    def _send0(self, target: RouteTarget, message: Message) -> None:
        outlet = target.session.outlet
        if outlet is None:
            return
        if not outlet.room():
            outlet.dropped += 1
            self.counters.dropped += 1
            return
        retain = message.retain and target.retain_as_published  # [MQTT-3.3.1-12], [MQTT-3.3.1-13]
        data = self.packet(outlet, message, 0, retain, False, 0, target.identifiers)
        if data is not None:
            outlet.write(data)
            if outlet.waiting_bytes > outlet.soft_limit_bytes:
                self.slow_outlet = outlet

    def _publish12(
        self, route: Route, message: Message, publisher: Session | None, packet_id: int, with_plain: bool
    ) -> int:
        receivers: list[RouteTarget] = []
        for target in route.targets if with_plain else []:
            if target.no_local and target.session is publisher:
                rest = target.without_local()
                if rest is not None:
                    receivers.append(rest)
            else:
                receivers.append(target)
        for group in route.groups:
            if self.federation.picks_share(group.name, group.filter, message):
                grant = group.pick(message.topic, self.routes.read_check)
                if grant is not None:
                    receivers.append(_target_of(grant))
        count = len(receivers)
        queued: list[RouteTarget] = []
        for target in receivers:
            if target.qos == 0:
                self._send0(target, message)
            elif self.accepts(target.session, message):
                queued.append(target)
        copies: list[LinkCopy] = self.federation.copies(message) if self.federated else []
        self.deliver12(message, queued, copies, publisher, packet_id)
        if self.census is not None:
            self.census.of(message.topic).delivered(count, len(copies), 1, len(message.payload))
        return count + len(copies)

    def deliver12(
        self,
        message: Message,
        queued: list[RouteTarget],
        copies: list[LinkCopy],
        publisher: Session | None,
        packet_id: int,
    ) -> None:
        """Writes the message down with everyone who must get it, and queues it for them."""
        log = self.log
        if len(queued) + len(copies) > records.MAX_TARGETS:
            rest = _again(message)
            self.deliver12(message, queued[: records.MAX_TARGETS // 2], copies, publisher, packet_id)
            self.deliver12(rest, queued[records.MAX_TARGETS // 2 :], [], None, 0)
            return
        if log is not None:
            targets: list[Target] = []
            for target in queued:
                if target.session.durable or target.session.behind():
                    targets.append(Target(target.session.number, _flags(message, target), target.identifiers))
            for copy in copies:
                targets.append(Target(copy.session.number, message.qos | (4 if message.retain else 0), (), copy.note))
            owner = publisher.number if publisher is not None and publisher.durable and packet_id else 0
            message.offset = self.append_message(records.encode_message(message, targets, owner, packet_id), True)
        elif copies:
            self.loose_offset += 1
            message.offset = self.loose_offset  # links count what they carry, with or without a journal
        sessions: list[Session] = []
        for target in queued:
            self.enqueue(target.session, message, _flags(message, target), target.identifiers)
            sessions.append(target.session)
        for copy in copies:
            self.enqueue(copy.session, message, message.qos | (4 if message.retain else 0), (), copy.note)
            sessions.append(copy.session)
        if log is None:
            for session in sessions:
                self.pump(session)
        else:
            self.pending.append(Pending(self.position, message.offset, sessions, None))


def _again(message: Message) -> Message:
    """The same message for receivers that its own record has no place for."""
    copy = Message(message.topic, message.payload, message.qos, message.retain, message.properties)
    copy.expires_at_us = message.expires_at_us
    copy.time_us = message.time_us
    copy.publisher = message.publisher
    copy.kind = KIND_REPLAY
    return copy


def _flags(message: Message, target: RouteTarget) -> int:
    return min(message.qos, target.qos) | (4 if message.retain and target.retain_as_published else 0)


def _target_of(grant: Grant) -> RouteTarget:
    target = RouteTarget(grant.session)
    target.add(grant)
    return target
