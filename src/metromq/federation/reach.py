"""Which peers frames can reach: those with an open link and, where links open on demand, those that would get one."""

from collections.abc import Callable, Iterable, Iterator
from typing import final


@final
class Reach:
    """Iterating gives the peers with an open link. `on_demand` says whether a link would be opened to a peer."""

    def __init__(self, on_demand: Callable[[str], bool] = lambda peer: False) -> None:
        self._on_demand = on_demand
        self._linked: set[str] = set()
        self._met: set[str] = set()  # peers that have been told all that they must know, with nothing lost since
        self._failing: set[str] = set()  # peers that a link could not be opened to

    def __contains__(self, peer: object) -> bool:
        if peer in self._linked:
            return True
        return isinstance(peer, str) and peer not in self._failing and self._on_demand(peer)

    def __iter__(self) -> Iterator[str]:
        return iter(self._linked)

    def __len__(self) -> int:
        return len(self._linked)

    def among(self, peers: Iterable[str]) -> set[str]:
        return {peer for peer in peers if peer in self}

    def issuperset(self, peers: Iterable[str]) -> bool:
        return all(peer in self for peer in peers)

    def is_linked(self, peer: str) -> bool:
        return peer in self._linked

    def opened(self, peer: str) -> bool:
        """The link is up; whether the peer may have missed something before."""
        is_new = peer not in self._met or peer in self._linked
        self._linked.add(peer)
        self._met.add(peer)
        self._failing.discard(peer)
        return is_new

    def lost(self, peer: str) -> None:
        """What was sent last may be lost."""
        self._linked.discard(peer)
        self._met.discard(peer)
        self._failing.add(peer)

    def rested(self, peer: str) -> None:
        """The link was closed because there was nothing to send: nothing is lost."""
        self._linked.discard(peer)

    def returned(self, peer: str) -> None:
        """The peer was away or has started anew: it is worth another try, and must be told everything."""
        self._failing.discard(peer)
        if peer not in self._linked:
            self._met.discard(peer)

    def forget(self, peer: str) -> None:
        for peers in (self._linked, self._met, self._failing):
            peers.discard(peer)
