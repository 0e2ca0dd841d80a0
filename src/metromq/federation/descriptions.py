"""What the city is by its newest description, what it was before, and who follows; no I/O."""

from collections.abc import Callable
from typing import Final, final

from metromq.errors import ProtocolViolation, UsageError
from metromq.federation.city import City
from metromq.federation.coordination.coordinator import Coordinator
from metromq.federation.coordination.facts import FOLLOWS, Fact
from metromq.federation.description import MOST_KEPT, Description, described, next_description, text_of
from metromq.federation.links.frames import Hello
from metromq.federation.links.versions import FOLLOWS_SINCE, HOMES_SINCE

EPOCH_WORD: Final = "epoch="
MOST_SHOWN: Final = 5  # areas that have another home broker in another file


@final
class Descriptions:
    def __init__(self, city: City, name: str, coordinator: Coordinator) -> None:
        self.now = Description(0, city)
        self.earlier: list[Description] = []  # the oldest first
        self._name = name
        self._coordinator = coordinator
        self._book = coordinator.book
        self._alike: set[str] = set()  # peers whose file is ours

    def wanted(self, city: City, author: str, time: float, note: str, lagging: list[str]) -> Fact:
        """The fact that would make it another city; raises UsageError for what a running city cannot become."""
        if lagging:
            raise UsageError(f"{', '.join(lagging)} cannot follow: upgrade to a release that can, then change the city")
        return next_description(self.now, city, author, self._name, time, note).to_fact()

    def adopt(self, fact: Fact) -> tuple[Description, bool]:
        """Returns what was before, and whether of two changes with the same epoch the other one counts."""
        before, self.now = self.now, described(fact, self.now.city)
        overruled = before.epoch == self.now.epoch
        if not overruled:
            self.earlier = [*self.earlier, before][-MOST_KEPT:]
        return before, overruled

    def text(self) -> str:
        """What is now, as the value of a fact."""
        return text_of(self.now.city) if self.now.epoch == 0 else self.now.to_fact().value

    def read(self, fact: Fact) -> City:
        return described(fact, self.now.city).city

    @property
    def followed_by(self) -> dict[str, int]:
        """The epoch of the description by which each member works, as far as it is known here."""
        following, book = self._coordinator.following, self._book
        return {name: max(book.get(FOLLOWS, name).epoch, following.followed(name), 0) for name in book.members}

    def unsaid(self, is_mixed: Callable[[], bool]) -> tuple[Fact, ...]:
        """By which description this broker works, once there is another than the city's file, if it has not said so.

        `is_mixed`: a peer would not understand if we only counted who follows.
        """
        epoch, book = self.now.epoch, self._book
        if not epoch or book.get(FOLLOWS, self._name).epoch == epoch or not book.is_member(self._name):
            return ()
        if not self._coordinator.says_by_fact() and not is_mixed():
            return ()
        return (Fact(FOLLOWS, self._name, self._name, epoch),)

    @property
    def identity(self) -> str:
        """With the epoch, once the city has been changed: until then every release understands it."""
        identity = self.now.city.identity
        return f"{identity} {EPOCH_WORD}{self.now.epoch}" if self.now.epoch else identity

    def told(self, peer: str, version: int) -> str:
        """The same for a hello: who has not been heard with our file is told more, so that it can say what differs."""
        words = self.now.city.home_words
        if version < HOMES_SINCE or self.now.epoch or peer in self._alike or not words:
            return self.identity
        return f"{self.identity}\n{words}"

    def check(self, peer: str, hello: Hello) -> None:
        """Who has another epoch is told of the newer one; of one epoch there are no two files."""
        epoch = hello.epoch if hello.version >= FOLLOWS_SINCE else _epoch(hello.city)
        city = self.now.city
        theirs, _, homes = hello.city.partition("\n")
        if epoch == self.now.epoch == 0 and theirs != city.identity:
            self._alike.discard(peer)
            differ = _different_words(theirs, city.identity, homes and city.home_words)
            differ += _different_homes(homes, city.home_words) if homes else []
            raise ProtocolViolation(
                f"{peer} has another city file: {'; '.join(differ)}. All brokers of a city need the same file"
            )
        self._alike.add(peer)

    def facts(self) -> list[Fact]:
        """What was before, to be kept: the book has the newest."""
        return [one.to_fact() for one in self.earlier if one.epoch]


def _epoch(identity: str) -> int:
    """Of the description that a hello names."""
    word = identity.rpartition(" ")[2]
    digits = word.removeprefix(EPOCH_WORD)
    return int(digits) if word != digits and digits.isdecimal() and len(digits) < 19 else 0


def _different_words(theirs: str, ours: str, without: str) -> list[str]:
    """`without`: the home brokers, which are told by their names."""
    pairs = zip(theirs.split(), ours.split(), strict=False)
    return [
        f"{one} there, {other} here"
        for one, other in pairs
        if one != other and not (without and one.startswith("home-brokers="))
    ]


def _different_homes(theirs: str, ours: str) -> list[str]:
    """The first few; a square is the map's, an area has a home broker or none."""
    there, here = (dict(word.partition("=")[::2] for word in text.split()) for text in (theirs, ours))
    keys = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
    shown = []
    for key in keys[:MOST_SHOWN]:
        name = "the map" if key == "square" else f"area {key}"
        shown.append(f"{name}: {there.get(key, 'nobody')} there, {here.get(key, 'nobody')} here")
    return [*shown, f"{len(keys) - MOST_SHOWN} more areas"] if len(keys) > MOST_SHOWN else shown
