"""A broker's first step into a running city: asks one of its brokers, with a token, and keeps what it says."""

import asyncio
import dataclasses
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metromq.client import Client, MqttError
from metromq.control import CITY_FILE, keep_city, load_city
from metromq.errors import MetroError, UsageError
from metromq.federation import BrokerSpec, City, LinkSecurity, Site, read_plan, split_address
from metromq.federation.links import joining
from metromq.files import replace_file

SECRET_FILE = "links.secret"


@dataclass(frozen=True, slots=True)
class Application:
    """Who wants to join, and where."""

    address: str
    token: str | None
    broker: BrokerSpec
    site: Site | None = None


def joined_city(asked: Application, data: Path) -> City:
    """The city that the broker is a member of; a broker that has joined before needs no token."""
    known = data / CITY_FILE
    if known.is_file():
        city = load_city(known)
        if asked.broker.name in city.by_name:
            return city
        raise UsageError(f"{known} is of a city without {asked.broker.name}: choose another data directory")
    if asked.token is None:
        raise UsageError("--join needs --token, which `metromq city token` prints at a broker of the city")
    return _keep(asyncio.run(ask(asked, asked.token)), data)


async def ask(asked: Application, token: str) -> dict[str, Any]:
    """What the city says to the newcomer."""
    for field, problem in asked.broker.problems():
        raise UsageError(f"{field} {problem}")
    wishes: dict[str, Any] = {"broker": _plain(asked.broker)}
    if asked.site is not None:
        wishes["site"] = _plain(asked.site)
    newcomer = joining.Newcomer(token, asked.broker.name, secrets.token_bytes(joining.NONCE_BYTES), wishes)
    host, port = split_address(asked.address)
    client = Client(host, port, identifier=joining.JOIN_PREFIX + asked.broker.name, authentication=newcomer)
    said = "it said nothing"
    try:
        await client.connect()  # it ends with a refusal, for a newcomer is no client
    except (MqttError, MetroError, OSError) as error:
        said = str(error)
    if newcomer.welcome is None:
        raise UsageError(f"{asked.address} does not let {asked.broker.name} join: {said}")
    return newcomer.welcome


def _plain(spec: BrokerSpec | Site) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(spec).items() if value is not None}


def _keep(welcome: dict[str, Any], data: Path) -> City:
    data.mkdir(parents=True, exist_ok=True)
    replace_file(data / SECRET_FILE, str(welcome["secret"]).encode("utf-8", "surrogateescape") + b"\n", mode=0o600)
    city = read_plan(welcome["plan"], LinkSecurity(secret_file=(data / SECRET_FILE).absolute()))
    keep_city(data, city)
    return city
