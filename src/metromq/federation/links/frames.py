"""Control frames: what brokers tell each other about themselves, apart from the messages they pass on.

On the wire a frame is the payload of one PUBLISH to CONTROL_TOPIC (`frame_bytes.py`). Frames between two brokers
arrive in order and are lost when the link breaks; every hello carries digests, so that a loss is noticed and mended.
Times are ages, never dates: brokers need no common clock.
"""

from dataclasses import dataclass
from typing import Final, final

from metromq.federation.coordination.coordinator import Greeting
from metromq.federation.coordination.facts import Fact
from metromq.federation.coordination.rumours import Rumour

BATCH_TOPIC: Final = "$metromq/batch"
RUN_TOPIC: Final = "$metromq/run"
CONTROL_TOPIC: Final = "$metromq/control"
LINK_CLIENT_PREFIX: Final = "$link/"  # client id of a link: the prefix and the broker's name
OLDEST: Final = 4  # that is still spoken: since wills have keepers and clocks are compared
# The newest: 5 says which description of the city the sender follows, 6 who is lost, 7 when something was announced and
# how late it is by the city's hybrid time, 8 who follows a change of a large city, 9 when a client began anew,
# 10 which broker is at home where, until both have found that their files are the same, 11 what
# a session has had, in blocks.
VERSION: Final = 11


@final
@dataclass(slots=True, init=False)
class Hello:
    """A coordinator's greeting, and a digest of all that the sender has announced to the receiver."""

    version: int
    interest_digest: int
    greeting: Greeting
    time_us: int  # hybrid logical time: nothing that the sender has heard of is later
    city: str  # what the sender's city file says; see City.identity
    wall_us: int  # the sender's clock
    echo_us: int  # the clock of the receiver, as its last hello said; 0: none came
    held_us: int  # how long ago that one came
    epoch: int  # of the description that the sender follows; since version 5

    # By hand: no other frame is made and read as often, and what dataclasses write is not compiled.
    def __init__(
        self,
        version: int,
        interest_digest: int,
        greeting: Greeting,
        time_us: int = 0,
        city: str = "",
        wall_us: int = 0,
        echo_us: int = 0,
        held_us: int = 0,
        epoch: int = 0,
    ) -> None:
        self.version = version
        self.interest_digest = interest_digest
        self.greeting = greeting
        self.time_us = time_us
        self.city = city
        self.wall_us = wall_us
        self.echo_us = echo_us
        self.held_us = held_us
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class Gossip:
    """What is said of brokers that do not greet the receiver; `whole`: all that the sender takes for lost."""

    rumours: tuple[Rumour, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Followers:
    """The members that follow a description of the city, see coordination/following.py; since version 8."""

    mark: int
    bits: bytes  # the first member's is the lowest


@dataclass(frozen=True, slots=True)
class Rest:
    """The sender will close this link because it has nothing to say; it opens it again when it has."""


@dataclass(frozen=True, slots=True)
class Facts:
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Announcement:
    """The sender wants messages of a filter, since `age_ms`; `members` counts a shared subscription's members."""

    topic_filter: str
    members: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class Interest:
    """Changes of what the sender wants from the receiver; with `whole` they replace all that was known before."""

    whole: bool
    wanted: tuple[Announcement, ...]
    unwanted: tuple[str, ...]
    said_us: int = 0  # by the sender's clock, as in its hellos; 0: it does not say; since version 7


@dataclass(frozen=True, slots=True)
class Owed:
    """Kept, and never sent: these brokers must be told of a filter, and that it is wanted since then, by our clock."""

    topic_filter: str
    peers: tuple[str, ...]
    since_us: int


@dataclass(frozen=True, slots=True)
class ClockTold:
    """By hybrid logical time, nothing that the sender knows of and that has such a time is later; since version 7."""

    time_us: int


@dataclass(frozen=True, slots=True)
class ClockCompared:
    """Kept, and never sent: a peer's clock is so far ahead of ours, or behind it."""

    ahead_us: int
    behind_us: int


@dataclass(frozen=True, slots=True)
class InterestRequest:
    """The receiver of a hello misses something: please send the interest whole."""


@dataclass(frozen=True, slots=True)
class RetainedRequest:
    """Please send every retained message, and every deletion still known, of these filters."""

    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetainedNone:
    """The answer to a RetainedRequest where nothing is retained; otherwise the messages themselves answer."""

    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientClaim:
    """To the client's directory broker: `client` has its session at the sender since `time_us`."""

    client: str
    time_us: int  # of the CONNECT at the sender; of one user's the latest wins
    asks: bool  # the sender waits for an answer before it greets the client
    clean_start: bool
    user: str = ""  # whose session it is; empty: of a client without a user name
    opened_us: int = 0  # when that user opened it; of two users the first keeps it
    replaces: bool = False  # the sender lets a newcomer end another user's session
    clean_us: int = 0  # when the client began anew with a clean start: its sessions that are older are void


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """From the directory: `broker` held the client's session until now; empty when nobody did."""

    client: str
    time_us: int
    broker: str
    refused: bool = False  # it belongs to another user and stays where it is
    clean_us: int = 0  # since version 9: when the client began anew before this, so that what is older is void,
    since_us: int = 0  # and when it came to `broker`


@dataclass(frozen=True, slots=True)
class ClientMoved:
    """To the broker that held the session: `broker` has it since `time_us`; close here, and send the session after.

    The last four are those of the claim. When `user` is another one, nothing is sent.
    """

    client: str
    time_us: int
    broker: str
    clean_start: bool
    user: str = ""
    opened_us: int = 0
    replaces: bool = False
    clean_us: int = 0  # since version 9


@dataclass(frozen=True, slots=True)
class ClientReleased:
    """To the directory: the session ended at the sender."""

    client: str
    time_us: int


@dataclass(frozen=True, slots=True)
class WillTold:
    """To the broker that fires the will if `broker`, the client's, is lost.

    `since_s` is how long ago its delay began to count; -1: the client is still there.
    """

    broker: str
    client: str
    time_us: int  # of the CONNECT that brought it; with the client it names the will for ever
    delay_s: int
    since_s: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    expiry_s: int  # -1: never
    properties: bytes


@dataclass(frozen=True, slots=True)
class WillDropped:
    """The sender's client has no will any more, or the sender knows that it was fired."""

    client: str
    time_us: int


@dataclass(frozen=True, slots=True)
class WillsAnew:
    """What the receiver keeps for the sender's clients is old; what counts follows."""


@dataclass(frozen=True, slots=True)
class WillsFired:
    """The sender has fired these wills of the receiver's clients, by client and time of the CONNECT."""

    wills: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    """The sender has done its part of the step that a fact of a filter's hand-over, of this epoch, asks for.

    With a digest of all that it has announced to the receiver, as in a hello.
    """

    key: str
    epoch: int
    interest_digest: int


Frame = (
    Hello
    | Facts
    | Interest
    | InterestRequest
    | RetainedRequest
    | RetainedNone
    | ClientClaim
    | ClientAnswer
    | ClientMoved
    | ClientReleased
    | WillTold
    | WillDropped
    | WillsAnew
    | WillsFired
    | StepDone
    | Gossip
    | Followers
    | Rest
    | ClockTold
    | Owed
    | ClockCompared
)


def offer_text(newest: int) -> str:
    return f"{OLDEST}-{newest}"


def read_offer(text: str) -> tuple[int, int]:
    """The oldest and the newest version that a peer reads; releases that make no offer read only the oldest."""
    oldest, _, newest = text.partition("-")
    if not (oldest.isdecimal() and newest.isdecimal() and len(text) < 20):
        return OLDEST, OLDEST
    return int(oldest), int(newest)
