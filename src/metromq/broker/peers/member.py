"""The live broker as a member of its city: gives the host its journal's name, its transport and its ticks."""

import asyncio
import secrets
import ssl
from collections.abc import Mapping

from metromq.broker import logs
from metromq.broker.peers.tcp import Address, TcpDialler
from metromq.broker.write_cycle import WriteCycle
from metromq.errors import MetroError
from metromq.federation import City
from metromq.federation.host import Host
from metromq.federation.links import LinkCredentials, MqttTransport, auth


class CityMember:
    def __init__(self, city: City, name: str, cycle: WriteCycle, journal_id: str) -> None:
        self._city = city
        self._cycle = cycle
        self.journal_id = journal_id  # peers notice by it when this broker's journal starts anew
        self._dialler: TcpDialler | None = None
        self._ticking: asyncio.Task[None] | None = None
        self.host = Host(city, name, cycle.hub, _report)

    def start(self, secret: bytes | None, addresses: Mapping[str, Address], tls: ssl.SSLContext | None) -> None:
        """After recovery: dials every peer and begins to greet; `addresses` go before those of the city."""
        hub, host = self._cycle.hub, self.host
        known = {peer: addresses.get(peer) or self._city.link_address(peer) for peer in self._city.names}
        self._dialler = TcpDialler(known, tls, self._cycle)
        credentials = LinkCredentials(host.name, self.journal_id, secret, nonce)
        self._cycle.now()
        host.start(MqttTransport(self._dialler, credentials, lambda: hub.clock.now))
        self._cycle.worked()
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.host.rest_s())
            self._cycle.now()
            self.host.tick()
            self._cycle.worked()

    async def stop(self) -> None:
        if self._ticking is None or self._dialler is None:
            return
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)
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
