"""How parcels of links reach peers: one interface, so that links need not know what carries them.

A parcel is a batch, a run of QoS 0 packets or a control frame. A transport keeps a way open to every peer that it was
told of, carries parcels along it in order, and says what becomes of those that must be stored. MQTT over byte streams
(TCP, TLS, memory) is one transport; a multicast that sends equal parcels once for a group of peers is another.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from mypy_extensions import mypyc_attr


class OpenWay(Protocol):
    """To one peer."""

    def send(self, kind: str, parcel: bytes, must_store: bool) -> int:
        """Sends a parcel; the token by which it will be settled, 0 when nobody will tell, as when the way is lost."""


class TransportEvents(Protocol):
    """Who is told what happens on the way to one peer."""

    def opened(self, way: OpenWay) -> None:
        """Parcels can be sent from now on; nothing that was sent before will be settled."""

    def lost(self, problem: str) -> None:
        """The way is closed, or could not be opened; the transport tries again by itself."""

    def settled(self, token: int, is_stored: bool) -> None:
        """The peer has stored a parcel, or refused to; parcels are settled in the order in which they were sent."""

    def may_send(self, allowed: bool) -> None:
        """The network takes no more for now, or does again."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport(ABC):
    """The ways from one broker to its peers. `journal_id` names the journal that its links' sequences count in."""

    journal_id: str = ""

    @abstractmethod
    def open(self, peer: str, events: TransportEvents) -> None:
        """Opens the way to a peer, and again whenever it is lost, until `close`."""

    @abstractmethod
    def close(self, peer: str) -> None:
        """The peer is no neighbour any more."""

    @abstractmethod
    def reset(self, peer: str, problem: str) -> None:
        """Gives this connection up and opens another."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Call several times a second: keeps ways alive and opens those that are lost."""

    def was_heard(self, peer: str, at: float) -> None:
        """The peer has said, over a link of its own, that it got what was sent then: its way need not be tried."""
        return

    def came(self, peer: str) -> None:
        """The peer has opened its own way here: if ours is lost it is worth a try at once."""
        return

    def is_calm(self) -> bool:
        """Whether every way is open, so that ticks may be rare."""
        return False
