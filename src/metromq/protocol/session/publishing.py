"""How a message finds its receivers: routes, share groups and links to peers."""

from typing import final

from metromq.protocol.session import records
from metromq.protocol.session.backlog import Backlogs
from metromq.protocol.session.clock import Clock
from metromq.protocol.session.commits import Commits, Waiter
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.delivery import Delivery
from metromq.protocol.session.federation import CityPlace, Entitled, LinkCopy
from metromq.protocol.session.forwarding import (
    NEWER_BYTES,
    Piece,
    medley_to_other,
    packets_of,
    payload_bytes,
    to_newer,
    to_older,
)
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.links import Links
from metromq.protocol.session.message import KIND_LINK, KIND_REPLAY, Message
from metromq.protocol.session.output import ClientOutput
from metromq.protocol.session.records import Target
from metromq.protocol.session.retained_messages import Retained
from metromq.protocol.session.route import Route, ShareGroup
from metromq.protocol.session.routes import RouteTable
from metromq.protocol.session.session import RouteTarget, Session
from metromq.protocol.session.topic_counts import TopicCounts
from metromq.protocol.wire.packets import MQTT5


@final
class _Receivers(Waiter):
    """Everyone who gets a message when the journal has it."""

    def __init__(
        self, publishing: "Publishing", message: Message, queued: list[RouteTarget], copies: list[LinkCopy]
    ) -> None:
        self.publishing = publishing
        self.message = message
        self.queued = queued
        self.copies = copies

    def committed(self) -> None:
        self.publishing.pump(self.queued, self.copies)

    def undo(self) -> None:
        self.publishing.take_back(self.message, self.queued, self.copies)

    def failed(self) -> None:
        pass


@final
class Publishing:
    """Everything between an accepted message and those it goes to."""

    def __init__(
        self,
        name: str,
        settings: HubSettings,
        clock: Clock,
        commits: Commits,
        backlogs: Backlogs,
        delivery: Delivery,
        links: Links,
        routes: RouteTable,
        retained: Retained,
        city: CityPlace,
        counters: BrokerCounters,
        topic_counts: TopicCounts,
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._commits = commits
        self._backlogs = backlogs
        self._delivery = delivery
        self._links = links
        self._routes = routes
        self._retained = retained
        self._city = city
        self._counters = counters
        self._topic_counts = topic_counts
        self._loose_offset = -1  # links count what they carry, with or without a journal
        self._entitled: Entitled | None = None  # to the message that is being published; None: whoever wants it

    def publish(self, message: Message, publisher: Session | None, packet_id: int = 0) -> int:
        """Accepts a message and returns how many receivers it has; what must wait for the journal waits for
        everything appended so far to be committed. `packet_id` is that of a QoS 2 publisher."""
        return self._publish(message, publisher, packet_id, 0, True)

    def publish_from_peer(self, message: Message, uses: int, with_plain: bool, entitled: Entitled | None = None) -> int:
        """The same for what a link brought: the record says what it was used for. Without `with_plain` only share
        groups and peers get it: others have it. `entitled`: of who wants it, only these do."""
        message.arrived_us = self._clock.wall_us
        self._entitled = entitled
        count = self._publish(message, None, 0, uses, with_plain)
        self._entitled = None
        return count

    def publish_will(self, message: Message, uses: int) -> None:
        """The same for a will that other brokers may publish too."""
        self._publish(message, None, 0, uses, True)

    def _publish(self, message: Message, publisher: Session | None, packet_id: int, uses: int, with_plain: bool) -> int:
        route = self._routes.find(message.topic.encode())
        if message.retain:
            self._retained.store(message)
        if self._topic_counts.recording and message.kind != KIND_LINK:
            self._topic_counts.of(message.topic).published(message.publisher, 1, len(message.payload))
        if message.qos == 0:
            commits = self._commits
            if commits.log is not None and (message.retain or self._settings.record_qos0):
                message.offset = commits.append_message(records.encode_message(message, []))
            return self._publish0(route, message, publisher, with_plain)
        return self._publish12(route, message, publisher, packet_id, uses, with_plain)

    def publish_known(self, route: Route, message: Message, publisher: Session, head: bytes) -> int:
        """A QoS 1 message on a plain route; without journal and peers it goes at once to whoever waits for nothing.

        `head` is its packet up to the packet identifier, as MQTT 3.1.1; empty: it came as MQTT 5.
        """
        counts = self._topic_counts
        if counts.recording:
            counts.of(message.topic).published(message.publisher, 1, len(message.payload))
        if self._commits.log is not None or self._city.joined:
            return self._publish12(route, message, publisher, 0, 0, True)
        delivery = self._delivery
        for target in route.targets:
            if target.qos == 0:
                delivery.send0(target, message)
            else:
                delivery.deliver_now(target.session, message, head)
        count = len(route.targets)
        if counts.recording:
            counts.of(message.topic).delivered(count, 0, 1, len(message.payload), "")
        return count

    def passes_packets(self) -> bool:
        """Whether nobody but the receiving client has to do with a QoS 1 message: no journal, no peer, no recorder."""
        return self._commits.log is None and not self._city.joined and not self._topic_counts.recording

    def publish_system(self, message: Message) -> None:
        """A retained message of the broker itself; never journalled."""
        self._retained.store(message)
        self._publish0(self._routes.find(message.topic.encode()), message, None, True)

    def replay(
        self,
        message: Message,
        copies: list[LinkCopy],
        shares: tuple[str, ...] = (),
        with_roamed: bool = False,
        uses: int = 0,
    ) -> None:
        """Writes a message again for peers, and members of own share groups, that must get it by a new way; origin and
        time stay what they were. `with_roamed`: also for own sessions that came here since, and have not had it;
        `uses` as in `publish_from_peer`."""
        copy = self.named_again(message)
        queued: list[RouteTarget] = []
        reached = 0
        route = self._routes.find(message.topic.encode())
        for target in route.targets if with_roamed else []:
            if target.session.roamed:
                reached += self._send_or_queue(target, copy, queued)
        for group in route.groups if shares else []:
            if f"$share/{group.name}/{group.filter}" not in shares:
                continue
            member = group.pick(message.topic, self._routes.read_check)
            if member is not None:
                reached += self._send_or_queue(member, copy, queued)
        if queued or copies:
            self.deliver12(copy, queued, copies, None, 0, uses)
        if reached and self._topic_counts.recording:
            self._topic_counts.of(copy.topic).delivered(reached, 0, 1, len(copy.payload), copy.origin)

    def named_again(self, message: Message) -> Message:
        """The same message, to be written once more; origin and number there are what they were."""
        copy = _again(message)
        copy.origin = message.origin or self._name
        copy.origin_offset = message.origin_offset if message.origin else message.offset
        if copy.origin_offset < 0 and not message.origin and self._commits.log is None:  # it went to nobody else so far
            copy.origin_offset = self.next_loose_offset()
        return copy

    def next_loose_offset(self) -> int:
        """For a message that no journal counts."""
        self._loose_offset += 1
        return self._loose_offset

    # --- QoS 0 ----------------------------------------------------------------------------------------------------

    def _publish0(self, route: Route, message: Message, publisher: Session | None, with_plain: bool) -> int:
        count = 0
        reached = 0  # of those, who are connected
        for target in route.targets if with_plain else []:
            chosen: RouteTarget | None = target
            if target.no_local and target.session is publisher:
                chosen = target.without_local()
            if chosen is not None:
                self._delivery.send0(chosen, message)
                count += 1
                reached += target.session.output is not None
        if route.groups:
            for target in self._picked(route.groups, message, 0):
                self._delivery.send0(target, message)
                count += 1
                reached += target.session.output is not None
        peers = 0
        if self._city.joined:
            copies = self._city.copier.copies(message)
            for copy in copies:
                output = copy.backlog.output
                if output is not None:
                    output.forward(message, copy.note)
                    peers += 1
                    if output.waiting_bytes > output.soft_limit_bytes:
                        self._delivery.slow = output
            if message.retain:
                self._city.federation.keeps_up(message, copies)
        if self._topic_counts.recording:
            self._topic_counts.of(message.topic).delivered(reached, peers, 1, len(message.payload), message.origin)
        return count + peers

    def _picked(self, groups: list[ShareGroup], message: Message, uses: int) -> list[RouteTarget]:
        """One member of each share group that this broker serves with the message."""
        picked: list[RouteTarget] = []
        for group in groups:
            if self._city.copier.picks_share(group.name, group.filter, message):
                target = group.pick(message.topic, self._routes.read_check)
                if target is not None:
                    note = self._city.copier.share_note(target.note, uses) if uses else target.note
                    picked.append(target if note == target.note else target.with_note(note))
        return picked

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
        counters = self._counters
        count = len(run) // size
        payloads = len(run) - count * (topic_end + 1 if newer else topic_end)
        other = b""
        sent = 0
        for target in route.targets:
            output = target.session.output
            if output is None:
                continue
            if (output.version == MQTT5) == newer:
                sent += self._give(output, run, count, size)
                continue
            if not other:
                other = to_older(run, size, topic_end, header) if newer else to_newer(run, size, topic_end, header)
            sent += self._give(output, other, count, len(other) // count)
        counters.messages_sent += sent
        counters.publish_bytes_sent += sent * (payloads // count)
        peers = self._spread_to_peers(copies, run, count, newer, origin) if copies else 0
        if self._topic_counts.recording:
            topic_count = self._topic_counts.of(run[header + 2 : topic_end].decode())
            if not origin:
                topic_count.published(publisher, count, payloads)
            topic_count.delivered(sent // count, peers, count, payloads, origin)

    def spread_medley(self, route: Route, data: bytes, piece: Piece, newer: bool) -> None:
        """Gives QoS 0 packets of several topics or sizes to everyone on the plain route that all of them have."""
        other = b""
        for target in route.targets:
            output = target.session.output
            if output is None:
                continue
            medley, largest = data, piece.largest
            is_newer = output.version == MQTT5
            if is_newer != newer:
                if not other:
                    other = medley_to_other(data, newer)
                medley, largest = other, largest + NEWER_BYTES
            if largest <= output.max_packet_bytes:
                if self._give(output, medley, piece.count, largest):
                    self._counters.messages_sent += piece.count
                    self._counters.publish_bytes_sent += len(data) - piece.head_bytes
                continue
            for packet in packets_of(medley):
                if self._give(output, packet, 1, len(packet)):
                    self._counters.messages_sent += 1
                    self._counters.publish_bytes_sent += payload_bytes(packet, is_newer)

    def _give(self, output: ClientOutput, data: bytes, count: int, largest: int) -> int:
        """So many packets to one client: all of them or, when it has no room or takes none so large, none."""
        if (
            output.stalled
            or output.waiting_bytes >= output.hard_limit_bytes
            or largest > output.max_packet_bytes  # [MQTT-3.1.2-25]
        ):
            output.room()
            output.dropped += count
            self._counters.dropped += count
            return 0
        output.write(data)
        if output.waiting_bytes > output.soft_limit_bytes:
            self._delivery.slow = output
        return count

    def _spread_to_peers(self, copies: list[LinkCopy], run: bytes, count: int, newer: bool, origin: str) -> int:
        peers = 0
        for copy in copies:
            output = copy.backlog.output
            if output is not None:
                output.forward_run(run, count, newer, origin, copy.note)
                peers += 1
                if output.waiting_bytes > output.soft_limit_bytes:
                    self._delivery.slow = output
        return peers

    # --- QoS 1 and 2 ----------------------------------------------------------------------------------------------

    def _publish12(
        self, route: Route, message: Message, publisher: Session | None, packet_id: int, uses: int, with_plain: bool
    ) -> int:
        receivers: list[RouteTarget] = []
        entitled = self._entitled
        for target in route.targets if with_plain else []:
            if entitled is not None and not entitled.has(target.session):
                continue
            if target.no_local and target.session is publisher:
                rest = target.without_local()
                if rest is not None:
                    receivers.append(rest)
            else:
                receivers.append(target)
        if route.groups:
            receivers += self._picked(route.groups, message, uses)
        queued: list[RouteTarget] = []
        reached = 0
        for target in receivers:
            reached += self._send_or_queue(target, message, queued)
        copies: list[LinkCopy] = self._city.copier.copies(message) if self._city.joined else []
        self.deliver12(message, queued, copies, publisher, packet_id, uses)
        if self._topic_counts.recording:
            count = self._topic_counts.of(message.topic)
            count.delivered(reached, len(copies), 1, len(message.payload), message.origin)
        return len(receivers) + len(copies)

    def _send_or_queue(self, target: RouteTarget, message: Message, queued: list[RouteTarget]) -> int:
        """1: it counts as delivered here; for a session that left for another broker it counts there."""
        session = target.session
        if target.qos == 0:
            if session.output is None or not (session.seen is None or self._is_new_to(session, message)):
                return 0
            self._delivery.send0(target, message)
            return 1
        if not self._delivery.accepts(session, message):
            return 0
        queued.append(target)
        return 0 if session.departed_to else 1

    def _is_new_to(self, session: Session, message: Message) -> bool:
        """Whether a session that roams has not had the message; it has from now on. For QoS 0, which is not queued."""
        log, seen = self._commits.log, session.seen
        if seen is None or (log is None and not message.origin):
            return True
        origin = message.origin or self._name
        offset = message.origin_offset if message.origin or log is None else log.next_offset()
        if offset < 0 or (session.roamed and seen.holds_fleeting(origin, offset)):
            return offset < 0
        seen.add_fleeting(origin, offset)
        return True

    def deliver12(
        self,
        message: Message,
        queued: list[RouteTarget],
        copies: list[LinkCopy],
        publisher: Session | None,
        packet_id: int,
        uses: int = 0,
    ) -> None:
        """Writes the message down with everyone who must get it, and queues it for them."""
        if len(queued) + len(copies) > records.MAX_TARGETS:
            rest = _again(message)
            self.deliver12(message, queued[: records.MAX_TARGETS // 2], copies, publisher, packet_id, uses)
            self.deliver12(rest, queued[records.MAX_TARGETS // 2 :], [], None, 0)
            return
        is_stored = self._commits.log is not None
        if is_stored:
            self._store(message, queued, copies, publisher, packet_id, uses)
        elif copies:
            message.offset = self.next_loose_offset()
        for target in queued:
            self._delivery.enqueue(target.session, message, flags_for(message, target), target.identifiers, target.note)
        for copy in copies:
            self._backlogs.enqueue(copy.backlog, message, link_flags(message), (), copy.note)
        if not is_stored:
            self.pump(queued, copies)

    def _store(
        self,
        message: Message,
        queued: list[RouteTarget],
        copies: list[LinkCopy],
        publisher: Session | None,
        packet_id: int,
        uses: int,
    ) -> None:
        targets: list[Target] = []
        for target in queued:
            backlog = target.session.backlog
            if backlog.durable or backlog.behind():
                targets.append(Target(backlog.number, flags_for(message, target), target.identifiers, target.note))
        for copy in copies:
            targets.append(Target(copy.backlog.number, link_flags(message), (), copy.note))
        owner = 0
        if publisher is not None and packet_id and publisher.backlog.durable:
            owner = publisher.backlog.number
        body = records.encode_message(message, targets, owner, packet_id, uses)
        message.offset = self._commits.store(body, _Receivers(self, message, queued, copies))

    def take_back(self, message: Message, queued: list[RouteTarget], copies: list[LinkCopy]) -> None:
        """It was not stored."""
        for target in queued:
            self._delivery.take_back(target.session, message)
        for copy in copies:
            copy.backlog.undo(message.offset)

    def pump(self, queued: list[RouteTarget], copies: list[LinkCopy]) -> None:
        for target in queued:
            self._delivery.pump(target.session)
        for copy in copies:
            self._links.pump(copy.backlog)


def _again(message: Message) -> Message:
    """The same message for receivers that its own record has no place for."""
    copy = Message(message.topic, message.payload, message.qos, message.retain, message.properties)
    copy.expires_at_us = message.expires_at_us
    copy.time_us = message.time_us
    copy.publisher = message.publisher
    copy.kind = KIND_REPLAY
    return copy


def flags_for(message: Message, target: RouteTarget) -> int:
    return min(message.qos, target.qos) | (4 if message.retain and target.retain_as_published else 0)


def link_flags(message: Message) -> int:
    return message.qos | (4 if message.retain else 0)
