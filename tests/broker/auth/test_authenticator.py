"""The authenticator's decisions: certificates, passwords, the anonymous rule, SCRAM exchanges."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from metromq.broker.auth import (
    Accept,
    Continue,
    Credentials,
    Decision,
    FileAuthenticator,
    PasswordFile,
    Refuse,
    ScramServer,
    ScramStore,
    load_authenticator,
)
from metromq.broker.auth.passwords import hash_password
from metromq.config import Auth
from metromq.errors import ConfigError
from metromq.protocol.scram import ScramClient, derive_keys

PASSWORDS = PasswordFile({"alice": hash_password(b"secret", b"salt", 10)})


def reason(decision: Decision | Awaitable[Decision]) -> int | str | None:
    """The reason code of a refusal or the name of who was let in."""
    assert isinstance(decision, Accept | Refuse)
    return decision.reason_code if isinstance(decision, Refuse) else decision.username


@pytest.mark.parametrize(
    ("request_", "with_file", "without_file"),
    [
        (Credentials("c"), 0x87, 0x87),
        (Credentials("c", allow_anonymous=True), None, None),
        (Credentials("c", "alice", b"secret"), "alice", 0x86),
        (Credentials("c", "alice", b"wrong"), 0x86, 0x86),
        (Credentials("c", "alice", b"wrong", allow_anonymous=True), 0x86, "alice"),
        (Credentials("c", "alice", None), 0x86, 0x86),
        (Credentials("c", "bob", b"secret", allow_anonymous=True), 0x86, "bob"),
        (Credentials("c", identity="sensor"), "sensor", "sensor"),
        (Credentials("c", "alice", b"wrong", identity="sensor"), "sensor", "sensor"),
        (Credentials("c", method="SCRAM-SHA-256", data=b"n,,n=u,r=x"), 0x8C, 0x8C),
        (Credentials("c", method="OTHER", allow_anonymous=True), 0x8C, 0x8C),
    ],
)
def test_decisions(request_: Credentials, with_file: int | str | None, without_file: int | str | None) -> None:
    assert reason(FileAuthenticator(PASSWORDS).connect(request_)) == with_file
    assert reason(FileAuthenticator().connect(request_)) == without_file


def exchange(authenticator: FileAuthenticator, client: ScramClient) -> Decision:
    decision = authenticator.connect(Credentials("c", method=client.method, data=client.start()))
    assert isinstance(decision, Continue)
    return authenticator.auth(decision.state, client.answer(decision.data))


def test_scram_exchange() -> None:
    store = ScramStore({"alice": derive_keys("secret", b"salt")}, b"")
    authenticator = FileAuthenticator(scram=ScramServer(store))
    client = ScramClient("alice", "secret", "abc")
    decision = exchange(authenticator, client)
    assert isinstance(decision, Accept)
    assert decision.username == "alice"
    client.finish(decision.data)
    assert reason(exchange(authenticator, ScramClient("alice", "wrong", "abc"))) == 0x87
    assert reason(exchange(authenticator, ScramClient("bob", "secret", "abc"))) == 0x87
    assert reason(authenticator.connect(Credentials("c", method="SCRAM-SHA-256", data=b"junk"))) == 0x87
    assert reason(authenticator.connect(Credentials("c", method="PLAIN"))) == 0x8C


def test_each_exchange_has_its_own_nonce() -> None:
    authenticator = FileAuthenticator(scram=ScramServer(ScramStore({}, b"")))
    request = Credentials("c", method="SCRAM-SHA-256", data=ScramClient("u", "p", "abc").start())
    first, second = authenticator.connect(request), authenticator.connect(request)
    assert isinstance(first, Continue)
    assert isinstance(second, Continue)
    assert first.data != second.data


def test_files_of_the_configuration(tmp_path: Path) -> None:
    passwords = tmp_path / "pw"
    passwords.write_text(f"alice:{hash_password(b'secret', b'salt', 10)}\n")
    store = tmp_path / "scram"
    store.write_text(f"bob:{derive_keys('pencil', b'salt')}\n")
    authenticator = load_authenticator(Auth(password_file=passwords, scram_file=store))
    assert authenticator.connect(Credentials("c", "alice", b"secret")) == Accept("alice")
    assert isinstance(exchange(authenticator, ScramClient("bob", "pencil", "abc")), Accept)
    passwords.write_text("alice:secret\n")
    with pytest.raises(ConfigError, match=r"pw: line 1: user alice: the password is not hashed"):
        load_authenticator(Auth(password_file=passwords))


def test_what_takes_long_is_checked_in_a_thread() -> None:
    stored = {"quick": hash_password(b"1", b"salt", 10), "slow": hash_password(b"2", b"salt", 5_001)}
    authenticator = FileAuthenticator(PasswordFile(stored))

    async def answer(username: str, password: bytes) -> int | str | None:
        decision = authenticator.connect(Credentials("c", username, password))
        assert isinstance(decision, Awaitable)  # for everybody alike, so that nobody learns who has which hash
        return reason(await decision)

    assert asyncio.run(answer("slow", b"2")) == "slow"
    assert asyncio.run(answer("quick", b"1")) == "quick"
    assert asyncio.run(answer("slow", b"1")) == asyncio.run(answer("nobody", b"1")) == 0x86
