"""Lets brokers join the running city by one-time tokens: keeps the tokens, and answers the CONNECT of a newcomer."""

import dataclasses
import secrets
import time
from dataclasses import dataclass
from typing import Any

from metromq.broker import logs
from metromq.errors import ConfigError, MetroError, PeerViolation
from metromq.federation import BrokerSpec, City, Site, plan_of, with_broker
from metromq.federation.host import Host
from metromq.federation.links import joining
from metromq.protocol import reasons
from metromq.protocol.session import AccessDecision
from metromq.reading import read_data

TOKEN_S = 3600.0
MOST_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a newcomer says of itself."""

    broker: BrokerSpec
    site: Site | None = None


class NewcomerDesk:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.secret = ""  # what newcomers are given to prove themselves with
        self._tokens: dict[bytes, tuple[bytes, float]] = {}

    def token(self, valid_s: float = TOKEN_S) -> str:
        """A new one; only this broker knows it, and forgets it when it is used, old, or the broker stops."""
        now = time.monotonic()
        self._tokens = {number: kept for number, kept in self._tokens.items() if kept[1] > now}
        if len(self._tokens) >= MOST_TOKENS:
            raise MetroError(f"{MOST_TOKENS} tokens wait to be used: that is enough")
        number, key = secrets.token_bytes(joining.NUMBER_BYTES), secrets.token_bytes(joining.KEY_BYTES)
        self._tokens[number] = (key, now + valid_s)
        return joining.token_text(number, key)

    def connect(self, client_id: str, data: bytes) -> AccessDecision:
        name = client_id.removeprefix(joining.JOIN_PREFIX)
        try:
            number = joining.token_number(data)
        except PeerViolation as error:
            return AccessDecision(error.reason_code, str(error))
        key, until = self._tokens.get(number, (b"", 0.0))
        if not key or until <= time.monotonic() or not client_id.startswith(joining.JOIN_PREFIX):
            return AccessDecision(reasons.NOT_AUTHORIZED, "the token was used, is too old, or is of another broker")
        nonce = secrets.token_bytes(joining.NONCE_BYTES)
        decision = AccessDecision(reasons.CONTINUE_AUTHENTICATION, "", "", nonce)
        decision.exchange = JoinExchange(number, joining.Doorkeeper(key, name, nonce, data))
        return decision

    def continued(self, exchange: "JoinExchange", data: bytes) -> AccessDecision:
        keeper = exchange.keeper
        if exchange.number not in self._tokens:
            return AccessDecision(reasons.NOT_AUTHORIZED, "the token has been used")
        try:
            wishes = read_data(Wishes, keeper.wishes(data), ignore_unknown=True)
            city = self._with(wishes, keeper.name)
            self._host.change_city(city, f"{keeper.name} itself", f"{keeper.name} joins with a token")
            del self._tokens[exchange.number]
        except PeerViolation as error:
            return AccessDecision(error.reason_code, str(error))
        except (MetroError, ValueError) as error:
            return AccessDecision(reasons.NOT_AUTHORIZED, str(error))
        logs.info("a broker joins", name=keeper.name, listen=wishes.broker.listen)
        welcome: dict[str, Any] = {"plan": plan_of(self._host.city), "secret": self.secret}
        decision = AccessDecision(reasons.CONTINUE_AUTHENTICATION, "", "", keeper.welcome(welcome))
        decision.exchange = exchange
        return decision

    def _with(self, wishes: Wishes, name: str) -> City:
        """Raises ConfigError, with what is wrong, for a city that cannot be."""
        city, spec = self._host.city, dataclasses.replace(wishes.broker, name=name)
        if wishes.site is not None and wishes.site.name not in {site.name for site in city.sites}:
            city = dataclasses.replace(city, sites=(*city.sites, wishes.site))
        wanted = with_broker(city, spec)
        for field, problem in (*spec.problems(), *wanted.problems()):
            raise ConfigError(field, problem)
        if name in self._host.city.by_name and name in self._host.node.up:
            raise ConfigError("name", f"{name} is a broker of the city, and it is there: choose another name")
        return wanted


@dataclass(frozen=True, slots=True)
class JoinExchange:
    """A newcomer on its way in."""

    number: bytes  # of its token
    keeper: joining.Doorkeeper
