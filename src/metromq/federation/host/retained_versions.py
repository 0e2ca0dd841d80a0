"""Retained messages of a city: the greater (time, broker) wins everywhere, and a deletion is a version too."""

from typing import Final, final

from metromq.federation.distribution import Hop
from metromq.federation.effects import SendRetained
from metromq.federation.host.copies import Copies
from metromq.federation.links.batch import SYNC
from metromq.federation.stages import FINAL
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.message import KIND_LINK, Message
from metromq.protocol.session.packing import Packer, Unpacker
from metromq.protocol.topics.names import matches

MAX_TOMBSTONES: Final = 100_000


@final
class RetainedVersions:
    def __init__(self, hub: Hub, name: str, copies: Copies) -> None:
        self._hub = hub
        self._name = name
        self._copies = copies
        self._tombstones: dict[str, tuple[int, str]] = {}

    def accepts(self, message: Message) -> bool:
        """Whether a message with RETAIN is newer than what is known of its topic; if so, it is the newest now."""
        if message.topic.startswith("$"):
            return True
        known = self._version(message.topic)
        if message.kind != KIND_LINK and message.time_us <= known[0]:
            message.time_us = known[0] + 1  # our own clock may lag; what a client says now is newer than what was
        if (message.time_us, message.origin or self._name) <= known:
            return False
        if message.payload:
            self._tombstones.pop(message.topic, None)
        else:
            self._tombstones[message.topic] = (message.time_us, message.origin or self._name)
            if len(self._tombstones) > MAX_TOMBSTONES:
                self._tombstones.pop(next(iter(self._tombstones)))
        return True

    def has(self, message: Message) -> bool:
        """Whether exactly this version is known already."""
        return self._version(message.topic) == (message.time_us, message.origin)

    def send(self, effect: SendRetained) -> None:
        """Everything stored, and every deletion still known, of the filters; the peer keeps what is newer."""
        copies = [self._copies.for_hop(Hop(effect.peer, FINAL), SYNC)]
        found: dict[str, Message] = {}  # filters overlap: each topic once
        for topic_filter in effect.filters:
            for message in (*self._hub.retained.messages.match(topic_filter), *self._deletions(topic_filter)):
                found[message.topic] = message
        for message in found.values():
            if not message.topic.startswith("$"):
                self._hub.publishing.replay(message, copies)

    def sync(self, message: Message) -> None:
        """A stored message that a peer has: kept if it is newer, and given to who subscribed before it came."""
        hub = self._hub
        if not hub.retained.keep(message) or not message.payload:
            return
        for target in hub.routes.find(message.topic.encode()).targets:
            hub.retained.send(target.session, message, min(target.qos, message.qos), target.identifiers)
            hub.delivery.pump(target.session)

    def _version(self, topic: str) -> tuple[int, str]:
        stored = self._hub.retained.messages.get(topic)
        if stored is not None:
            return stored.time_us, stored.origin or self._name
        return self._tombstones.get(topic, (0, ""))

    def _deletions(self, topic_filter: str) -> list[Message]:
        found: list[Message] = []
        for topic, (time_us, origin) in self._tombstones.items():
            if matches(topic_filter, topic):
                found.append(Message(topic, b"", 1, True, b"", 0, time_us, "", KIND_LINK, origin, 0))
        return found

    def pack(self, packer: Packer) -> None:
        packer.u32(len(self._tombstones))
        for topic, (time_us, origin) in self._tombstones.items():
            packer.text(topic).u64(time_us).text(origin)

    def unpack(self, reader: Unpacker) -> None:
        for _ in range(reader.u32()):
            topic = reader.text()
            self._tombstones[topic] = (reader.u64(), reader.text())
