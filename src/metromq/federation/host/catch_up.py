"""What must be sent again because responsibility changed or a peer could not be heard."""

from collections.abc import Iterator
from dataclasses import replace
from typing import final

from mypy_extensions import mypyc_attr

from metromq.errors import OffsetsGone
from metromq.federation.distribution import HOLD
from metromq.federation.effects import GoAround, HandOver, Release, Replay, Reroute
from metromq.federation.hop import Hop
from metromq.federation.host.copies import Copies
from metromq.federation.host.marks import Marks
from metromq.federation.interest import SHARE_PREFIX, plain_filter
from metromq.federation.links.inbox import DISTRIBUTE, SHARE
from metromq.federation.links.routing_slip import read_slip
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, OWNER, RELAY
from metromq.protocol.session import KIND_LINK, KIND_REPLAY, KIND_WILL, Hub, Message, Session, is_share_note, records
from metromq.protocol.topics import matches


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class CatchUp:
    """Finds what it is by its age (marks.py says where the journal stood when)."""

    def __init__(self, hub: Hub, node: Node, copies: Copies) -> None:
        self._hub = hub
        self._node = node
        self._copies = copies
        self.marks = Marks(hub)

    def since(self, age_us: int) -> Iterator[records.MessageRecord]:
        """Messages that this broker accepted in the last `age_us`, as far back as there are marks and a journal."""
        log = self._hub.commits.log
        start = self.marks.offset_at(self._hub.clock.wall_us - age_us)
        if log is None or start < 0:
            return
        end = log.next_offset()
        if start >= end:
            return
        log.flush()
        try:
            found = log.scan(start)
        except OffsetsGone as gone:  # retention has taken the first
            found = log.scan(gone.first)
        for kind, offset, body in found:
            if offset >= end:
                return
            if kind == records.MESSAGE:
                yield records.decode_message(body, offset)

    def reroute(self, effect: Reroute) -> None:
        """What waits at a broker that is gone, for areas that now have another one, goes to the heir."""
        hub = self._hub
        backlog = hub.links.backlog(effect.peer)
        hub.backlogs.load_all(backlog)
        taken = [
            entry
            for entry in (*backlog.inflight.values(), *backlog.queue)
            if read_slip(entry.note).stage == OWNER
            and self._node.table.is_of(effect.key, hub.backlogs.load(entry).topic)
        ]
        for entry in taken:
            message = hub.backlogs.load(entry)
            slip = read_slip(entry.note)
            number = message.origin_offset if message.origin else message.offset
            done = tuple(dict.fromkeys((*slip.shares_done, *self._copies.shares_done(message))))
            route = self._node.routes.route(
                message.topic, CLIENT, self._node.name, number, shares_done=done, check=True
            )
            self._copies.rerouted(message.origin or self._node.name, number, route)
            uses = SHARE if route.shares else 0
            hub.publishing.replay(message, [self._copies.for_hop(hop) for hop in route.hops], route.shares, True, uses)
            hub.backlogs.abandon(backlog, entry)

    def go_around(self, effect: GoAround) -> None:
        """What waits for a relay that is gone goes on without it, to the brokers that it was for."""
        hub = self._hub
        backlog = hub.links.backlog(effect.peer)
        hub.backlogs.load_all(backlog)
        for entry in [*backlog.inflight.values(), *backlog.queue]:
            slip = read_slip(entry.note)
            if not slip.targets:
                continue
            message = hub.backlogs.load(entry)
            number = message.origin_offset if message.origin else message.offset
            origin, limit = message.origin or self._node.name, slip.limit + 1
            route = self._node.routes.route(
                message.topic, RELAY, origin, number, slip.served, check=True, limit=limit, targets=slip.targets
            )
            hops = _with_shares(route.hops, effect.peer, slip.shares)
            hub.publishing.replay(message, [self._copies.for_hop(hop) for hop in hops])
            hub.backlogs.abandon(backlog, entry)

    def release(self, effect: Release) -> None:
        """What was held back while its topic changed hands goes to whoever is responsible now, in its order."""
        hub = self._hub
        backlog = hub.links.by_peer.get(HOLD)
        if backlog is None or not backlog.unsettled():
            return
        hub.backlogs.load_all(backlog)
        for entry in list(backlog.queue):
            message = hub.backlogs.load(entry)
            route = self._node.routes.route(message.topic, CLIENT, self._node.name, message.offset)
            if route.held:
                continue
            self._copies.released(message, route)
            uses = SHARE if route.shares else 0
            hub.publishing.replay(message, [self._copies.for_hop(hop) for hop in route.hops], route.shares, True, uses)
            hub.backlogs.abandon(backlog, entry)

    def _is_distributed(self, record: records.MessageRecord) -> bool:
        """Whether this broker has passed it on to whoever wanted it; otherwise who sent it here has, or the owner."""
        if record.message.kind == KIND_LINK:
            return bool(record.uses & DISTRIBUTE)
        held = self._hub.links.by_peer.get(HOLD)
        sent = (target for target in _to_peers(record) if held is None or target.number != held.number)
        return all(read_slip(target.note).stage != OWNER for target in sent) or self._is_rerouted(record)

    def _is_rerouted(self, record: records.MessageRecord) -> bool:
        """Whether it waited for an owner that was gone, and was distributed here then: the owner has no copy of it."""
        is_left = any(read_slip(target.note).stage == OWNER for target in _to_peers(record))
        return is_left and self._copies.is_distributed(record.message)

    def _held(self) -> frozenset[int]:
        """Offsets of what waits here until its topic has changed hands: by any other way it would be overtaken."""
        backlog = self._hub.links.by_peer.get(HOLD)
        if backlog is None or not backlog.unsettled():
            return frozenset()
        self._hub.backlogs.load_all(backlog)
        return frozenset(entry.offset for entry in backlog.queue)

    def hand_over(self, effect: HandOver) -> None:
        """Another stand-in is responsible now: it gets what came while we were, to serve whom we could not."""
        name = self._node.name
        names = {number: peer for peer, number in self._link_numbers().items()}
        held = self._held()
        for record in list(self.since(effect.age_us)):
            message = record.message
            if message.kind == KIND_REPLAY or not message.qos or not self._node.table.is_of(effect.key, message.topic):
                continue
            if not self._is_distributed(record) or message.offset in held:
                continue
            peers = sorted(names[target.number] for target in record.targets if target.number in names)
            served = tuple(dict.fromkeys((name, message.origin or name, *peers)))
            hop = Hop(effect.heir, HANDOVER, True, served, shares_done=self._copies.shares_done(message))
            self._hub.publishing.replay(message, [self._copies.for_hop(hop)])

    def replay(self, effect: Replay) -> None:
        """A peer wanted filters while it could not tell us: it gets what it missed, in one pass over the journal."""
        hub = self._hub
        number = self._link_numbers()[effect.peer]
        now_us = int(hub.clock.now * 1_000_000)
        held = self._held()
        for record in list(self.since(max(age_us for _, age_us in effect.wanted))):
            message = record.message
            age_us = self.age_us(message)
            if not _concerns(message) or message.offset in held:
                continue
            found = [text for text, limit_us in effect.wanted if age_us <= limit_us and _wants(text, message.topic)]
            if not found:
                continue
            is_plain = message.origin != effect.peer and any(not text.startswith(SHARE_PREFIX) for text in found)
            is_rerouted = self._is_rerouted(record)
            is_plain = is_plain and (is_rerouted or _is_missing(record, effect.peer, number))
            is_plain = is_plain and not self._copies.was_served(message, effect.peer)
            shares = self._unserved(record, [text for text in found if text.startswith(SHARE_PREFIX)])
            if not is_plain and not shares:
                continue
            was_handed = is_rerouted or (message.kind == KIND_LINK and bool(record.uses & DISTRIBUTE))
            if not self._node.replays(message.topic, _published_at(message), age_us, now_us, was_handed):
                continue
            served = () if is_plain else (effect.peer,)
            self._copies.chosen(message, shares, effect.peer)
            hub.publishing.replay(message, [self._copies.for_hop(Hop(effect.peer, FINAL, True, served, shares))])

    def _unserved(self, record: records.MessageRecord, shares: list[str]) -> tuple[str, ...]:
        """The shared subscriptions of which nobody was chosen because none of their members was known."""
        if not shares or not self._is_distributed(record):  # otherwise who sent it has chosen
            return ()
        return tuple(share for share in shares if not self._copies.is_chosen(record.message, share))

    def for_session(self, session: Session, topic_filter: str, age_us: int) -> None:
        """What came here before the session did, and not to where it was: the session gets it now."""
        hub = self._hub
        grant = session.grants.get(topic_filter)
        since_us = session.since_us(topic_filter)  # from then on it got here what came here
        here_us = hub.clock.wall_us - since_us if since_us else 0
        for record in list(self.since(age_us)) if grant is not None and not grant.share else ():
            message = record.message
            if message.kind == KIND_REPLAY or not message.qos or not matches(topic_filter, message.topic):
                continue
            if here_us <= self.age_us(message) <= age_us and grant is not None and grant.qos:
                copy = message.named(self._node.name)
                if not hub.delivery.came_already(session, copy):
                    hub.sessions.queue_again(session, copy, min(grant.qos, message.qos), (), 0)

    def age_us(self, message: Message) -> int:
        """How long ago it came here, by our own clock."""
        came_us = message.arrived_us or message.time_us
        if message.retain and not message.arrived_us:  # its time is the fastest clock's: the next mark is later, too
            came_us = self.marks.no_later(came_us, message.offset)
        return max(0, self._hub.clock.wall_us - came_us)

    def _link_numbers(self) -> dict[str, int]:
        return {peer: self._hub.links.backlog(peer).number for peer in self._node.peers}


def _with_shares(hops: tuple[Hop, ...], peer: str, shares: tuple[str, ...]) -> list[Hop]:
    """The copies, and for the peer one with the shared subscriptions whose members there were chosen."""
    if not shares:
        return list(hops)
    own = [replace(hop, shares=shares) for hop in hops if hop.peer == peer] or [Hop(peer, FINAL, True, (peer,), shares)]
    return [*(hop for hop in hops if hop.peer != peer), *own]


def _wants(topic_filter: str, topic: str) -> bool:
    return matches(plain_filter(topic_filter), topic)


def _concerns(message: Message) -> bool:
    """Also one from the peer itself: its subscribers had it there, but whoever distributes it chooses for a group."""
    return message.kind != KIND_REPLAY and message.qos > 0 and not message.topic.startswith("$")


def _to_peers(record: records.MessageRecord) -> list[records.Target]:
    return [target for target in record.targets if target.note and not is_share_note(target.note)]


def _is_missing(record: records.MessageRecord, peer: str, number: int) -> bool:
    """Whether the peer's plain subscribers did not get it."""
    ours = [read_slip(target.note) for target in record.targets if target.number == number]
    return all(peer in slip.served for slip in ours)  # then it was only for members of shared subscriptions there


def _published_at(message: Message) -> str:
    """The broker that published it; empty: this one, which has fired a will that others might have fired."""
    return "" if message.kind == KIND_WILL else message.origin
