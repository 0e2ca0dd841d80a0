"""Packet identifiers of deliveries: several brokers choose them, and one client gets them."""

from typing import Final, final
from zlib import crc32

from metromq.errors import ProtocolViolation
from metromq.gateway.table import CENTRAL

MOST_IN_FLIGHT: Final = 65_535


@final
class PacketIds:
    """Deliveries of several brokers under identifiers of one client; kept while its session lasts, for repeats."""

    def __init__(self) -> None:
        self._by_broker: dict[tuple[str, int], int] = {}
        self._by_client: dict[int, tuple[str, int] | None] = {}  # None: that broker is gone
        self._last = 0
        self.left: dict[str, set[str]] = {}  # filters that were given up while their edge broker was lost

    def __len__(self) -> int:
        return len(self._by_broker)

    def knows(self, way: str, number: int) -> bool:
        return (way, number) in self._by_broker

    def of(self, way: str, number: int) -> int:
        """The identifier for the client; a repeat gets the one that it had."""
        known = self._by_broker.get((way, number))
        if known is not None:
            return known
        wanted = _usual(way, number)
        mine = wanted if wanted not in self._by_client else self._free()
        self._by_broker[way, number] = mine
        self._by_client[mine] = way, number
        return mine

    def _free(self) -> int:
        for _ in range(MOST_IN_FLIGHT):
            self._last = self._last % MOST_IN_FLIGHT + 1
            if self._last not in self._by_client:
                return self._last
        raise ProtocolViolation("more deliveries are under way than there are packet identifiers")

    def owner(self, mine: int) -> tuple[str, int] | None:
        return self._by_client.get(mine)

    def done(self, mine: int) -> None:
        owner = self._by_client.pop(mine, None)
        if owner is not None:
            del self._by_broker[owner]

    def clear(self) -> None:
        self._by_broker.clear()
        self._by_client.clear()
        self.left.clear()

    def forget(self, way: str) -> None:
        """Its session is gone. What the client has not confirmed it may still hold: other messages get other ones."""
        for mine, owner in self._by_client.items():
            if owner is not None and owner[0] == way:
                del self._by_broker[owner]
                self._by_client[mine] = None


def _usual(way: str, number: int) -> int:
    """The same whenever and wherever it is asked: to another proxy, or one that was restarted, the client comes with
    QoS 2 messages that it has under these identifiers. The central broker's own stay what they are."""
    return number if way == CENTRAL else (number + crc32(way.encode())) % MOST_IN_FLIGHT + 1
