"""Enhanced authentication end to end: the client's SCRAM against the broker's, and re-authentication."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from metromq.client import Client, ConnectRefused
from metromq.config import Auth, Config, Listener
from metromq.protocol.scram import ScramClient, derive_keys
from tests.peers import Server, metromq, play


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("scram")
    (directory / "scram").write_text(f"alice:{derive_keys('pencil', b'salt')}\n")
    (directory / "acl").write_text("user alice\ntopic a/#\n")
    auth = Auth(scram_file=directory / "scram", acl_file=directory / "acl")
    config = Config(data_dir=directory / "data", durability="memory", listeners=(Listener(port=0),), auth=auth)
    with metromq(config) as running:
        yield running


def client_of(server: Server, username: str, password: str) -> Client:
    authentication = ScramClient(username, password, secrets.token_urlsafe(12))
    return Client("127.0.0.1", server.port, authentication=authentication)


def test_the_right_password_gives_the_users_rights_and_can_be_proved_again(server: Server) -> None:
    async def story() -> bytes:
        async with client_of(server, "alice", "pencil") as client:
            await client.subscribe("a/b")
            await client.reauthenticate()
            await client.publish("a/b", "hello", qos=1)
            return (await anext(client.messages)).payload

    assert play(story()) == b"hello"


@pytest.mark.parametrize(("username", "password"), [("alice", "pen"), ("bob", "pencil")])
def test_the_wrong_one_does_not(server: Server, username: str, password: str) -> None:
    async def story() -> None:
        async with client_of(server, username, password):
            pass

    with pytest.raises(ConnectRefused) as raised:
        play(story())
    assert raised.value.reason_code == 0x87


def test_nobody_enters_without(server: Server) -> None:
    async def story() -> None:
        async with Client("127.0.0.1", server.port):
            pass

    with pytest.raises(ConnectRefused):
        play(story())
