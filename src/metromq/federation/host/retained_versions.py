"""Retained messages of a city: the greater (time, broker) wins everywhere, and a deletion is a version too.

A broker stores what it happens to see. Only while it has announced a filter is its store up to date for the topics of
that filter, so a newcomer's subscription waits until the brokers that were told of it have told what they have.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.federation.effects import Effect, RetainedTold, Send, SendRetained
from metromq.federation.hop import Hop
from metromq.federation.host.copies import Copies
from metromq.federation.host.timers import Timers
from metromq.federation.links.batch import SYNC
from metromq.federation.links.frames import RetainedNone, RetainedRequest
from metromq.federation.links.routing_slip import read_slip, slip_of
from metromq.federation.node import Node
from metromq.federation.stages import FINAL, OWNER
from metromq.protocol import Packer, Unpacker
from metromq.protocol.session import KIND_LINK, KIND_REPLAY, Hub, LinkCopy, Message, Session
from metromq.protocol.topics import matches

RETAINED_TOPIC: Final = "$metromq/retained"  # behind the messages that answer a RetainedRequest: its filters
MAX_TOMBSTONES: Final = 100_000
MAX_FLEETING: Final = 1000  # of each peer
ANSWER_S: Final = 1.0  # how long a newcomer waits for brokers that do not answer


@final
class _Question:
    """Which peers have not told yet what they retain for a filter, and who waits for it."""

    def __init__(self, peers: set[str]) -> None:
        self.peers = peers
        self.waiting: list[tuple[Session, str]] = []
        self.late: dict[str, Message] = {}  # values for who subscribed before, by topic: a peer may know newer ones


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class RetainedVersions:
    """It has many methods because values come from clients, peers, links and the journal, and go to newcomers."""

    def __init__(
        self, hub: Hub, node: Node, copies: Copies, timers: Timers, run: Callable[[list[Effect]], None]
    ) -> None:
        self._hub = hub
        self._node = node
        self._copies = copies
        self._timers = timers
        self._run = run
        self._tombstones: dict[str, tuple[int, str]] = {}
        self._questions: dict[str, _Question] = {}
        self._fleeting: dict[str, dict[str, None]] = {}  # topics of values that came at QoS 0 lately, by their sender
        self._unfollowed: Message | None = None  # in an earlier life

    # Versions.

    def accepts(self, message: Message) -> bool:
        """Whether a message with RETAIN is newer than what is known of its topic; if so, it is the newest now."""
        if message.topic.startswith("$"):
            return True
        known = self._version(message.topic)
        if message.kind == KIND_LINK or message.offset >= 0:  # from a peer, or from the journal after a restart
            self._node.clock.heard(message.time_us)
        else:  # what a client says now is newer than what was, whatever the clocks say
            message.time_us = max(self._node.clock.stamp_us(), known[0] + 1)
        self._node.clock.happened(message.time_us)
        if (message.time_us, message.origin or self._node.name) <= known:
            return False
        if message.payload:
            self._tombstones.pop(message.topic, None)
        else:
            self._bury(message)
        return True

    def not_kept(self, message: Message) -> None:
        """There was no room for it: its version stays known, so that nothing older comes back."""
        self._bury(message)

    def _bury(self, message: Message) -> None:
        self._tombstones[message.topic] = (message.time_us, message.origin or self._node.name)
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.pop(next(iter(self._tombstones)))

    def has(self, message: Message) -> bool:
        """Whether exactly this version is known already."""
        return self._version(message.topic) == (message.time_us, message.origin)

    def is_older(self, message: Message) -> bool:
        return (message.time_us, message.origin) < self._version(message.topic)

    def _version(self, topic: str) -> tuple[int, str]:
        stored = self._hub.retained.messages.get(topic)
        if stored is not None:
            return stored.time_us, stored.origin or self._node.name
        return self._tombstones.get(topic, (0, ""))

    def repeat(self, late: Message) -> None:
        """An older value came late: whoever got it gets the newest again, so that it is the last one seen."""
        stored = self._hub.retained.messages.get(late.topic)
        if stored is not None:
            self._give(stored)
        elif late.payload:
            # Nobody knows any more how the deletion was published. At the QoS of the value nothing can overtake it.
            self._give(_deletion(late.topic, self._version(late.topic), late.qos))

    # Newcomers.

    def ask(self, topic_filter: str) -> None:
        """The filter has just been announced: the brokers that know of it are asked what they retain for it."""
        now_us, announcer = int(self._hub.clock.now * 1_000_000), self._node.exchange.announcer
        told = self._node.up.among(self._node.router.announce_to(topic_filter))
        peers = [peer for peer in told if not announcer.is_settled(peer, topic_filter, now_us)]
        if not peers:
            return
        question = self._questions[topic_filter] = _Question(set(peers))
        self._run([Send(peer, RetainedRequest((topic_filter,))) for peer in sorted(peers)])
        self._timers.at(self._hub.clock.now + ANSWER_S, partial(self._answer, topic_filter, question))

    def waits(self, session: Session, full_filter: str, new: bool) -> bool:
        question = self._questions.get(full_filter)
        if question is None:
            return False
        question.waiting.append((session, full_filter))
        return True

    def all_told(self, peer: str, payload: bytes) -> None:
        """Behind the messages of a peer: that was all for these filters."""
        reader = Unpacker(payload)
        self.told(RetainedTold(peer, tuple(reader.text() for _ in range(reader.u32()))))

    def told(self, effect: RetainedTold) -> None:
        for topic_filter in effect.filters:
            question = self._questions.get(topic_filter)
            if question is not None:
                question.peers.discard(effect.peer)
                if not question.peers:
                    self._answer(topic_filter, question)

    def _answer(self, topic_filter: str, question: _Question) -> None:
        if self._questions.get(topic_filter) is question:
            for topic, message in question.late.items():
                if self._hub.retained.messages.get(topic) is message:
                    self._give(message, True)
            del self._questions[topic_filter]
            for session, full_filter in question.waiting:
                self._hub.retained.waited(session, full_filter)

    def _is_waiting(self, session: Session, topic: str) -> bool:
        """Whether the session will get the topic's value in answer to its subscription."""
        return any(
            matches(topic_filter, topic) and any(waiting is session for waiting, _ in question.waiting)
            for topic_filter, question in self._questions.items()
        )

    # Between brokers.

    def send(self, effect: SendRetained) -> None:
        """Everything stored, and every deletion still known, of the filters; the peer keeps what is newer."""
        found: dict[str, Message] = {}  # filters overlap: each topic once
        for topic_filter in effect.filters:
            for message in (*self._hub.retained.messages.match(topic_filter), *self._deletions(topic_filter)):
                if message.time_us >= effect.since_us:
                    found[message.topic] = message
        messages = [message for message in found.values() if not message.topic.startswith("$")]
        if not messages:
            self._run([] if effect.since_us else [Send(effect.peer, RetainedNone(effect.filters))])
            return
        copies = [self._copies.for_hop(Hop(effect.peer, FINAL), SYNC)]
        for message in messages:
            self._hub.publishing.replay(message, copies)
        if effect.since_us:  # not all there is: who has asked for that waits on
            return
        packer = Packer().u32(len(effect.filters))
        for topic_filter in effect.filters:
            packer.text(topic_filter)
        done = Message(RETAINED_TOPIC, packer.done(), 1)
        done.time_us = self._hub.clock.wall_us
        done.kind = KIND_REPLAY
        self._hub.publishing.deliver12(done, [], [self._copies.for_hop(Hop(effect.peer, FINAL))], None, 0)

    def keep_up(self, message: Message, copies: list[LinkCopy]) -> None:
        """A QoS 0 message is lost with its link; the store of the peer gets it all the same."""
        straight = [LinkCopy(copy.backlog, slip_of(Hop("", FINAL), SYNC)) for copy in copies]
        behind = {
            name: None for copy in copies for name in read_slip(copy.note).targets
        }  # what a relay brings is lost too
        straight += [self._copies.for_hop(Hop(name, FINAL), SYNC) for name in behind if name in self._node.peers]
        if straight:
            self._hub.publishing.replay(message, straight)

    def recovered(self, message: Message) -> None:
        """It was read again after a restart.

        A value of QoS 0 is followed by what keeps peers up (`keep_up`), unless the journal was torn just there.
        """
        is_own = message.retain and not message.qos and not message.origin and message.kind != KIND_REPLAY
        self._unfollowed = message if is_own else None

    def restored(self) -> None:
        message, self._unfollowed = self._unfollowed, None
        if message is not None and self._node.peers:
            copies = [self._copies.for_hop(Hop(peer, FINAL), SYNC) for peer in self._node.peers]
            self._hub.publishing.replay(message, copies)

    def sync(self, message: Message, sender: str) -> bool:
        """A stored message that a peer has: if it is newer it is kept, and given to who subscribed before it came."""
        if not self._hub.retained.keep(message):
            return False
        if message.payload:
            self._give_when_told(message)
        self._pass_on(message, sender)
        return True

    def _give_when_told(self, message: Message) -> None:
        """Not before every peer that was asked has answered: one may know that the value was replaced or deleted."""
        for topic_filter, question in self._questions.items():
            if matches(topic_filter, message.topic):
                question.late[message.topic] = message
                return
        self._give(message, True)

    def _pass_on(self, message: Message, sender: str) -> None:
        """Whom this broker serves with the topic trusts that it hears of every new value."""
        hops = self._node.routes.route(message.topic, OWNER, message.origin, message.origin_offset).hops
        peers = [hop.peer for hop in hops if hop.peer not in (sender, message.origin)]
        if peers:
            self._hub.publishing.replay(message, [self._copies.for_hop(Hop(peer, FINAL), SYNC) for peer in peers])

    def came_at_qos0(self, message: Message, sender: str) -> None:
        """The sender passed it on before its journal had it: if it crashes, it may not know of it any more."""
        topics = self._fleeting.setdefault(sender, {})
        topics[message.topic] = None
        if len(topics) > MAX_FLEETING:
            del topics[next(iter(topics))]

    def tell_back(self, peer: str) -> None:
        """The link to the peer is up again: it gets what it may have forgotten."""
        copies = [self._copies.for_hop(Hop(peer, FINAL), SYNC)]
        for topic in self._fleeting.pop(peer, {}):
            stored = self._hub.retained.messages.get(topic)
            for message in [stored] if stored is not None else self._deletions(topic):
                self._hub.publishing.replay(message, copies)

    def _give(self, message: Message, is_new: bool = False) -> None:
        """To who has subscribed; `is_new`: in place of its publication, so not to who has had that."""
        hub = self._hub
        for target in hub.routes.find(message.topic.encode()).targets:
            if message.payload and self._is_waiting(target.session, message.topic):
                continue
            qos, gate = min(target.qos, message.qos), target.session.gate
            if is_new and qos and hub.delivery.came_already(target.session, message):
                continue
            if qos == 0 and gate is not None and not target.is_own and gate.takes(message):
                continue  # who asked for a replay gets it there, if it is as young as that
            hub.retained.send(target.session, message, qos, target.identifiers)
            if is_new:
                hub.delivery.had_as_stored(target.session, message, qos)
            hub.delivery.pump(target.session)

    def _deletions(self, topic_filter: str) -> list[Message]:
        return [_deletion(topic, known, 1) for topic, known in self._tombstones.items() if matches(topic_filter, topic)]

    def pack(self, packer: Packer) -> None:
        packer.u32(len(self._tombstones))
        for topic, (time_us, origin) in self._tombstones.items():
            packer.text(topic).u64(time_us).text(origin)

    def unpack(self, reader: Unpacker) -> None:
        for _ in range(reader.u32()):
            topic = reader.text()
            self._tombstones[topic] = (reader.u64(), reader.text())


def _deletion(topic: str, version: tuple[int, str], qos: int) -> Message:
    time_us, origin = version
    return Message(topic, b"", qos, True, b"", 0, time_us, "", KIND_LINK, origin)
