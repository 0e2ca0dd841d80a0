"""Which proxies there are and what they know: the table of delegations, and who has which version of it."""

import asyncio
import hashlib
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

ALIVE_S = 15.0  # a proxy asks at least every ten seconds
LONGEST_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ProxyTable:
    """What a proxy needs: where the central broker is, which filters whom belong to, where their tunnels end."""

    central: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    edges: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


def made_table(central: str, filters: Mapping[str, str], edges: Mapping[str, str]) -> ProxyTable:
    """Filters of brokers without a tunnel are the central broker's business. Equal tables have equal versions.

    Brokers that have no filter any more stay in it: clients that were away may have messages waiting there.
    """
    known = {name: broker for name, broker in sorted(filters.items()) if broker in edges}
    places = dict(sorted(edges.items()))
    text = json.dumps([central, known, places])
    return ProxyTable(central, known, places, hashlib.blake2b(text.encode(), digest_size=8).hexdigest())


@dataclass(slots=True)
class ProxyLife:
    heard: float
    version: str = ""
    clients: int = 0


class ProxyDesk:
    """Proxies ask for the table and say which one they have; the answer waits until there is another."""

    def __init__(self) -> None:
        self.table = ProxyTable()
        self.lives: dict[str, ProxyLife] = {}
        self._changed = asyncio.Condition()
        self._since = time.monotonic()
        self._is_closed = False

    async def close(self) -> None:
        """Answers whoever waits for news: none will come from here."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    async def tell(self, table: ProxyTable) -> None:
        if table != self.table:
            async with self._changed:
                self.table = table
                self._changed.notify_all()

    async def asked(self, name: str, version: str, clients: int, wait_s: float) -> ProxyTable:
        """A table without a version is none: the central broker has not been heard yet."""
        async with self._changed:
            self.lives[name] = ProxyLife(time.monotonic(), version, clients)
            self._changed.notify_all()
            try:
                async with asyncio.timeout(min(max(wait_s, 0.0), LONGEST_WAIT_S)):
                    await self._changed.wait_for(lambda: self._is_closed or self.table.version not in ("", version))
            except TimeoutError:
                pass
            return self.table

    def alive(self) -> list[str]:
        now = time.monotonic()
        return [name for name, life in self.lives.items() if now - life.heard < ALIVE_S]

    async def unknowing(self, registered: Collection[str], patience_s: float) -> list[str]:
        """Those of the registered proxies that do not have the present table, after some patience.

        It waits for proxies that are alive, and after a manager's start for all, as they come again one by one. Whoever
        comes later gets the table then.
        """

        def missing() -> list[str]:
            alive = self.alive()
            return [one for one in registered if one not in alive or self.lives[one].version != self.table.version]

        def is_vain() -> bool:
            is_old = time.monotonic() - self._since >= ALIVE_S
            return all(name not in self.alive() and (is_old or name in self.lives) for name in missing())

        try:
            async with asyncio.timeout(patience_s), self._changed:
                await self._changed.wait_for(is_vain)
        except TimeoutError:
            pass
        return missing()

    def forget(self, name: str) -> None:
        self.lives.pop(name, None)
