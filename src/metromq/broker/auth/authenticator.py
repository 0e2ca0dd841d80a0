"""The pluggable question "who is this?": CONNECT credentials and AUTH exchanges in, a decision out."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from metromq.broker.auth.passwords import PasswordFile, load_passwords
from metromq.broker.auth.scram_file import load_scram
from metromq.config import Auth
from metromq.errors import ScramError
from metromq.protocol import reasons, scram

SLOW_CHECKS = 2  # at a time


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a CONNECT, or an AUTH that re-authenticates, says about the client."""

    client_id: str
    username: str | None = None
    password: bytes | None = None
    # Authentication method and data of MQTT 5.
    method: str | None = None
    data: bytes = b""
    # The common name of a checked client certificate, where the listener uses it as the username.
    identity: str | None = None
    # What Config.allows_anonymous says of the listener.
    allow_anonymous: bool = False


@dataclass(frozen=True, slots=True)
class Accept:
    """The client is `username` (None: anonymous); `data` goes into the CONNACK or AUTH that says so."""

    username: str | None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The client is not let in."""

    reason_code: int
    reason: str
    server_reference: str = ""  # with 0x9C (use another server) and 0x9D (server moved): which one


@dataclass(frozen=True, slots=True)
class Continue:
    """The client gets an AUTH with `data`; its answer goes to `Authenticator.auth` together with `state`."""

    data: bytes
    state: object


Decision = Accept | Refuse | Continue


class Authenticator(Protocol):
    """Decides at once, or, with `async def`, after asking somebody else: then only this client waits.

    Whoever raises, or takes longer than `connect_timeout_s`, refuses the client with 0x88 (server unavailable).
    """

    def connect(self, request: Credentials) -> Decision | Awaitable[Decision]:
        """For a CONNECT, and again for an AUTH with reason Re-authenticate (0x19).

        On re-authentication the caller keeps the client's method [MQTT-4.12.1-1] and refuses another user, whose
        subscriptions the client has not got.
        """
        ...

    def auth(self, state: object, data: bytes) -> Decision | Awaitable[Decision]:
        """For an AUTH with reason Continue (0x18); `state` is what the last Continue of this client carried."""
        ...


class FileAuthenticator:
    """Certificates, then passwords of a file, then the anonymous rule; SCRAM-SHA-256 where a store is given.

    As in Mosquitto, a broker without a password file believes any username of a client that could also enter
    anonymously.
    """

    def __init__(
        self,
        passwords: PasswordFile | None = None,
        scram: scram.ScramServer | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(18),
    ) -> None:
        self._passwords = passwords
        self._scram = scram
        self._nonce = nonce

    def connect(self, request: Credentials) -> Decision | Awaitable[Decision]:
        if request.method is not None:
            return self._exchange(request)
        if request.identity is not None:
            return Accept(request.identity)
        if request.username is None:
            if request.allow_anonymous:
                return Accept(None)
            return Refuse(reasons.NOT_AUTHORIZED, "a username and password are needed here")
        if self._passwords is None:
            if request.allow_anonymous:
                return Accept(request.username)
            return Refuse(reasons.BAD_USER_NAME_OR_PASSWORD, "no users are configured here")
        if self._passwords.is_slow:
            return _check_slowly(self._passwords, request.username, request.password)
        return _checked(request.username, self._passwords.check(request.username, request.password))

    def credential(self, method: str | None, username: str) -> object:
        """What the files know of a user, to compare with what they knew before; None: nothing."""
        if method is not None:
            return self._scram.keys_of(username) if self._scram is not None else None
        return self._passwords.users.get(username) if self._passwords is not None else None

    def auth(self, state: object, data: bytes) -> Decision:
        assert isinstance(state, scram.Challenge)
        assert self._scram is not None
        try:
            return Accept(state.username, self._scram.final(state, data))
        except ScramError as error:
            return Refuse(reasons.NOT_AUTHORIZED, str(error))

    def _exchange(self, request: Credentials) -> Decision:
        if request.method != scram.METHOD or self._scram is None:
            return Refuse(
                reasons.BAD_AUTHENTICATION_METHOD, f"the authentication method {request.method} is not known here"
            )
        try:
            challenge, answer = self._scram.first(request.data, self._nonce())
        except ScramError as error:
            return Refuse(reasons.NOT_AUTHORIZED, str(error))
        return Continue(answer, challenge)


async def _check_slowly(passwords: PasswordFile, username: str, password: bytes | None) -> Decision:
    """In a thread; few at a time, since each may take tens of megabytes."""
    fits = await asyncio.get_running_loop().run_in_executor(_checkers(), passwords.check, username, password)
    return _checked(username, fits)


def _checked(username: str, fits: bool) -> Decision:
    return Accept(username) if fits else Refuse(reasons.BAD_USER_NAME_OR_PASSWORD, "wrong username or password")


@cache
def _checkers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(SLOW_CHECKS, "passwords")


def load_authenticator(auth: Auth) -> FileAuthenticator:
    """Reads the files of the configuration; a ConfigError names what is wrong in them."""
    return FileAuthenticator(
        load_passwords(auth.password_file) if auth.password_file else None,
        scram.ScramServer(load_scram(auth.scram_file, secrets.token_bytes(32))) if auth.scram_file else None,
    )
