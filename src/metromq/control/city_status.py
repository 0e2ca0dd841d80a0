"""Asks brokers over HTTP, and puts the answers together as the status of a city."""

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from metromq.control.data_directory import RunningBroker, lives, read_place
from metromq.documents import parse_document
from metromq.errors import ConfigError, MetroError
from metromq.federation import DOWN, UNREACHABLE, UP, BrokerSpec, BrokerStatus, City, CityStatus, broker_from_json

PATIENCE_S = 3.0


class NoAnswer(MetroError):
    """A broker's HTTP listener does not answer, or not with what was asked for."""


async def get(address: str, path: str, query: Mapping[str, str] | None = None, timeout_s: float = PATIENCE_S) -> bytes:
    """The body of a page; raises NoAnswer."""
    target = path + (f"?{urlencode(query)}" if query else "")
    request = f"GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    return await _ask_page(address, path, request.encode(), timeout_s)


async def post(address: str, path: str, key: str, body: bytes, timeout_s: float = PATIENCE_S) -> bytes:
    """Gives an order; raises NoAnswer with what the broker says against it."""
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nX-MetroMQ-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    return await _ask_page(address, path, head.encode() + body, timeout_s)


async def _ask_page(address: str, path: str, request: bytes, timeout_s: float) -> bytes:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(request)
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise NoAnswer(f"{address} does not answer: {str(error) or 'timed out'}") from error
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or words[1] != b"200":
        raise NoAnswer(f"{address}{path}: {body.decode(errors='replace').strip() or 'no answer'}")
    return body


async def get_json(address: str, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
    body = await get(address, path, query)
    try:
        return parse_document(body.decode(), "JSON", f"{address}{path}")
    except (ConfigError, UnicodeDecodeError) as error:
        why = error.problem if isinstance(error, ConfigError) else error
        raise NoAnswer(f"the answer of {address}{path} is not a JSON object: {why}") from None


async def is_ready(directory: Path, pid: int) -> bool:
    """Whether the broker of this process says that it is well."""
    place = read_place(directory)
    if place is None or place.pid != pid:
        return False
    try:
        await get(place.http, "/healthz")
    except NoAnswer:
        return False
    return True


async def ask_city(city: City, data: Path) -> CityStatus:
    """Every broker of the city: what it says itself, else what the others say of it."""
    places = {name: read_place(data / name) for name in city.names}
    answers = await asyncio.gather(*(_ask(city.broker(name), places[name]) for name in city.names))
    heard = {name for answer in answers for name in _heard_by(answer)}
    brokers = tuple(
        dataclasses.replace(answer, state=UNREACHABLE, problem="its peers hear from it, but it does not answer here")
        if answer.state == DOWN and not answer.pid and answer.name in heard and places[answer.name] is None
        else answer
        for answer in answers
    )
    return CityStatus(city.name, city.routing, time.time(), brokers)


def _heard_by(broker: BrokerStatus) -> set[str]:
    """A broker that has just started takes all others for alive, also those that it has never heard."""
    unheard = {link.peer for link in broker.links if link.state == DOWN and link.clock_ahead_s is None}
    return set(broker.alive) - unheard


async def _ask(spec: BrokerSpec, place: RunningBroker | None) -> BrokerStatus:
    silent = BrokerStatus(spec.name, DOWN, spec.listen, spec.area, spec.site)
    if place is None:
        return dataclasses.replace(silent, problem="not running here")
    if not lives(place.pid):
        return dataclasses.replace(silent, problem=f"its process {place.pid} is gone")
    try:
        status = broker_from_json(await get_json(place.http, "/status"))
    except (NoAnswer, ConfigError) as error:
        return dataclasses.replace(silent, state=UNREACHABLE, pid=place.pid, http=place.http, problem=str(error))
    return dataclasses.replace(status, state=UP)
