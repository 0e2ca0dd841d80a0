"""A storm as plain steps, which can be printed, shrunk, read and played again."""

import hashlib
from dataclasses import dataclass
from typing import Final

from metromq.errors import UsageError
from metromq.protocol.wire import MQTT5, MQTT311

ROUTINGS: Final = ("geographic", "flood-subscriptions", "flood-publications", "central")
PLAYED: Final = (*ROUTINGS, "delegation", "overlay")  # those drawn by seed, and some that must be asked for
TOPICS: Final = ("0/0/0/0/a", "1/2/0/0/b", "3/3/1/1/c", "plain/d")
FILTERS: Final = ("#", "0/#", "1/2/+/0/b", "3/3/1/1/c", "plain/#", "+/d", "0/0/0/0/a", "1/2/0/0/b", "plain/d")
COORDINATIONS: Final = ("embedded", "zookeeper", "workers")  # the last is ZooKeeper with coordination workers
GROUPS: Final = ("$share/g/1/#", "$share/g/plain/d", "$share/h/#")
WILL_TOPIC: Final = "will"
WATCHED: Final = "will/#"

# The verbs, and how many words may follow them.
WORDS: Final = {
    "connect": (3, 6),  # client, broker, keeps or clean, and maybe a will: topic, payload, delay
    "slip": (3, 6),  # as connect, from another network: the connection of before stays half-open
    "disconnect": (1,),
    "vanish": (1,),
    "subscribe": (3,),
    "unsubscribe": (2,),
    "publish": (5,),
    "clear": (2,),
    "kill": (1,),
    "power": (1,),  # what was not synced is lost
    "tear": (1,),  # the same, in the middle of a record
    "start": (1,),
    "revise": (2,),  # killed, and started at once with another version of the city file
    "pause": (1,),
    "resume": (1,),
    "cut": (2,),
    "hold": (2,),  # nothing that the first sends reaches the second, and nobody is told
    "slow": (3,),  # what the first sends reaches the second so many seconds later
    "split": (1,),
    "heal": (0,),
    "snapshot": (1,),
    "move": (3,),  # an area, the broker that is at home there from now on, and the one that is told so
    "join": (2, 3),  # a newcomer, the broker that it asks, and maybe the area that it gets
    "leave": (1,),  # for good
    "route": (2,),  # another routing, and the broker that is told so
    "away": (0,),  # the whole ensemble, until it is
    "back": (0,),
    "unreach": (1,),  # a broker and the ensemble do not hear each other until `heal`
    "expire": (1,),  # the ensemble ends a broker's session
    "lag": (2,),  # watches of the ensemble tell a broker so many seconds later, until `heal`
    "fell": (1,),  # a coordination worker dies,
    "hire": (1,),  # and comes back
    "fall": (1,),  # one of the ensemble's servers dies, its `leader` or a `follower`; of a simulated one nothing does,
    "rise": (1,),  # and comes back
    "topple": (1,),  # the broker dies that leads a cluster of this topic,
    "restore": (1,),  # and comes back
    "delegate": (1, 2),  # a filter, and the broker that gets it; without one it goes back
}
NEAR_S: Final = 1.0
FILES: Final = ("slower", "faster", "first")  # versions of the city file, see `stage.revised`


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, `at` seconds after the start."""

    at: float
    verb: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.at:8.3f}  {' '.join((self.verb, *self.words))}"


@dataclass(frozen=True, slots=True)
class History:
    """A whole storm. `skews_s` are how far the brokers' clocks are ahead."""

    seed: int
    routing: str
    brokers: int
    skews_s: tuple[float, ...]
    steps: tuple[Step, ...]
    coordination: str = "embedded"

    def __str__(self) -> str:
        """The text that `parse_history` reads."""
        clocks = " ".join(f"{skew:g}" for skew in self.skews_s)
        on = f" on {self.coordination}" if self.coordination != "embedded" else ""
        head = f"storm {self.seed} {self.routing}{on} clocks {clocks}"
        return "\n".join((head, *map(str, self.steps)))

    @property
    def is_near(self) -> bool:
        """Whether clocks are only milliseconds apart: then clients are nearer to brokers than these to each other.

        Somebody may set a value before the broker could hear of one that was set, and acknowledged, elsewhere.
        """
        return any(0.0 < abs(skew) < NEAR_S for skew in self.skews_s)

    def version_of(self, client: str) -> int:
        """The MQTT version that a client speaks in this storm."""
        is_older = hashlib.blake2b(f"{self.seed}{client}".encode()).digest()[0] % 3 == 0
        return MQTT311 if is_older else MQTT5


def parse_history(text: str, name: str = "history") -> History:
    """Reads what a history prints; lines that begin with `# ` are comments."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, words) for number, words in lines if words and words[0] != "#"]
    head = lines[0][1] if lines else []
    coordination = "embedded"
    if len(head) > 4 and head[3] == "on" and head[4] in COORDINATIONS:
        coordination, head = head[4], [*head[:3], *head[5:]]
    if len(head) < 5 or head[0] != "storm" or head[3] != "clocks" or head[2] not in PLAYED:
        raise UsageError(f"{name}: a storm starts with a line such as: storm 7 geographic clocks 0 0 600")
    try:
        skews = tuple(float(word) for word in head[4:])
        steps = tuple(_parse_step(words) for _, words in lines[1:])
        return History(int(head[1]), head[2], len(skews), skews, steps, coordination)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _parse_step(words: list[str]) -> Step:
    if len(words) < 2 or words[1] not in WORDS or len(words) - 2 not in WORDS[words[1]]:
        raise ValueError(f"{' '.join(words)!r} is not a step of a storm, such as: 3.25 publish c1 plain/d m7 2 live")
    return Step(float(words[0]), words[1], tuple(words[2:]))
