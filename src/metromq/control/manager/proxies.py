"""Which proxies there are and what they know: the table of delegations, and who has which version of it."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
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

    async def tell(self, table: ProxyTable) -> None:
        if table != self.table:
            async with self._changed:
                self.table = table
                self._changed.notify_all()

    async def asked(self, name: str, version: str, clients: int, wait_s: float) -> ProxyTable:
        loop = asyncio.get_running_loop()
        async with self._changed:
            self.lives[name] = ProxyLife(loop.time(), version, clients)
            self._changed.notify_all()
            try:
                async with asyncio.timeout(min(max(wait_s, 0.0), LONGEST_WAIT_S)):
                    await self._changed.wait_for(lambda: self.table.version != version)
            except TimeoutError:
                pass
            return self.table

    def alive(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        return [name for name, life in self.lives.items() if now - life.heard < ALIVE_S]

    async def all_know(self, patience_s: float) -> tuple[int, int]:
        """How many proxies that are alive have the present table, out of how many, after some patience."""

        def missing() -> list[str]:
            return [name for name in self.alive() if self.lives[name].version != self.table.version]

        try:
            async with asyncio.timeout(patience_s), self._changed:
                await self._changed.wait_for(lambda: not missing())
        except TimeoutError:
            pass
        alive = self.alive()
        return len(alive) - len(missing()), len(alive)

    def forget(self, name: str) -> None:
        self.lives.pop(name, None)
