"""What a node asks its host to do: frozen data, so that the live broker, the simulator and tests read the same."""

from dataclasses import dataclass
from typing import final

from metromq.federation.coordination.facts import Fact
from metromq.federation.description import Description
from metromq.federation.links.frames import Frame, WillTold


@final
@dataclass(slots=True, init=False)
class Send:
    """Send a control frame over the link to the peer, after everything sent before."""

    peer: str
    frame: Frame

    def __init__(self, peer: str, frame: Frame) -> None:  # by hand: every greeting is one, and no effect comes so often
        self.peer = peer
        self.frame = frame


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the frame to the journal; after a restart `Node.restore` gets it back. `peer` said it; empty: we did."""

    peer: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """Routes of topics that match one of the filters may differ from now on."""

    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactsLearnt:
    """The city agrees on other facts than before; for logs and for who wants to watch."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class CityFollowed:
    """This broker works by another description of the city from now on.

    With `overruled` somebody else changed the city at the same time, to what `before` says, and that does not count.
    """

    before: Description
    after: Description
    overruled: bool = False


@dataclass(frozen=True, slots=True)
class NeighboursChanged:
    """Keep links to these peers, and to no others."""

    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reopen:
    """The peer was out of reach and is back: send what waits for it, if anything does."""

    peer: str


@dataclass(frozen=True, slots=True)
class Reroute:
    """What waits for `peer` at stage OWNER and has this key is to be routed again, marked CHECK: `heir` has the key."""

    key: str  # ask `Node.is_of`
    peer: str
    heir: str


@dataclass(frozen=True, slots=True)
class GoAround:
    """A relay is gone: what waits for it, and names the brokers that it is for, goes to them by other ways."""

    peer: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """We stood in for the key and another stand-in won: send it what came in the last `age_us`, at stage HANDOVER."""

    key: str
    heir: str
    age_us: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The peer wanted filters some time ago but could not tell us: send it, marked CHECK, what it missed since.

    Of the messages in the journal, those for which `Node.replays` says yes and that are not on their way to it already.
    """

    peer: str
    wanted: tuple[tuple[str, int], ...]  # filter, and how many microseconds ago the peer began to want it


@dataclass(frozen=True, slots=True)
class SendRetained:
    """Send the peer every retained message, and every deletion still known, that matches one of the filters.

    With `since_us`, only those that are as new as that by the city's hybrid clock.
    """

    peer: str
    filters: tuple[str, ...]
    since_us: int = 0


@dataclass(frozen=True, slots=True)
class RetainedTold:
    """The peer retains nothing more for the filters than it has sent."""

    peer: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Call `Node.drained` when what was sent to peers until now is acknowledged, by all that can be reached."""

    key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """What clients published while its owner changed, and was held back, goes its way, unless it is held again."""


@dataclass(frozen=True, slots=True)
class SessionFound:
    """Answer to a CONNECT: `broker` holds the client's session and will send it; empty: nobody does."""

    client: str
    time_us: int
    broker: str
    since_us: int = 0  # when the client came there; 0: the directory does not say


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """Answer to a CONNECT: the session belongs to another user, who keeps it."""

    client: str
    time_us: int


@dataclass(frozen=True, slots=True)
class SessionTaken:
    """The client is at `broker` now: close its connection with 0x8E, drop its will, send the session there.

    With `clean_start` there is nothing to send, and the session ends here. With `foreign` it ends too, as if its client
    were lost: another user has the client identifier now, and gets nothing of it.
    """

    client: str
    time_us: int
    broker: str
    clean_start: bool
    foreign: bool = False
    clean_us: int = 0  # when the client began anew, if it has: what is older is void


@dataclass(frozen=True, slots=True)
class FireWill:
    """The client's broker is lost, and the client with it: publish its will in its broker's place."""

    will: WillTold


@dataclass(frozen=True, slots=True)
class WillFired:
    """Another broker has fired the will that a client of ours left with the CONNECT of `time_us`."""

    client: str
    time_us: int


@dataclass(frozen=True, slots=True)
class ClockSkewed:
    """The peer's clock is so far ahead of ours: further than the city allows (`apart`), or no longer; for operators."""

    peer: str
    ahead_us: int
    apart: bool


Effect = (
    Send
    | Keep
    | RoutesChanged
    | FactsLearnt
    | CityFollowed
    | NeighboursChanged
    | Reopen
    | Reroute
    | GoAround
    | HandOver
    | Replay
    | SendRetained
    | RetainedTold
    | Drain
    | Release
    | SessionFound
    | SessionRefused
    | SessionTaken
    | ClockSkewed
    | FireWill
    | WillFired
)
