"""Asks a broker for records of its journal, one answer per request, over a client's connection."""

import asyncio
import ssl
from dataclasses import dataclass

from metromq.client.client import Client
from metromq.client.core.options import Authentication
from metromq.errors import ConnectionLost, MqttError
from metromq.protocol.replay import FETCH_TOPIC, FetchAnswer, FetchRequest, decode_answer
from metromq.protocol.wire import Properties

ANSWERS = "$replay/answer"  # nobody can subscribe to it: an answer goes to the connection that asked
PATIENCE_S = 60.0  # a broker that paces many readers takes its time


@dataclass(frozen=True, slots=True)
class FetchPlace:
    """Where a broker is and as whom to ask it."""

    host: str
    port: int
    username: str | None = None
    password: str | bytes | None = None
    tls: ssl.SSLContext | None = None
    identifier: str | None = None
    authentication: Authentication | None = None
    patience_s: float = PATIENCE_S  # for an answer
    connect_s: float = 10.0


class Fetcher:
    """One connection; `ask` may be called before the last answer was taken, answers come in the order of requests."""

    def __init__(self, place: FetchPlace) -> None:
        self._patience_s = place.patience_s
        self._client = Client(
            place.host,
            place.port,
            identifier=place.identifier,
            username=place.username,
            password=place.password,
            tls=place.tls,
            authentication=place.authentication,
            max_queued_messages=4,
            timeout_s=place.connect_s,
        )

    async def open(self) -> None:
        await self._client.connect()

    def peer_certificate(self) -> dict[str, object]:
        """What the broker's verified certificate says; empty without TLS."""
        return self._client.peer_certificate()

    async def ask(self, request: FetchRequest) -> None:
        await self._client.publish(FETCH_TOPIC, request.encode(), properties=Properties(response_topic=ANSWERS))

    async def answer(self) -> FetchAnswer:
        try:
            async with asyncio.timeout(self._patience_s):
                message = await anext(self._client.messages)
        except TimeoutError:
            raise ConnectionLost(f"{self._where()} did not answer within {self._patience_s:g} s") from None
        except StopAsyncIteration:
            raise ConnectionLost(f"the connection to {self._where()} was closed") from None
        return decode_answer(message.payload)

    async def fetch(self, request: FetchRequest) -> FetchAnswer:
        await self.ask(request)
        return await self.answer()

    def _where(self) -> str:
        return f"{self._client.hostname}:{self._client.port}"

    async def close(self) -> None:
        try:
            await self._client.disconnect()
        except MqttError:
            pass
