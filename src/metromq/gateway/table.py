"""Which broker gets what: the narrowest delegated filter decides, and what no filter covers is the central broker's."""

from collections.abc import Iterable, Mapping
from typing import Final, final

from metromq.protocol.topics import covers, matches, overlaps, split_shared, wildness

MOST_KNOWN: Final = 10_000
CENTRAL: Final = ""  # the name of the way to the central broker


@final
class DelegationTable:
    """`is_foreign`: the central broker does not belong to the city: what it has edge brokers do not, and vice versa.

    `others` are edge brokers that have no filter now, and may have had one.
    """

    def __init__(self, entries: Mapping[str, str], is_foreign: bool = False, others: Iterable[str] = ()) -> None:
        self._entries = sorted(entries.items(), key=lambda entry: wildness(entry[0]))  # the narrowest first
        self.is_foreign = is_foreign
        self.known: dict[bytes, str] = {}
        self.edges = tuple(dict.fromkeys(entries.values()))
        self.all_edges = tuple(dict.fromkeys((*self.edges, *others)))

    def of_topic(self, topic: str) -> str:
        return next((edge for text, edge in self._entries if matches(text, topic)), CENTRAL)

    def of_name(self, topic: bytes) -> str:
        """The same of a topic as it stands in a packet; publishers repeat theirs."""
        found = self.known.get(topic)
        if found is None:
            found = self.of_topic(topic.decode("utf-8", "replace"))
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[topic] = found
        return found

    def of_filter(self, topic_filter: str) -> tuple[str, ...]:
        """Where to subscribe: a city's brokers tell each other the rest, a foreign broker tells nobody."""
        plain = split_shared(topic_filter)[1]
        within = next((edge for text, edge in self._entries if covers(text, plain)), None)
        if within is not None:
            return (within,)
        touched = [edge for text, edge in self._entries if overlaps(text, plain)] if self.is_foreign else []
        return (CENTRAL, *dict.fromkeys(touched))
