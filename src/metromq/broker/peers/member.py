"""The live broker as a member of its city: gives the host its journal's name, its transport and its ticks."""

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping
from typing import Protocol

from metromq.broker import logs
from metromq.broker.peers.coordinating import NEEDS_KAZOO
from metromq.broker.peers.tcp import Address, TcpDialler
from metromq.broker.write_cycle import WriteCycle
from metromq.errors import MetroError
from metromq.federation import City
from metromq.federation.coordination import Shim
from metromq.federation.host import Host
from metromq.federation.links import LinkCredentials, MqttTransport, auth

OLD_SUFFIX = ".old"


class LiveShim(Shim, Protocol):
    async def stop(self) -> None: ...


def _shim_of(city: City, host: Host, cycle: WriteCycle) -> LiveShim | None:
    """None: the coordinator needs no servers."""
    if city.coordination != "zookeeper":
        return None
    try:
        from metromq.broker.peers.ensemble import Ensemble  # kazoo is an extra
    except ImportError as error:
        raise MetroError(NEEDS_KAZOO) from error
    return Ensemble(city, host, cycle)


class CityMember:
    def __init__(self, city: City, name: str, cycle: WriteCycle, journal_id: str, on_tick: Callable[[], None]) -> None:
        self._cycle = cycle
        self._on_tick = on_tick
        self.journal_id = journal_id  # peers notice by it when this broker's journal starts anew
        self._dialler: TcpDialler | None = None
        self.credentials: LinkCredentials | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._shim: LiveShim | None = None
        self.host = Host(city, name, cycle.hub, _report)

    def start(self, secret: bytes | None, addresses: Mapping[str, Address], tls: ssl.SSLContext | None) -> None:
        """After recovery: dials every peer and begins to greet; `addresses` go before those of the city."""
        hub, host = self._cycle.hub, self.host

        def address(peer: str) -> Address:
            return addresses.get(peer) or host.city.link_address(peer)

        self._dialler = TcpDialler(address, tls, self._cycle)
        credentials = self.credentials = LinkCredentials(host.name, self.journal_id, secret, nonce)
        credentials.old_secret = old_link_secret(host.city)
        self._cycle.now()
        host.start(MqttTransport(self._dialler, credentials, lambda: hub.clock.now))
        self._cycle.worked()
        self._shim = _shim_of(host.city, host, self._cycle)
        if self._shim is not None:
            self._shim.start()
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.host.rest_s())
            self._cycle.now()
            self.host.tick()
            self._on_tick()
            self._cycle.listened()
            if self._shim is not None:
                self._shim.take_writes()

    async def stop(self) -> None:
        if self._ticking is None or self._dialler is None:
            return
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)
        if self._shim is not None:
            await self._shim.stop()
        self._cycle.now()
        self.host.stop()
        self._cycle.worked()
        await self._dialler.stop()


def _report(level: str, event: str, **details: object) -> None:
    {"info": logs.info, "warning": logs.warning, "error": logs.error}[level](event, **details)


def nonce() -> bytes:
    return secrets.token_bytes(auth.NONCE_BYTES)


def link_secret(city: City) -> bytes | None:
    """The city's secret from its file or the file it names; None: certificates alone prove who is a peer."""
    if city.links.secret_file is not None:
        secret = city.links.secret_file.read_bytes().strip()
    else:
        secret = (city.links.secret or "").encode()
    if not secret and not city.links.certified:
        raise MetroError("the city has neither a secret nor certificates for its links")
    return secret or None


def old_link_secret(city: City) -> bytes | None:
    """The one before, in a file beside the secret's: it is good too for as long as the file is there."""
    if city.links.secret_file is None:
        return None
    try:
        return city.links.secret_file.with_name(city.links.secret_file.name + OLD_SUFFIX).read_bytes().strip() or None
    except FileNotFoundError:
        return None
