"""What this broker's own clients want, and what of it has been announced to which peer."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.federation.interest import DIGEST_MASK, SHARE_PREFIX, FilterIndex, interest_hash, plain_filter
from metromq.federation.links.frames import Announcement, Interest, Owed
from metromq.federation.routing.router import Router
from metromq.federation.silences import UNNOTICED_US
from metromq.federation.summaries import summarise, summary_of, wider

_ALWAYS: Final = 1 << 62
ANSWERED_US: Final = 1_000_000  # so long after a peer has heard of a summary it has surely sent what it retains for it


@dataclass(slots=True)
class _Wanted:
    members: int
    since_us: int
    due: frozenset[str]  # the peers that must know
    told_us: int = 0  # when it was last announced to one of them
    under: str = ""  # the summary that is announced in its place


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class Announcer:
    """`most`: so many filters below one prefix are announced one by one; 0: all are. See summaries.py.

    It has many methods because each fact about a filter and a peer that others ask for has its own.
    """

    def __init__(self, router: Router, most: int = 0) -> None:
        self._router = router
        self._most = 0 if router.ways.leads else most  # relays are chosen by what each broker wants
        self._summaries: dict[frozenset[str], dict[str, int]] = {}  # by who must know: for how many filters each stands
        self._stood: dict[str, int] = {}  # all summaries that there ever were, and when each was last announced
        self._alone = 0  # plain filters without a summary,
        self._looked_alone = 0  # those when summaries were last looked for,
        self._came_alone = 0  # and how many have come since
        self._is_thin = False  # a summary stands for few filters now
        self.version = 0  # grows when what is wanted changes
        self._wanted: dict[str, _Wanted] = {}
        self._shared = FilterIndex()  # plain filters of own shared subscriptions; value: how many
        self._announced: dict[str, dict[str, int]] = {}  # of peers that were ever told anything
        self._digests: dict[str, int] = {}
        self._lately: dict[str, set[str]] = {}  # peers that were told of a filter since it is wanted
        # By filter, of sessions that came from elsewhere: peers that were not told there, and since when they should
        # have been, by our monotonic clock and by the wall. It counts as long as the filter is wanted, since what tells
        # a peer may be lost on its way.
        self._owed: dict[str, dict[str, tuple[int, int]]] = {}
        self._heard_us: dict[str, int] = {}  # until when a peer has heard us, as far as it has said
        self.last_heard_us = 0  # the same of any
        # By filter and peer: since when the peer must know of it, where that is because the routing has changed.
        self._fresh: dict[str, dict[str, int]] = {}

    def member_left(self, peer: str) -> None:
        self._announced.pop(peer, None)
        self._digests.pop(peer, None)
        self._heard_us.pop(peer, None)
        for since in self._owed.values():
            since.pop(peer, None)

    def router_changed(self, router: Router, most: int, since_us: int | None) -> None:
        """Before `facts_changed`. `since_us`: peers that must know from now on have missed nothing before that."""
        self._most = 0 if router.ways.leads else most
        before = {text: item.due for text, item in self._wanted.items()} if since_us is not None else {}
        self._router = router
        self.facts_changed()
        for text, due in before.items():
            for peer in self._wanted[text].due - due:
                self._fresh.setdefault(text, {})[peer] = since_us or 0

    def __len__(self) -> int:
        return len(self._wanted)

    def filters(self) -> list[str]:
        """What our clients want, shared subscriptions aside."""
        return [text for text in self._wanted if not text.startswith(SHARE_PREFIX)]

    def want(self, topic_filter: str, members: int, now_us: int) -> None:
        """From now on `members` of our clients want the filter; 0: nobody."""
        known = self._wanted.get(topic_filter)
        if bool(members) != bool(known):
            self.version += 1
        if members and known:
            known.members = members
        elif members:
            item = self._wanted[topic_filter] = _Wanted(members, now_us, self._router.announce_to(topic_filter))
            self._came(topic_filter, item)
        else:
            if known is not None:
                self._went(topic_filter, known)
            self._wanted.pop(topic_filter, None)
            self._lately.pop(topic_filter, None)
            self._fresh.pop(topic_filter, None)
            self._owed.pop(topic_filter, None)
        if topic_filter.startswith(SHARE_PREFIX) and bool(members) != bool(known):
            inner = plain_filter(topic_filter)
            self._shared.put(inner, self._shared.get(inner) + (1 if members else -1))

    def wanted_since(self, topic_filter: str, since_us: int) -> None:
        """After a restart: a filter is older than this process, and not all peers may have been told of it."""
        wanted = self._wanted.get(topic_filter)
        if wanted is not None:
            wanted.since_us = min(wanted.since_us, since_us)

    def has_wanted(self, topic_filter: str, since_us: int) -> bool:
        """Whether clients here have wanted the filter since then, or for longer."""
        wanted = self._wanted.get(topic_filter)
        return wanted is not None and wanted.since_us <= since_us

    def untold(self, topic_filter: str) -> tuple[int, tuple[str, ...]]:
        """Since when the filter is wanted, and the peers that should know and do not yet."""
        wanted = self._wanted.get(topic_filter)
        if wanted is None:
            return 0, ()
        peers = sorted(peer for peer in wanted.due if not self.is_told(peer, topic_filter))
        return min((self._since_us(peer, topic_filter) for peer in peers), default=wanted.since_us), tuple(peers)

    def was_heard(self, peer: str, until_us: int) -> None:
        """The peer has had what was sent to it until then."""
        self._heard_us[peer] = max(until_us, self._heard_us.get(peer, 0))
        self.last_heard_us = max(until_us, self.last_heard_us)

    def link_opened(self, peer: str) -> None:
        """What the peer was told later than it has heard us may be lost with the link of before: it is told again."""
        announced, heard_us = self._announced.get(peer, {}), self._heard_us.get(peer, 0)
        for text in [text for text in announced if self._told_us(text) > heard_us]:
            self._digests[peer] = (self._digests[peer] - interest_hash(text, announced.pop(text))) & DIGEST_MASK

    def _told_us(self, text: str) -> int:
        wanted = self._wanted.get(text)
        told_us = wanted.told_us if wanted is not None and not wanted.under else 0
        return max(told_us, self._stood.get(text, 0))

    def heard_us(self, peer: str) -> int:
        """Until when a peer has heard us, as far as it has said; 0: it has not."""
        return self._heard_us.get(peer, 0)

    def unheard(self, topic_filter: str, now_us: int) -> int:
        """Since when the filter is wanted, if a peer that was told of it may not have heard it yet; otherwise 0.

        What was sent may be held up or lost on its way. A peer knows it when it has said that it heard us since, or,
        where it does not greet us, when a link that brings nothing would have been noticed.
        """
        wanted = self._wanted.get(topic_filter)
        if wanted is None:
            return 0
        unsure_us = now_us - UNNOTICED_US
        told = [peer for peer in wanted.due if self.is_told(peer, topic_filter)]
        told_us = wanted.told_us or self._stood.get(wanted.under, 0)
        peers = [peer for peer in told if self._heard_us.get(peer, unsure_us) < told_us]
        return min((self._since_us(peer, topic_filter) for peer in peers), default=0)

    def owe(self, topic_filter: str, peers: tuple[str, ...], since_us: int, wall_us: int) -> tuple[str, ...]:
        """When these peers are told of the filter, it is as old as this. Those of which that is new."""
        known = self._owed.get(topic_filter, {})
        untold = [peer for peer in peers if not self.is_told(peer, topic_filter)]
        new = tuple(peer for peer in untold if peer not in known or known[peer][0] > since_us)
        if new:
            self._owed[topic_filter] = {**known, **dict.fromkeys(new, (since_us, wall_us))}
        return new

    def owed(self) -> Iterator[Owed]:
        """All of it, to be written down."""
        for topic_filter, peers in self._owed.items():
            for peer, (_, wall_us) in peers.items():
                yield Owed(topic_filter, (peer,), wall_us)

    def _since_us(self, peer: str, topic_filter: str) -> int:
        since_us = self._wanted[topic_filter].since_us
        owed = self._owed.get(topic_filter, {}).get(peer)
        return since_us if owed is None else min(since_us, owed[0])

    def facts_changed(self) -> None:
        """Other peers may be responsible now."""
        for topic_filter, wanted in self._wanted.items():
            wanted.due = self._router.announce_to(topic_filter)
        self._group()

    def members(self, share: str) -> int:
        wanted = self._wanted.get(share)
        return wanted.members if wanted else 0

    def shares_for(self, topic: str) -> list[str]:
        matching = set(self._shared.matching(topic))
        if not matching:
            return []
        return [text for text in self._wanted if text.startswith(SHARE_PREFIX) and plain_filter(text) in matching]

    def digest(self, peer: str) -> int:
        """Of all that the peer should know when every frame has reached it."""
        return self._digests.get(peer, 0)

    def concerned(self) -> set[str]:
        """The peers that should know of something, or have been told."""
        found = {peer for peer, told in self._announced.items() if told}
        for due in {wanted.due for wanted in self._wanted.values()}:
            found |= due
        return found

    def told_of(self, topic_filter: str) -> set[str]:
        """The peers that may send messages of the filter here, since they know of it or knew lately."""
        wanted = self._wanted.get(topic_filter)
        if wanted is None:
            return self._lately.get(topic_filter, set())
        return self._lately.get(topic_filter, set()) | self._lately.get(wanted.under, set()) | wanted.due

    def changes(self, peer: str, now_us: int) -> Interest | None:
        """What the peer does not know yet, or should forget; None when it is up to date."""
        announced, due = self._announced.get(peer, {}), self._due(peer)
        added = [text for text, members in due.items() if announced.get(text) != members]
        removed = [text for text in announced if text not in due]
        if not added and not removed:
            return None
        # They are at least a moment old: nobody asks this peer for what it retains, as when a filter has just come.
        return self._note(peer, added, removed, now_us, 1)

    def _due(self, peer: str) -> dict[str, int]:
        """All that the peer should know."""
        found = {text: item.members for text, item in self._wanted.items() if peer in item.due and not item.under}
        for due, summaries in self._summaries.items():
            if peer in due:
                found.update(dict.fromkeys(summaries, 1))
        return found

    def _is_due(self, peer: str, text: str) -> bool:
        wanted = self._wanted.get(text)
        if wanted is not None and peer in wanted.due and not wanted.under:
            return True
        return any(peer in due and text in summaries for due, summaries in self._summaries.items())

    def changes_of_filter(self, topic_filter: str, up: Container[str], now_us: int) -> Iterator[tuple[str, Interest]]:
        """The same for one filter and every peer within reach."""
        wanted = self._wanted.get(topic_filter)
        members = wanted.members if wanted is not None else 1
        frame: Interest | None = None  # the same object for all, so that the host need encode it only once
        concerned = {peer for peer, told in self._announced.items() if topic_filter in told}
        concerned |= wanted.due if wanted is not None and not wanted.under else set()
        for peer in sorted(peer for peer in concerned if peer in up):
            known = self._announced.get(peer, {}).get(topic_filter)
            due = self._is_due(peer, topic_filter)
            if due and known != members:
                noted = self._note(peer, [topic_filter], [], now_us)
            elif not due and known is not None:
                noted = self._note(peer, [], [topic_filter], now_us)
            else:
                continue
            frame = noted if frame is None or noted != frame else frame
            yield peer, frame

    def whole(self, peer: str, now_us: int) -> Interest:
        """Everything, for a peer that lost track."""
        self.changes(peer, now_us)
        announced = self._announced.get(peer, {})
        for text in announced:
            self._tell(text, now_us)
        return Interest(True, self._items(peer, list(announced), {}, now_us, 1), ())

    def _note(self, peer: str, added: list[str], removed: list[str], now_us: int, least_ms: int = 0) -> Interest:
        announced, digest = self._announced.setdefault(peer, {}), self._digests.get(peer, 0)
        items = self._items(peer, added, announced, now_us, least_ms)
        for text in (*added, *removed):
            if text in announced:
                digest -= interest_hash(text, announced.pop(text))
        for item in items:
            text, announced[item.topic_filter] = item.topic_filter, item.members
            self._tell(text, now_us)
            self._lately.setdefault(text, set()).add(peer)
            digest += interest_hash(text, item.members)
        self._digests[peer] = digest & DIGEST_MASK
        return Interest(False, items, tuple(removed))

    def _tell(self, text: str, now_us: int) -> None:
        wanted = self._wanted.get(text)
        if wanted is not None and not wanted.under:
            wanted.told_us = now_us
        if text in self._stood:
            self._stood[text] = now_us

    def _items(
        self, peer: str, texts: list[str], before: Mapping[str, int], now_us: int, least_ms: int
    ) -> tuple[Announcement, ...]:
        """With how long the peer should have known of each already. `before` is what it knew until now."""
        heard_us = self._heard_us.get(peer, now_us - UNNOTICED_US)
        oldest = self._oldest(peer, {text for text in texts if text in self._stood}, before, heard_us)
        items: list[Announcement] = []
        for text in texts:
            wanted = self._wanted.get(text)
            if wanted is None or wanted.under:
                # At least a moment: then who hears of it for the first time sends what it retains, too.
                items.append(Announcement(text, 1, max(1, (now_us - oldest.get(text, now_us)) // 1000)))
                continue
            known = self._knows(before, text, heard_us)
            since_us = min(oldest.get(text, now_us), now_us if known else self._late_us(peer, text))
            items.append(Announcement(text, wanted.members, max(least_ms, (now_us - since_us) // 1000)))
        return tuple(items)

    def _oldest(self, peer: str, summaries: set[str], before: Mapping[str, int], heard_us: int) -> dict[str, int]:
        """For each summary: since when the peer should have known the oldest filter that it did not know.

        What it was told later than it has heard us may be lost: it knows of the summary then, and not of that.
        """
        found: dict[str, int] = {}
        for text, item in self._wanted.items() if summaries else ():
            if item.under not in summaries or peer not in item.due:
                continue
            is_known = text in before and item.told_us <= heard_us
            if not is_known and not self._knows(before, text, heard_us):
                since_us = self._late_us(peer, text)
                found[item.under] = min(found.get(item.under, since_us), since_us)
        return found

    def _late_us(self, peer: str, topic_filter: str) -> int:
        since_us = self._since_us(peer, topic_filter)
        return max(since_us, self._fresh.get(topic_filter, {}).get(peer, since_us))

    # Summaries.

    def _knows(self, announced: Mapping[str, int], topic_filter: str, heard_us: int = _ALWAYS) -> bool:
        """Whether who was told this, and heard us until then, knows a summary of the filter; it may be one that others
        stand for by now."""
        if not self._stood or not announced or topic_filter.startswith(SHARE_PREFIX):
            return False
        stood = self._stood
        return any(text in announced and text in stood and stood[text] <= heard_us for text in wider(topic_filter))

    def is_told(self, peer: str, topic_filter: str) -> bool:
        """Whether the filter, or one that stands for it, was announced to the peer."""
        announced = self._announced.get(peer, {})
        return topic_filter in announced or self._knows(announced, topic_filter)

    def is_settled(self, peer: str, topic_filter: str, now_us: int) -> bool:
        """Whether the peer knows a summary of the filter so long that what it retains for it is here already."""
        wanted = self._wanted.get(topic_filter)
        if wanted is None or not wanted.under or wanted.under not in self._announced.get(peer, {}):
            return False
        return self._heard_us.get(peer, now_us - UNNOTICED_US) >= self._stood[wanted.under] + ANSWERED_US

    def summary_over(self, topic_filter: str) -> str:
        """What is announced in place of the filter; empty: itself."""
        wanted = self._wanted.get(topic_filter)
        return wanted.under if wanted is not None else ""

    def _came(self, topic_filter: str, item: _Wanted) -> None:
        if not self._most or topic_filter.startswith("$"):
            return
        summaries = self._summaries.get(item.due, {})
        item.under = summary_of(topic_filter, summaries.keys())
        if item.under:
            summaries[item.under] += 1
        else:
            self._alone += 1
            self._came_alone += 1

    def _went(self, topic_filter: str, item: _Wanted) -> None:
        if not self._most or topic_filter.startswith("$"):
            return
        if item.under:
            summaries = self._summaries[item.due]
            summaries[item.under] -= 1
            self._is_thin = self._is_thin or summaries[item.under] <= self._most // 2
        else:
            self._alone -= 1

    def regroup(self) -> bool:
        """Whether other summaries are to be announced than before; looks for them after a while of changes."""
        few = max(self._most, self._looked_alone) // 2
        if not self._most or not (self._is_thin or (self._alone > self._most and self._came_alone > few)):
            return False
        return self._group()

    def _group(self) -> bool:
        """Finds what is to be summarised now."""
        by_due: dict[frozenset[str], list[str]] = {}
        for text, item in self._wanted.items():
            if not text.startswith("$"):
                by_due.setdefault(item.due, []).append(text)
        before = self._summaries
        self._summaries = {}
        for due, filters in by_due.items():
            if self._most and due and len(filters) > self._most // 2:
                found = summarise(filters, self._most, before.get(due, {}).keys())
                if found:
                    self._summaries[due] = dict.fromkeys(found, 0)
        for due, filters in by_due.items() if before or self._summaries else ():
            self._put_under(filters, self._summaries.get(due, {}))
        self._stood.update((text, 0) for texts in self._summaries.values() for text in texts if text not in self._stood)
        counted = sum(len(filters) for filters in by_due.values())
        self._alone = self._looked_alone = counted - sum(sum(one.values()) for one in self._summaries.values())
        self._came_alone, self._is_thin = 0, False
        return {due: texts.keys() for due, texts in before.items()} != {
            due: texts.keys() for due, texts in self._summaries.items()
        }

    def _put_under(self, filters: list[str], summaries: dict[str, int]) -> None:
        """Those that knew a summary may still send what it stood for."""
        for text in filters:
            item = self._wanted[text]
            under = summary_of(text, summaries.keys())
            if item.under and item.under != under and item.under in self._lately:
                self._lately.setdefault(text, set()).update(self._lately[item.under])
            item.under = under
            if under:
                summaries[under] += 1
