"""What this broker's own clients want, and what of it has been announced to which peer."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import final

from metromq.federation.interest import DIGEST_MASK, SHARE_PREFIX, FilterIndex, interest_hash, plain_filter
from metromq.federation.links.frames import Announcement, Interest, Owed
from metromq.federation.routing.router import Router
from metromq.federation.silences import UNNOTICED_US


@dataclass(slots=True)
class _Wanted:
    members: int
    since_us: int
    due: frozenset[str]  # the peers that must know
    told_us: int = 0  # when it was last announced to one of them


@final
class Announcer:
    def __init__(self, router: Router) -> None:
        self._router = router
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
        # By filter and peer: since when the peer must know of it, where that is because the routing has changed.
        self._fresh: dict[str, dict[str, int]] = {}

    def member_left(self, peer: str) -> None:
        self._announced.pop(peer, None)
        self._digests.pop(peer, None)
        self._heard_us.pop(peer, None)
        for since in self._owed.values():
            since.pop(peer, None)

    def router_changed(self, router: Router, since_us: int | None) -> None:
        """Before `facts_changed`. `since_us`: peers that must know from now on have missed nothing before that."""
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
            self._wanted[topic_filter] = _Wanted(members, now_us, self._router.announce_to(topic_filter))
        else:
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

    def untold(self, topic_filter: str) -> tuple[int, tuple[str, ...]]:
        """Since when the filter is wanted, and the peers that should know and do not yet."""
        wanted = self._wanted.get(topic_filter)
        if wanted is None:
            return 0, ()
        peers = sorted(peer for peer in wanted.due if topic_filter not in self._announced.get(peer, ()))
        return min((self._since_us(peer, topic_filter) for peer in peers), default=wanted.since_us), tuple(peers)

    def was_heard(self, peer: str, until_us: int) -> None:
        """The peer has had what was sent to it until then."""
        self._heard_us[peer] = max(until_us, self._heard_us.get(peer, 0))

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
        told = [peer for peer in wanted.due if topic_filter in self._announced.get(peer, ())]
        peers = [peer for peer in told if self._heard_us.get(peer, unsure_us) < wanted.told_us]
        return min((self._since_us(peer, topic_filter) for peer in peers), default=0)

    def owe(self, topic_filter: str, peers: tuple[str, ...], since_us: int, wall_us: int) -> tuple[str, ...]:
        """When these peers are told of the filter, it is as old as this. Those of which that is new."""
        known = self._owed.get(topic_filter, {})
        untold = [peer for peer in peers if topic_filter not in self._announced.get(peer, ())]
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
        return self._lately.get(topic_filter, set()) | (wanted.due if wanted is not None else set())

    def changes(self, peer: str, now_us: int) -> Interest | None:
        """What the peer does not know yet, or should forget; None when it is up to date."""
        announced, wanted = self._announced.get(peer, {}), self._wanted
        added = [text for text, item in wanted.items() if peer in item.due and announced.get(text) != item.members]
        removed = [text for text in announced if text not in wanted or peer not in wanted[text].due]
        if not added and not removed:
            return None
        return self._note(peer, added, removed, now_us)

    def changes_of_filter(self, topic_filter: str, up: Container[str], now_us: int) -> Iterator[tuple[str, Interest]]:
        """The same for one filter and every peer within reach."""
        wanted = self._wanted.get(topic_filter)
        frame: Interest | None = None  # the same object for all, so that the host need encode it only once
        concerned = {peer for peer, told in self._announced.items() if topic_filter in told}
        concerned |= wanted.due if wanted is not None else set()
        for peer in sorted(peer for peer in concerned if peer in up):
            known = self._announced.get(peer, {}).get(topic_filter)
            due = wanted is not None and peer in wanted.due
            if wanted is not None and due and known != wanted.members:
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
        for text in self._announced.get(peer, {}):
            self._wanted[text].told_us = now_us
        items = tuple(self._item(peer, text, now_us) for text in self._announced.get(peer, {}))
        return Interest(True, items, ())

    def _note(self, peer: str, added: list[str], removed: list[str], now_us: int) -> Interest:
        announced, digest = self._announced.setdefault(peer, {}), self._digests.get(peer, 0)
        for text in (*added, *removed):
            if text in announced:
                digest -= interest_hash(text, announced.pop(text))
        for text in added:
            announced[text] = self._wanted[text].members
            self._wanted[text].told_us = now_us
            self._lately.setdefault(text, set()).add(peer)
            digest += interest_hash(text, announced[text])
        self._digests[peer] = digest & DIGEST_MASK
        return Interest(False, tuple(self._item(peer, text, now_us) for text in added), tuple(removed))

    def _item(self, peer: str, topic_filter: str, now_us: int) -> Announcement:
        wanted = self._wanted[topic_filter]
        since_us = self._since_us(peer, topic_filter)
        since_us = max(since_us, self._fresh.get(topic_filter, {}).get(peer, since_us))
        return Announcement(topic_filter, wanted.members, (now_us - since_us) // 1000)
