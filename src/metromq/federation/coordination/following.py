"""Who follows the newest description of a large city: one bit for each member, which brokers add up; no I/O.

Everybody must know that everybody follows before the next step of a change. If each broker's word went to all others
as a fact of its own, a change would cost work that grows with the square of the city. A set of members is small (600
bytes for 5,000), two of them add up at once whatever way they came, and when nothing is missing nothing is said.
"""

from collections.abc import Mapping
from typing import Final, final

from metromq.federation.coordination.facts import Fact, weight
from metromq.federation.coordination.sharing import Shared

DIGEST_MASK: Final = (1 << 31) - 1


def _places_of(names: tuple[str, ...]) -> Mapping[str, int]:
    return {name: place for place, name in enumerate(names)}


_PLACES: Final = Shared(_places_of)


@final
class Following:
    """The members that follow a description, by their places in its list of brokers."""

    def __init__(self) -> None:
        self.epoch = 0  # of the description; 0: there is only the city's file, which nobody needs to follow
        self.mark = 0  # which of two descriptions of one epoch it is
        self.bits = 0
        self.is_news = False  # there is something to pass on
        self._all = 0
        self._places: Mapping[str, int] = {}
        self._earlier: dict[str, int] = {}  # what those followed last that did not follow the description before,
        self._before = 0  # which all others of its members did
        self._were: Mapping[str, int] = {}

    def begin(self, city: Fact, names: tuple[str, ...]) -> None:
        """The city has another description."""
        if self.bits != self._all:
            self._earlier = {name: self.followed(name) for name in self._places if not self.has(name)}
        else:
            self._earlier = {}
        self._before, self._were = self.epoch, self._places
        self.epoch, self.mark = city.epoch, weight(city)
        self._places = _PLACES.of(names)
        self._all = (1 << len(names)) - 1
        self.bits = 0
        self.is_news = False

    def has(self, name: str) -> bool:
        place = self._places.get(name)
        return place is not None and self.bits >> place & 1 == 1

    def followed(self, name: str) -> int:
        """The epoch that the member follows, as far as it has said so this way."""
        if self.has(name):
            return self.epoch
        earlier = self._earlier.get(name)
        if earlier is not None:
            return earlier
        return self._before if name in self._were else 0

    def add(self, name: str) -> None:
        place = self._places.get(name)
        if place is not None:
            self.hear(self.mark, 1 << place)

    def hear(self, mark: int, bits: int) -> None:
        """Another broker's set; that of another description says nothing."""
        if mark == self.mark and self.epoch:
            added = self.bits | (bits & self._all)
            self.is_news = self.is_news or added != self.bits
            self.bits = added

    def digest(self) -> int:
        """For peers to compare; 0: everybody follows."""
        return 0 if self.bits == self._all else (self.bits ^ self.mark) % DIGEST_MASK + 1
