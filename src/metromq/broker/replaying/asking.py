"""Asks the other brokers of the city for what their journals hold, over connections of the process that reads."""

import asyncio
import secrets
import ssl
from typing import Any

from metromq.broker.replaying.merging import BrokerAway
from metromq.broker.stream import common_name
from metromq.client import Fetcher, FetchPlace
from metromq.errors import MqttError
from metromq.federation.links import auth
from metromq.protocol.replay import BUSY, READER_PREFIX, FetchAnswer, FetchRequest

PEER_TRIES = 3
PEER_PATIENCE_S = 10.0
PEER_CONNECT_S = 3.0
BUSY_TRIES = 50
BUSY_S = 0.2


class Peers:
    """Connections to the other brokers of the city, opened when first needed."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._open: dict[str, Fetcher] = {}
        self._locks = {name: asyncio.Lock() for name in setup["peers"]}

    async def ask(self, peer: str, request: FetchRequest) -> FetchAnswer:
        async with self._locks[peer]:
            problem: MqttError | None = None
            for attempt in range(PEER_TRIES):
                try:
                    if attempt:
                        await asyncio.sleep(0.3 * attempt)
                    return await self._fetch(peer, request)
                except MqttError as error:
                    problem = error
                    await self._drop(peer)
                except asyncio.CancelledError:  # the answer is still to come, and would be taken for the next one's
                    await self._drop(peer)
                    raise
            raise BrokerAway(f"{peer} cannot be reached ({problem})")

    async def _fetch(self, peer: str, request: FetchRequest) -> FetchAnswer:
        """A peer that has no time now, or whose process that reads ended just now, is not away: it is asked again."""
        answer = await (await self._fetcher(peer)).fetch(request)
        for _ in range(BUSY_TRIES):
            if answer.code != BUSY:
                break
            await asyncio.sleep(BUSY_S)
            answer = await (await self._fetcher(peer)).fetch(request)
        return answer

    async def _fetcher(self, peer: str) -> Fetcher:
        if peer not in self._open:
            host, port = self._setup["peers"][peer]
            secret = self._setup["secret"]
            name = self._setup["name"]
            proof = _Proof(auth.Dialler(bytes.fromhex(secret), name, peer, secrets.token_bytes(auth.NONCE_BYTES)))
            place = FetchPlace(
                host,
                port,
                self._setup["journal_id"],
                tls=self._tls(),
                identifier=READER_PREFIX + name,
                authentication=proof if secret else None,
                patience_s=PEER_PATIENCE_S,
                connect_s=PEER_CONNECT_S,
            )
            fetcher = Fetcher(place)
            await fetcher.open()
            self._open[peer] = fetcher
            named = common_name(fetcher.peer_certificate())
            if self._setup["tls"] and named != peer:
                raise MqttError(f"the certificate there names {named or 'nobody'}")
        return self._open[peer]

    def _tls(self) -> ssl.SSLContext | None:
        files = self._setup["tls"]
        if not files:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False  # names in certificates are those of brokers, whatever the address
        context.load_verify_locations(files["ca"])
        context.load_cert_chain(files["cert"], files["key"])
        return context

    async def _drop(self, peer: str) -> None:
        fetcher = self._open.pop(peer, None)
        if fetcher is not None:
            await fetcher.close()


class _Proof:
    """Proves the city secret, as a link does."""

    method = auth.METHOD

    def __init__(self, dialler: auth.Dialler) -> None:
        self._dialler = dialler

    def start(self) -> bytes:
        return self._dialler.connect_data()

    def answer(self, challenge: bytes) -> bytes:
        return self._dialler.answer(challenge)

    def finish(self, verdict: bytes | None) -> None:
        """The peer proved itself in its challenge."""
