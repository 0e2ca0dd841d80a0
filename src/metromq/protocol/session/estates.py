"""What members of shared groups leave when their sessions end: other members get it (section 4.8.2).

At QoS 1 that is all that was not confirmed. At QoS 2 it is what was never sent: the rest must go to nobody else
[MQTT-4.8.2-5]. Until the journal has it for the others, the session is kept under a name that no client can have, so
that neither a crash nor a full disk loses any of it.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.protocol.packing import Packer
from metromq.protocol.session import records, store
from metromq.protocol.session.backlog import PASSED, RELEASED, Backlog, Backlogs, Entry
from metromq.protocol.session.commits import Commits, Waiter
from metromq.protocol.session.delivery import Delivery
from metromq.protocol.session.federation import CityPlace, LinkCopy
from metromq.protocol.session.layout import GIVEN
from metromq.protocol.session.links import Links
from metromq.protocol.session.message import Message
from metromq.protocol.session.publishing import Publishing, flags_for, link_flags
from metromq.protocol.session.records import Target
from metromq.protocol.session.routes import RouteTable
from metromq.protocol.session.session import RouteTarget, Session
from metromq.protocol.session.shares import note_of, share_of
from metromq.protocol.topics.names import matches, split_shared

ENDED: Final = "\0ended/"  # no client identifier has U+0000 [MQTT-1.5.4-2]
ENTRIES_PER_TURN: Final = 500  # other clients do not wait while a long queue goes on
BYTES_PER_TURN: Final = 1 << 20


@final
class _Given(Waiter):
    """A message that goes on to another member, or to its broker, when the journal has it."""

    def __init__(
        self,
        estates: "Estates",
        session: Session,
        entry: Entry,
        message: Message,
        target: RouteTarget | None,
        copies: list[LinkCopy],
    ) -> None:
        self.estates = estates
        self.session = session
        self.entry = entry
        self.message = message
        self.target = target
        self.copies = copies

    def committed(self) -> None:
        self.estates.given(self)

    def undo(self) -> None:
        self.estates.take_back(self)

    def failed(self) -> None:
        pass


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class Estates:
    def __init__(
        self,
        name: str,
        commits: Commits,
        backlogs: Backlogs,
        delivery: Delivery,
        links: Links,
        routes: RouteTable,
        publishing: Publishing,
        city: CityPlace,
    ) -> None:
        self.sessions: dict[int, Session] = {}  # that have ended, by number, until all that they left is with others
        self._on_their_way: dict[int, int] = {}  # how many messages the journal does not have yet, by number
        self._name = name
        self._commits = commits
        self._backlogs = backlogs
        self._delivery = delivery
        self._links = links
        self._routes = routes
        self._publishing = publishing
        self._city = city

    def count(self) -> int:
        return len(self.sessions)

    def begin(self, session: Session, filters: list[str]) -> bool:
        """A session has ended that had subscribed to these. False: it leaves nothing that others should get."""
        backlog = session.backlog
        if not session.is_member or not backlog.unsettled():
            return False
        if session.roamed:
            self._note_all(session, filters)
        self.restore(session)
        if backlog.durable:
            session.client_id = f"{ENDED}{backlog.number}"
            self._commits.append(records.SESSION_OPENED, store.pack_session(session), True)
        self._requeue(backlog)
        self._hand_on(session)
        return True

    def restore(self, session: Session) -> None:
        """One that had ended, after a restart too."""
        session.closed = True
        self.sessions[session.backlog.number] = session

    def tick(self) -> None:
        """The next of what a long queue holds, or what found no room on the disk."""
        for session in list(self.sessions.values()):
            self._hand_on(session)

    def _note_all(self, session: Session, filters: list[str]) -> None:
        """What came from another broker with its session does not say by which group it came; mostly that is sure."""
        self._backlogs.load_all(session.backlog)
        for entry in (*session.backlog.inflight.values(), *session.backlog.queue):
            if entry.note or entry is PASSED:
                continue
            topic = self._backlogs.load(entry).topic
            found = [split_shared(text) for text in filters if matches(split_shared(text)[1], topic)]
            if len(found) == 1 and found[0][0]:
                entry.note = note_of(found[0][0], found[0][1])

    def _requeue(self, backlog: Backlog) -> None:
        """What was under way is looked at first, in its order."""
        for entry in reversed(backlog.take_inflight()):
            if entry is not PASSED:
                backlog.queue.appendleft(entry)

    def _hand_on(self, session: Session) -> None:
        log = self._commits.log
        if log is not None and log.full():
            return
        backlog = session.backlog
        size = 0
        for _ in range(ENTRIES_PER_TURN):
            if not backlog.queue and backlog.spilled and log is not None:
                log.flush()  # what waits in the journal is read from there
                self._backlogs.refill(backlog)
            if not backlog.queue or size > BYTES_PER_TURN:
                break
            entry = backlog.queue.popleft()
            size += self._give(session, entry)
        self._end_if_empty(session)

    def _end_if_empty(self, session: Session) -> None:
        backlog = session.backlog
        number = backlog.number
        if number in self._on_their_way or backlog.queue or backlog.spilled:
            return
        del self.sessions[number]
        backlog.clear()
        if backlog.durable:
            self._commits.append(records.SESSION_CLOSED, Packer().u32(number).done())

    def _give(self, session: Session, entry: Entry) -> int:
        """Returns how many bytes it took."""
        is_begun = entry.state >= RELEASED or (entry.flags & 3 == 2 and (entry.state != 0 or entry.dup))
        if not entry.note or is_begun:  # [MQTT-4.8.2-5]
            return 0
        message = self._publishing.named_again(self._backlogs.load(entry))
        target = self._heir(message, entry.note)
        if target is not None and target.qos == 0:
            self._delivery.send0(target, message)
            return len(message.payload)
        copies: list[LinkCopy] = []
        if target is None and self._city.joined:
            copies = self._city.copier.left_copies(message, entry.note)
        if target is not None or copies:
            self._store(session, entry, message, target, copies)
        return len(message.payload)

    def _heir(self, message: Message, note: bytes) -> RouteTarget | None:
        """Another member at this broker."""
        group = self._routes.shares.get(share_of(note))
        target = group.pick(message.topic, self._routes.read_check) if group is not None else None
        if target is None or (target.qos and not self._delivery.accepts(target.session, message)):
            return None
        return target.with_note(note)

    def _store(
        self, session: Session, entry: Entry, message: Message, target: RouteTarget | None, copies: list[LinkCopy]
    ) -> None:
        """One record says who has it from now on, and who has not: no crash can fall between."""
        waiter = _Given(self, session, entry, message, target, copies)
        if self._commits.log is not None:
            backlog = session.backlog
            targets = [Target(backlog.number, GIVEN, (entry.packet_id,))] if backlog.durable else []
            if target is not None and (target.session.backlog.durable or target.session.backlog.behind()):
                flags, number = flags_for(message, target), target.session.backlog.number
                targets.append(Target(number, flags, target.identifiers, target.note))
            for copy in copies:
                targets.append(Target(copy.backlog.number, link_flags(message), (), copy.note))
            message.offset = self._commits.store(records.encode_message(message, targets), waiter)
            self._on_their_way[backlog.number] = self._on_their_way.get(backlog.number, 0) + 1
        elif copies:
            message.offset = self._publishing.next_loose_offset()
        if target is not None:
            self._delivery.enqueue(target.session, message, flags_for(message, target), target.identifiers, target.note)
        for copy in copies:
            self._backlogs.enqueue(copy.backlog, message, link_flags(message), (), copy.note)
        if self._commits.log is None:
            self._pump(waiter)

    def given(self, waiter: _Given) -> None:
        self._pump(waiter)
        self._arrived(waiter)
        if waiter.session.backlog.number in self.sessions:
            self._end_if_empty(waiter.session)

    def _pump(self, waiter: _Given) -> None:
        if waiter.target is not None:
            self._delivery.pump(waiter.target.session)
        for copy in waiter.copies:
            self._links.pump(copy.backlog)

    def _arrived(self, waiter: _Given) -> None:
        number = waiter.session.backlog.number
        left = self._on_their_way.pop(number) - 1
        if left:
            self._on_their_way[number] = left

    def take_back(self, waiter: _Given) -> None:
        """The disk was full; the newest first."""
        queued = [waiter.target] if waiter.target is not None else []
        self._publishing.take_back(waiter.message, queued, waiter.copies)
        self._arrived(waiter)
        waiter.session.backlog.queue.appendleft(waiter.entry)
