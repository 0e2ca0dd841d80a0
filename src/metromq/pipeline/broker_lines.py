"""Brokers asked for records from programs without an event loop: a Spark driver and its executors.

Connections are kept from one task to the next, as Spark keeps its Python workers.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

from metromq.client import Fetcher, FetchPlace
from metromq.errors import MqttError
from metromq.protocol.replay import FetchAnswer, FetchRequest


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """Where a broker is and as whom to ask it; small enough to travel to every executor."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None
    tls: bool = False
    cafile: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def fetch_place(self) -> FetchPlace:
        tls = ssl.create_default_context(cafile=self.cafile) if self.tls else None
        return FetchPlace(self.host, self.port, self.username, self.password, tls)


class BrokerLine:
    """One connection to one broker; MqttError says that it is lost, or was never there."""

    def __init__(self, place: BrokerPlace) -> None:
        self._loop = asyncio.new_event_loop()
        try:
            self._fetcher = self._loop.run_until_complete(_open(place))
        except BaseException:
            self._loop.close()
            raise

    def ask(self, request: FetchRequest) -> None:
        """Sends a request and does not wait: the broker reads while we work on what came before."""
        self._loop.run_until_complete(self._ask(request))

    async def _ask(self, request: FetchRequest) -> None:
        await self._fetcher.ask(request)
        await asyncio.sleep(0)  # the client writes at the end of a turn

    def answer(self) -> FetchAnswer:
        return self._loop.run_until_complete(self._fetcher.answer())

    def close(self) -> None:
        try:
            self._loop.run_until_complete(self._fetcher.close())
        finally:
            self._loop.close()


async def _open(place: BrokerPlace) -> Fetcher:
    fetcher = Fetcher(place.fetch_place())
    await fetcher.open()
    return fetcher


_LINES: Final[dict[BrokerPlace, BrokerLine]] = {}


def take_line(place: BrokerPlace) -> BrokerLine:
    """A connection that nobody uses; give it back when every request has its answer."""
    line = _LINES.pop(place, None)
    return line if line is not None else BrokerLine(place)


def give_back(place: BrokerPlace, line: BrokerLine) -> None:
    if place in _LINES:
        line.close()
    else:
        _LINES[place] = line


def ask_once(place: BrokerPlace, request: FetchRequest) -> FetchAnswer:
    """One request; a kept connection that was lost meanwhile is replaced."""
    kept = place in _LINES
    line = take_line(place)
    try:
        line.ask(request)
        answer = line.answer()
    except MqttError:
        line.close()
        if kept:
            return ask_once(place, request)
        raise
    give_back(place, line)
    return answer
