"""The receiving end's memory: which messages of which peer and of which origin it has had.

Two things can bring a message twice. A link repeats what was not acknowledged: the sequence tells, it only grows along
a link. A message can take another way after a takeover: such copies are marked CHECK and looked up by origin and
offset. Distributing and delivering are remembered apart, because a broker may be asked to pass on a message that its
own subscribers already have; shared subscriptions are remembered each for itself, because two ways may bring the
message for different ones.

The host keeps this memory durable by folding its journal: `received` for each message that came over a link, and
`restore_cursor` for each LINK record. Between a message and the LINK record behind it a crash can fall, so the first
messages of a peer after a restart are looked up too.
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.federation.links.batch import CHECK, PASSED, SYNC, LinkMessage
from metromq.federation.stages import FINAL
from metromq.protocol import Packer, Unpacker

REMEMBERED: Final = 65_536  # ids per origin; a copy that comes later than this many others is not recognised
REMEMBERED_CHECKED: Final = 65_536  # of those marked CHECK; they are few, so their memory reaches much further back
DROP: Final = 0
DELIVER: Final = 1  # to the own subscribers
DISTRIBUTE: Final = 2  # to peers
SHARE: Final = 4  # to members of the shared subscriptions that the entry names
HANDED_ON: Final = 8  # beside SHARE: the entry was marked PASSED, and the bits above are its limit
MARKED: Final = 16  # without HANDED_ON: the entry was marked CHECK, so that other copies may come without a mark
_USES: Final = (DELIVER, DISTRIBUTE, SHARE)
_LIMIT_SHIFT: Final = 4
_MAX_LIMIT: Final = 15  # the bits of a record are eight; one that is passed has crossed a link


_NO_ID: Final = -1 << 63  # in place of one that is forgotten
_ELSEWHERE: Final = -2  # in place of a limit
_OPEN: Final = -3  # the same
_CHOSEN: Final = -4  # the same, with a broker


def _share_id(share: str, offset: int, limit: int = -1) -> int:
    """Among the ids of an origin: one shared subscription of a message; with a limit, one pass between members."""
    text = f"{share}\0{offset}\0{limit}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


def _chosen_id(share: str, offset: int, peer: str) -> int:
    return _share_id(f"{share}\0{peer}", offset, _CHOSEN)


def _whole_id(offset: int, limit: int) -> int:
    """In place of all shared subscriptions of a message, where a restart does not know which they were."""
    return offset if limit < 0 else _share_id("", offset, limit)


def recorded(uses: int, entry: LinkMessage) -> int:
    """What the journal is to say of the uses of an entry: with the mark, which decides how later copies are judged."""
    return uses | MARKED if uses and entry.flags & CHECK and not uses & HANDED_ON else uses


def limit_of(uses: int) -> int:
    """How many links a message that was passed on to members here may still cross; -1: it was not."""
    return uses >> _LIMIT_SHIFT if uses & SHARE and uses & HANDED_ON else -1


@final
class _Ring:
    """The last ids, cheap to add to; looking up is slow, but only copies marked CHECK are looked up.

    Many look-ups in a row, as for all that a peer has missed, are quick.
    """

    def __init__(self) -> None:
        self._ids = array("q")
        self._next = 0
        self._index: frozenset[int] | None = None  # until the next one is added
        self._is_asked = False

    def add(self, number: int) -> None:
        if self._is_asked:
            self._is_asked, self._index = False, None
        if len(self._ids) < REMEMBERED:
            self._ids.append(number)
        else:
            self._ids[self._next] = number
            self._next = (self._next + 1) % REMEMBERED

    def holds(self, number: int) -> bool:
        if self._index is not None:
            return number in self._index
        if self._is_asked:
            self._index = frozenset(self._ids)
        self._is_asked = True
        return number in self._ids

    def forget(self, number: int) -> None:
        for place in range(len(self._ids) - 1, -1, -1):
            if self._ids[place] == number:
                self._ids[place] = _NO_ID
                self._is_asked, self._index = False, None
                return

    def dump(self) -> bytes:
        return (self._ids[self._next :] + self._ids[: self._next]).tobytes()

    def load(self, data: bytes) -> None:
        self._ids = array("q")
        self._ids.frombytes(data)
        self._next = 0
        self._is_asked, self._index = False, None


@final
class _Origin:
    """What came from one origin, by what it was used for."""

    def __init__(self) -> None:
        self.usual = {use: _Ring() for use in _USES}
        # Apart, because the other copy may come late and without a mark; the oldest first.
        self.checked: dict[int, dict[int, None]] = {use: {} for use in _USES}

    def seen(self, use: int, number: int, check: bool) -> bool:
        if number in self.checked[use]:
            return True
        return check and self.usual[use].holds(number)

    def forget(self, use: int, number: int) -> None:
        if self.checked[use].pop(number, self) is self:
            self.usual[use].forget(number)

    def add(self, use: int, number: int, check: bool) -> None:
        if not check:
            self.usual[use].add(number)
            return
        checked = self.checked[use]
        checked[number] = None
        if len(checked) > REMEMBERED_CHECKED:
            del checked[next(iter(checked))]


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class Inbox:
    """What has come from peers. It has many methods because whatever may be told twice, or not be stored, is asked for
    and taken back here."""

    def __init__(self) -> None:
        self._origins: dict[str, _Origin] = {}
        self._cursors: dict[str, int] = {}  # highest sequence received, per sender
        self._incarnations: dict[str, int] = {}  # of the sender's journal
        self._unsure: set[str] = set()  # senders whose cursor may lag behind what the journal holds

    def cursor(self, sender: str) -> int:
        """The highest sequence received; the sender may go on after it."""
        return self._cursors.get(sender, -1)

    def journal_of(self, sender: str, journal: int) -> bool:
        """Tells which journal the sender's sequences count in; a new one starts its numbers again."""
        if self._incarnations.get(sender, journal) == journal:
            self._incarnations[sender] = journal
            return False
        self._incarnations[sender] = journal
        self._cursors.pop(sender, None)
        self._origins.pop(sender, None)
        return True

    def restore_cursor(self, sender: str, journal: int, sequence: int) -> None:
        self._incarnations[sender] = journal
        self._cursors[sender] = sequence
        self._unsure.add(sender)

    def roll_back(self, sender: str, sequence: int, lost: Iterable[LinkMessage], known_shares: Sequence[str]) -> None:
        """The disk was full: what came behind `sequence` was not stored, and comes again."""
        for entry in lost:
            offset, memory = entry.message.origin_offset, self._memory(entry.message.origin)
            for use in (DELIVER, DISTRIBUTE):
                memory.forget(use, offset)
            for share in {*entry.shares, *known_shares}:
                for limit in (-1, min(entry.limit, _MAX_LIMIT), _ELSEWHERE, _OPEN):
                    memory.forget(SHARE, _share_id(share, offset, limit))
        self._cursors[sender] = min(self._cursors.get(sender, -1), sequence)

    def received(self, origin: str, offset: int, uses: int, shares: Sequence[str] = ()) -> None:
        """A message that the journal holds, what it was used for, and for which shared subscriptions, if known."""
        memory = self._memory(origin)
        marked = bool(uses & (HANDED_ON | MARKED))  # what is passed on is always marked
        for use in (DELIVER, DISTRIBUTE):
            if uses & use:
                memory.add(use, offset, marked)
        if uses & SHARE:
            self._recall_shares(memory, offset, shares, uses >> _LIMIT_SHIFT if uses & HANDED_ON else -1, marked)

    def rerouted(self, origin: str, offset: int, shares: Sequence[str] = ()) -> None:
        """After a restart: members here were chosen for a message, of which copies may come without a mark."""
        self._recall_shares(self._memory(origin), offset, shares, -1, True)

    def _recall_shares(self, memory: "_Origin", offset: int, shares: Sequence[str], limit: int, again: bool) -> None:
        for share in shares:
            self._add_share(memory, share, offset, limit, again)
            for peer in (
                self._cursors if memory.checked[SHARE] else ()
            ):  # the copy that it was taken from may come again
                memory.checked[SHARE].pop(_chosen_id(share, offset, peer), None)
        if not shares:  # members who have gone since; it may have been any
            memory.add(SHARE, _whole_id(offset, limit), again)

    def given(self, origin: str, offset: int) -> None:
        """The own subscribers have had a message as a stored one: the publication itself may still come."""
        if offset >= 0:
            self._memory(origin).add(DELIVER, offset, True)

    def shared(self, origin: str, offset: int, shares: Iterable[str], again: bool = False) -> None:
        """This broker has chosen members of shared subscriptions for a message; `again`: others may have."""
        memory = self._memory(origin)
        for share in shares:
            memory.add(SHARE, _share_id(share, offset), again)
            memory.checked[SHARE].pop(_share_id(share, offset, _OPEN), None)

    def chose(self, origin: str, offset: int, shares: Iterable[str], peer: str) -> None:
        """The members that this broker has chosen are the peer's, by a marked copy: the peer may have chosen ours."""
        for share in shares:
            self._memory(origin).add(SHARE, _chosen_id(share, offset, peer), True)

    def not_shared(self, origin: str, offset: int, shares: Iterable[str]) -> None:
        """Who was chosen has no members any more, and nobody else is known: whoever tells of some may be chosen."""
        for share in shares:
            self._memory(origin).add(SHARE, _share_id(share, offset, _OPEN), True)

    def shared_elsewhere(self, origin: str, offset: int, shares: Iterable[str]) -> None:
        """Others have chosen, and perhaps this broker: their copy may still come."""
        memory = self._memory(origin)
        for share in shares:
            memory.add(SHARE, _share_id(share, offset, _ELSEWHERE), False)

    def has_shared(self, origin: str, offset: int, share: str, check: bool = True) -> bool:
        """Whether members of a shared subscription are chosen, as far as this broker knows.

        `check`: also by the usual way, of which this may be the only copy otherwise.
        """
        memory = self._origins.get(origin)
        if memory is None or memory.seen(SHARE, _share_id(share, offset, _OPEN), False):
            return False
        if memory.seen(SHARE, _share_id(share, offset), check):
            return True
        return memory.seen(SHARE, _share_id(share, offset, _ELSEWHERE), check)

    def has_distributed(self, origin: str, offset: int) -> bool:
        memory = self._origins.get(origin)
        return memory is not None and memory.seen(DISTRIBUTE, offset, True)

    def has_marked_shares(self, origin: str) -> bool:
        """Whether members were chosen here for marked messages of this origin, whose other copies may still come."""
        memory = self._origins.get(origin)
        return memory is not None and bool(memory.checked[SHARE])

    def accept(self, sender: str, entry: LinkMessage, own_name: str) -> int:
        """What to do with a message: DROP, or any of DELIVER, DISTRIBUTE and SHARE. Remembers the decision.

        Shared subscriptions that it was taken for before are taken out of the entry.
        """
        message = entry.message
        uses = DELIVER if entry.stage == FINAL else DELIVER | DISTRIBUTE
        if own_name in entry.served or (entry.targets and not message.qos and own_name not in entry.targets):
            uses &= ~DELIVER
        if entry.shares:
            uses |= SHARE
        if message.qos == 0:
            return uses
        if entry.sequence <= self._cursors.get(sender, -1):
            return DROP
        self._cursors[sender] = entry.sequence
        if entry.flags & SYNC:  # judged by the version of what is retained, not by what was received
            return uses
        marked = bool(entry.flags & CHECK)
        memory = self._memory(message.origin)
        for use in (DELIVER, DISTRIBUTE):
            if not uses & use or (use == DISTRIBUTE and entry.targets):
                continue  # two copies for a relay name different brokers, and it serves both
            if memory.seen(use, message.origin_offset, marked or sender in self._unsure):
                uses &= ~use
            else:
                memory.add(use, message.origin_offset, marked)
        if entry.shares:
            crossed = self._crossed(entry, memory, sender, own_name)
            uses = self._open_shares(entry, memory, uses, marked, marked or sender in self._unsure, crossed)
        return uses

    def _crossed(self, entry: LinkMessage, memory: "_Origin", sender: str, own_name: str) -> frozenset[str]:
        """The shared subscriptions that this broker has left to the sender, and the sender, at the same time, to us.

        Each would take the other's copy for a second choice. One of the two counts: that without a mark, or, where both
        have one, that for the first broker by name.
        """
        offset = entry.message.origin_offset
        if entry.flags & PASSED or (entry.flags & CHECK and own_name > sender):
            return frozenset()
        ids = {share: _chosen_id(share, offset, sender) for share in entry.shares}
        crossed = frozenset([share for share, number in ids.items() if number in memory.checked[SHARE]])
        for share in crossed:
            del memory.checked[SHARE][ids[share]]
        return crossed

    def _open_shares(
        self, entry: LinkMessage, memory: "_Origin", uses: int, marked: bool, check: bool, crossed: frozenset[str]
    ) -> int:
        """A message that is passed on from member to member may come again, so each pass is remembered for itself."""
        offset, is_passed = entry.message.origin_offset, entry.flags & PASSED
        limit = min(entry.limit, _MAX_LIMIT) if is_passed else -1
        whole = _whole_id(offset, limit)
        known = memory.seen(SHARE, whole, check)
        ids = {share: _share_id(share, offset, limit) for share in entry.shares}
        open_shares = [
            share for share in ids if share in crossed or not (known or memory.seen(SHARE, ids[share], check))
        ]
        entry.shares = tuple(open_shares)
        for share in entry.shares:
            self._add_share(memory, share, offset, limit, marked)
        if not entry.shares:
            return uses & ~SHARE
        return uses | (HANDED_ON | min(entry.limit, _MAX_LIMIT) << _LIMIT_SHIFT if is_passed else 0)

    def _add_share(self, memory: "_Origin", share: str, offset: int, limit: int, again: bool) -> None:
        memory.add(SHARE, _share_id(share, offset, limit), again)
        if limit >= 0:  # whoever passes it on has been chosen, or somebody before
            memory.add(SHARE, _share_id(share, offset, _ELSEWHERE), False)

    def claim(self, origin: str, number: int) -> bool:
        """Whether a message that is about to be published here has not come from elsewhere; it has been had then."""
        memory = self._memory(origin)
        for use in _USES:
            if memory.seen(use, number, True):
                return False
        for use in _USES:
            memory.add(use, number, True)
        return True

    def journal_number(self, sender: str) -> int:
        return self._incarnations.get(sender, 0)

    def dump(self) -> bytes:
        """Everything, for a snapshot."""
        out = Packer()
        out.number(len(self._cursors))
        for sender, cursor in self._cursors.items():
            out.short_text(sender)
            out.number(self._incarnations.get(sender, 0))
            out.number(cursor + 1)
        out.number(len(self._origins))
        for origin, memory in self._origins.items():
            out.short_text(origin)
            for use in _USES:
                out.short_blob(memory.usual[use].dump())
                out.short_blob(array("q", memory.checked[use]).tobytes())
        return out.done()

    def load(self, data: bytes) -> None:
        reader = Unpacker(data)
        for _ in range(reader.number()):
            sender, journal, cursor = reader.short_text(), reader.number(), reader.number() - 1
            self.restore_cursor(sender, journal, cursor)
        for _ in range(reader.number()):
            memory = self._memory(reader.short_text())
            for use in _USES:
                memory.usual[use].load(reader.short_blob())
                checked = array("q")
                checked.frombytes(reader.short_blob())
                memory.checked[use].update(dict.fromkeys(checked))
        reader.finish()

    def settled(self, sender: str) -> None:
        """The host acknowledged a batch of the sender: from here on its cursor is sure."""
        self._unsure.discard(sender)

    def _memory(self, origin: str) -> _Origin:
        memory = self._origins.get(origin)
        if memory is None:
            memory = self._origins[origin] = _Origin()
        return memory
