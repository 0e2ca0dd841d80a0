"""Which brokers want which topics: a flat index of filters, small in memory and quick to match.

Filters are grouped by shape (how many levels, where `+` stands, whether `#` ends it). A topic matches a shape's filters
exactly when the topic with `+` and `#` put in these places is one of them, so matching is one look-up per shape, and a
filter costs one entry of a dictionary instead of a path of tree nodes.
"""

import hashlib
from typing import Final, final

from metromq.federation.links.frames import Announcement, Interest
from metromq.federation.summaries import wider

SHARE_PREFIX: Final = "$share/"


def plain_filter(topic_filter: str) -> str:
    """The filter inside a shared subscription; any other filter as it is."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return topic_filter
    return topic_filter.split("/", 2)[2]


def interest_hash(topic_filter: str, members: int) -> int:
    """Digests of a set of filters are sums of these, so they follow changes without being counted anew."""
    text = f"{topic_filter}\0{members}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


DIGEST_MASK: Final = (1 << 63) - 1


@final
class FilterIndex:
    """Filters with a number each; the number 0 means that the filter is not there."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._shapes: dict[tuple[int, tuple[int, ...], bool], int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, topic_filter: str) -> int:
        return self._values.get(topic_filter, 0)

    def filters(self) -> list[str]:
        return list(self._values)

    def put(self, topic_filter: str, value: int) -> None:
        known = topic_filter in self._values
        if value:
            self._values[topic_filter] = value
        elif known:
            del self._values[topic_filter]
        if known == bool(value):
            return
        shape = _shape(topic_filter)
        count = self._shapes.get(shape, 0) + (1 if value else -1)
        if count:
            self._shapes[shape] = count
        else:
            del self._shapes[shape]

    def matching(self, topic: str) -> list[str]:
        """The filters that match a topic name."""
        values = self._values
        found: list[str] = []
        levels: list[str] | None = None
        for size, places, open_end in self._shapes:
            if not places and not open_end:
                if topic in values and topic not in found:
                    found.append(topic)
                continue
            if levels is None:
                levels = topic.split("/")
            if len(levels) < size if open_end else len(levels) != size:
                continue
            if topic.startswith("$") and (size == 0 or 0 in places):  # [MQTT-4.7.2-1]
                continue
            names = levels[:size]
            for place in places:
                names[place] = "+"
            if open_end:
                names.append("#")
            text = "/".join(names)
            if text in values:
                found.append(text)
        return found


def _shape(topic_filter: str) -> tuple[int, tuple[int, ...], bool]:
    levels = topic_filter.split("/")
    open_end = levels[-1] == "#"
    if open_end:
        levels.pop()
    places = tuple(place for place, name in enumerate(levels) if name == "+")
    # All plain names are one shape: the topic itself is the only candidate.
    return (len(levels) if places or open_end else 0, places, open_end)


@final
class PeerInterest:
    """What every peer has announced to this broker."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}  # of peers that ever announced anything
        self._plain = FilterIndex()  # value: the peers that want it, one bit each
        self._shared = FilterIndex()  # plain filters that some shared subscription has; value: how many
        self._groups: dict[str, dict[str, int]] = {}  # shared subscription -> peer -> members
        self._by_filter: dict[str, list[str]] = {}  # plain filter -> its shared subscriptions
        self._digests: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._plain) + len(self._groups)

    def _bit(self, peer: str) -> int:
        bit = self._bits.get(peer)
        if bit is None:
            taken = sum(self._bits.values())
            bit = self._bits[peer] = ~taken & (taken + 1)  # the lowest one that nobody has
        return bit

    def member_left(self, peer: str) -> None:
        if peer not in self._bits:
            return
        for item in self.filters_of(peer):
            self.set(peer, item.topic_filter, 0)
        del self._bits[peer]
        self._digests.pop(peer, None)

    def digest(self, peer: str) -> int:
        return self._digests.get(peer, 0)

    def wants(self, peer: str, topic_filter: str) -> int:
        """Members of the peer for the filter; 0 when it does not want it."""
        if topic_filter.startswith(SHARE_PREFIX):
            return self._groups.get(topic_filter, {}).get(peer, 0)
        return 1 if self._plain.get(topic_filter) & self._bits.get(peer, 0) else 0

    def covers(self, peer: str, topic_filter: str) -> bool:
        """Whether the peer wants the filter, or, where it is a plain one, a wider one that ends with `#`."""
        if self.wants(peer, topic_filter):
            return True
        bit = self._bits.get(peer, 0)
        if not bit or topic_filter.startswith(SHARE_PREFIX):
            return False
        return any(self._plain.get(text) & bit for text in wider(topic_filter))

    def set(self, peer: str, topic_filter: str, members: int) -> None:
        before, bit = self.wants(peer, topic_filter), self._bit(peer)
        if topic_filter.startswith(SHARE_PREFIX):
            self._set_shared(peer, topic_filter, members)
        else:
            members = min(members, 1)
            bits = self._plain.get(topic_filter)
            self._plain.put(topic_filter, bits | bit if members else bits & ~bit)
        digest = self._digests.get(peer, 0)
        if before:
            digest -= interest_hash(topic_filter, before)
        if members:
            digest += interest_hash(topic_filter, members)
        self._digests[peer] = digest & DIGEST_MASK

    def apply(self, peer: str, frame: Interest) -> list[str]:
        """Returns the filters whose interest differs from before."""
        wanted = {item.topic_filter: item.members for item in frame.wanted}
        for topic_filter in frame.unwanted:
            wanted[topic_filter] = 0
        if frame.whole:
            for item in self.filters_of(peer):
                wanted.setdefault(item.topic_filter, 0)
        changed = [text for text, members in wanted.items() if self.wants(peer, text) != members]
        for topic_filter in changed:
            self.set(peer, topic_filter, wanted[topic_filter])
        return changed

    def _set_shared(self, peer: str, key: str, members: int) -> None:
        group = self._groups.setdefault(key, {})
        if members:
            group[peer] = members
        else:
            group.pop(peer, None)
        topic_filter = plain_filter(key)
        keys = self._by_filter.setdefault(topic_filter, [])
        if group and key not in keys:
            keys.append(key)
        elif not group:
            del self._groups[key]
            if key in keys:
                keys.remove(key)
        if not keys:
            del self._by_filter[topic_filter]
        self._shared.put(topic_filter, len(keys))

    def peers(self) -> tuple[str, ...]:
        """Those that have announced something."""
        return tuple(peer for peer, digest in self._digests.items() if digest)

    def filters_of(self, peer: str) -> list[Announcement]:
        plain = [Announcement(text, 1, 0) for text in self.plain_filters_of(peer)]
        shared = [Announcement(key, group[peer], 0) for key, group in self._groups.items() if peer in group]
        return plain + shared

    def plain_filters_of(self, peer: str) -> list[str]:
        bit = self._bits.get(peer, 0)
        return [text for text in self._plain.filters() if self._plain.get(text) & bit]

    def peers_for(self, topic: str) -> tuple[str, ...]:
        """The peers with a plain subscription that matches, each once."""
        bits = 0
        for topic_filter in self._plain.matching(topic):
            bits |= self._plain.get(topic_filter)
        if not bits:
            return ()
        return tuple(peer for peer, bit in self._bits.items() if bits & bit)

    def matching(self, topic: str) -> list[str]:
        """The plain filters that match."""
        return self._plain.matching(topic)

    def shares_for(self, topic: str) -> list[str]:
        """The shared subscriptions that match."""
        return [key for topic_filter in self._shared.matching(topic) for key in self._by_filter[topic_filter]]

    def members_of(self, share: str) -> dict[str, int]:
        return self._groups.get(share, {})
