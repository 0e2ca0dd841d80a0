"""What clients here published, and was sent to a broker that was not responsible any more.

That broker passes it on, and whoever distributes it at last may do so when a session has gone from where it was, and
has come here. Nobody sends a message back to where it was published, so the session gets it here.
"""

from typing import Final, final

from metromq.federation.distribution import HOLD
from metromq.federation.host.catch_up import CatchUp
from metromq.federation.links.routing_slip import read_slip
from metromq.federation.node import Node
from metromq.federation.silences import UNNOTICED_US
from metromq.federation.stages import OWNER
from metromq.protocol.session import KIND_PUBLISH, Hub, Message, Session, is_share_note, records
from metromq.protocol.topics import matches

MOST_BYTES: Final = 16 << 20  # of one look, which are kept for the next session; the newest count
NEVER_US: Final = -(1 << 62)


@final
class Astray:
    """Looks into the journal once after owners have changed, and only if a session comes within a while of that."""

    def __init__(self, hub: Hub, node: Node, catch_up: CatchUp) -> None:
        self._hub = hub
        self._node = node
        self._catch_up = catch_up
        self._looked_us = NEVER_US  # the change after which it was looked
        self._found: list[Message] = []

    def give(self, session: Session, wanted: dict[str, int]) -> bool:
        """To a session that has come, of filters and since when it wants them; whether there was something."""
        given = False
        for message in self._messages():
            qos, identifiers = self._granted(session, message, wanted)
            copy = message.named(self._node.name)
            if qos and not self._hub.delivery.came_already(session, copy):
                self._hub.sessions.queue_again(session, copy, min(qos, message.qos), identifiers, 0)
                given = True
        return given

    def _messages(self) -> list[Message]:
        changed_us, now_us = self._node.owners_changed_us, int(self._hub.clock.now * 1_000_000)
        if now_us - changed_us > UNNOTICED_US:
            self._found = []
        elif changed_us != self._looked_us:
            self._looked_us = changed_us
            records_since = self._catch_up.since(UNNOTICED_US)
            self._found = _newest([record.message for record in records_since if self._is_astray(record)])
        return self._found

    def _is_astray(self, record: records.MessageRecord) -> bool:
        """Whether it is one of ours that another than its present owner was to distribute."""
        message = record.message
        key = self._node.router.key(message.topic) if message.kind == KIND_PUBLISH and message.qos else None
        if key is None:
            return False
        # What was held back goes to whoever is responsible then.
        backlogs = [self._hub.links.by_peer.get(peer) for peer in (self._node.table.owner(key), HOLD)]
        right = [backlog.number for backlog in backlogs if backlog is not None]
        to_peers = (target for target in record.targets if target.note and not is_share_note(target.note))
        return any(read_slip(target.note).stage == OWNER and target.number not in right for target in to_peers)

    def _granted(self, session: Session, message: Message, wanted: dict[str, int]) -> tuple[int, tuple[int, ...]]:
        """At which QoS the session wanted it when it was published, 0: it did not; and its subscription's identifier.

        It has what came since it is here.
        """
        clock, age_us = self._hub.clock, self._catch_up.age_us(message)
        qos = 0
        identifiers: tuple[int, ...] = ()
        for topic_filter, grant in session.grants.items():
            since_us = wanted.get(topic_filter)
            if since_us is None or grant.share or not matches(topic_filter, message.topic):
                continue
            if grant.no_local and message.publisher == session.client_id:
                continue
            here_us = session.since_us(topic_filter)
            is_before = not here_us or age_us >= clock.wall_us - here_us
            is_wanted = age_us <= int(clock.now * 1_000_000) - since_us
            if is_before and is_wanted and grant.qos > qos:
                qos, identifiers = int(grant.qos), (grant.identifier,) if grant.identifier else ()
        return qos, identifiers


def _newest(messages: list[Message]) -> list[Message]:
    """The last ones, as many as may be kept."""
    room = MOST_BYTES
    for place in range(len(messages) - 1, -1, -1):
        room -= len(messages[place].topic) + len(messages[place].payload)
        if room < 0:
            return messages[place + 1 :]
    return messages
