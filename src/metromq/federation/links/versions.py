"""Which version of the link is spoken to each peer: the newest that both read; no I/O."""

from collections.abc import Iterable
from typing import Final, final

from metromq.errors import ProtocolViolation
from metromq.federation.links.frames import OLDEST, VERSION, read_offer

FOLLOWS_SINCE: Final = 5  # from which version on brokers follow changes of their city,
RUMOURS_SINCE: Final = 6  # and from which on they know rumours, and links that rest,
SAID_SINCE: Final = 7  # and from which on they say when they announced something, and tell each other the time,
COUNTED_SINCE: Final = 8  # and from which on they count together who follows a change,
ANEW_SINCE: Final = 9  # and from which on they say when a client began anew,
HOMES_SINCE: Final = 10  # and from which on they say who is at home where,
BLOCKS_SINCE: Final = 11  # and from which on they read in blocks what a session has had


@final
class LinkVersions:
    def __init__(self) -> None:
        self.newest = VERSION  # that this broker speaks
        self.spoken: dict[str, int] = {}  # to peers that have made an offer

    def offered(self, peer: str, offer: str) -> None:
        """The peer has said which versions it reads; raises PeerViolation when we speak none of them."""
        oldest, newest = read_offer(offer)
        if oldest > self.newest or newest < OLDEST:
            raise ProtocolViolation(
                f"{peer} reads versions {oldest} to {newest} of the link, this broker speaks {OLDEST} to {self.newest}"
            )
        self.spoken[peer] = min(newest, self.newest)

    def check(self, peer: str, version: int) -> None:
        if version > self.newest:
            raise ProtocolViolation(f"{peer} speaks version {version} of the link, this broker {self.newest}")

    def to(self, peer: str, is_dialled: bool) -> int:
        """Who has made no offer reads the oldest, unless not everybody dials: large cities need more than that."""
        return self.spoken.get(peer, OLDEST if is_dialled else self.newest)

    def cannot_follow(self, peers: Iterable[str]) -> list[str]:
        """Peers that would not understand that the city changes."""
        return [peer for peer in peers if self.spoken.get(peer, VERSION) < FOLLOWS_SINCE]

    def forget(self, peer: str) -> None:
        self.spoken.pop(peer, None)
