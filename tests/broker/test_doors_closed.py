"""What stays outside: pages of other sites, names that nobody vouches for, rights that a chosen name would widen."""

import ssl
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from metromq.broker import Broker
from metromq.broker.auth.passwords import hash_password
from metromq.broker.origins import Origins
from metromq.client import Client, ConnectRefused
from metromq.config import Auth, Config, Limits, Listener
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    Connect,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from tests.broker.wire_client import WireClient, wire_client
from tests.certificates import Authority
from tests.peers import play

MQTT = Subprotocol("mqtt")


def _config(listener: Listener, auth: Auth | None = None) -> Config:
    return Config(durability="memory", listeners=(listener,), auth=auth or Auth(), limits=Limits(max_connects_per_s=0))


# --- WebSocket origins --------------------------------------------------------------------------------------------


async def _opens(port: int, origin: str | None, host: str = "127.0.0.1") -> bool:
    """Whether a browser with a page of `origin` may open a connection to `host`, which leads here."""
    said = Origin(origin) if origin is not None else None
    try:
        async with connect(
            f"ws://{host}:{port}/", host="127.0.0.1", port=port, origin=said, subprotocols=[MQTT], proxy=None
        ):
            return True
    except InvalidStatus as refusal:
        answer = refusal.response
    assert answer.status_code == 403
    assert b"websocket_origins" in answer.body
    return False


@pytest.mark.parametrize(
    ("allowed", "origin", "host", "opens"),
    [
        ((), None, "127.0.0.1", True),  # no browser
        ((), "http://127.0.0.1", "127.0.0.1", True),
        ((), "https://127.0.0.1:8443", "127.0.0.1", True),
        ((), "http://localhost:3000", "localhost", True),
        ((), "http://LOCALHOST", "localhost", True),
        ((), "http://evil.example", "127.0.0.1", False),
        ((), "http://localhost", "127.0.0.1", False),
        ((), "null", "127.0.0.1", False),  # a file, or a frame in a sandbox
        ((), "", "127.0.0.1", False),
        ((), "http://[", "127.0.0.1", False),
        ((), "127.0.0.1", "127.0.0.1", False),
        ((), "http://127.0.0.1.evil.example", "127.0.0.1", False),
        ((), "http://evil.example", "evil.example", False),  # a name that was made to lead to this machine
        (("https://board.example",), "https://board.example", "127.0.0.1", True),
        (("https://board.example",), "https://Board.Example", "127.0.0.1", True),
        (("https://board.example",), "http://board.example", "127.0.0.1", False),
        (("https://board.example",), "https://board.example:444", "127.0.0.1", False),
        (("https://board.example",), "http://127.0.0.1", "127.0.0.1", True),
        (("*",), "http://evil.example", "127.0.0.1", True),
        (("null",), "null", "127.0.0.1", True),
    ],
)
def test_pages_of_other_sites(allowed: tuple[str, ...], origin: str | None, host: str, opens: bool) -> None:
    async def story() -> bool:
        async with Broker(_config(Listener("ws", port=0, websocket_origins=allowed))) as broker:
            return await _opens(broker.port, origin, host)

    assert play(story()) is opens


@pytest.mark.parametrize("origins", [["http://127.0.0.1", "http://127.0.0.1"], ["//127.0.0.1"]])
def test_what_no_browser_says_opens_nothing(origins: list[str]) -> None:
    """Two origins, of which the second may be the true one, and one without a scheme."""
    assert not Origins(Listener("ws", port=0)).may_connect(origins, "127.0.0.1")
    assert Origins(Listener("ws", port=0)).may_connect(["http://127.0.0.1"], "127.0.0.1")


def test_a_listener_for_the_network_has_names_that_it_does_not_know() -> None:
    async def story() -> None:
        listener = Listener("ws", host="0.0.0.0", port=0)
        async with Broker(_config(listener)) as broker:
            assert await _opens(broker.port, "http://city.example", "city.example")
            assert not await _opens(broker.port, "http://evil.example", "city.example")

    play(story())


# --- certificates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tls", "wss"])
@pytest.mark.parametrize("username", [None, "admin"])
def test_a_certificate_without_a_common_name_opens_nothing(tmp_path: Path, kind: str, username: str | None) -> None:
    """A user name beside it was believed."""
    authority = Authority(tmp_path)
    server, nameless = authority.pair("server", "localhost"), authority.pair("nameless", "")
    listener = Listener(
        kind,  # type: ignore[arg-type]
        port=0,
        cert_file=server.cert,
        key_file=server.key,
        ca_file=authority.file,
        require_certificate=True,
        use_identity_as_username=True,
        allow_anonymous=True,
    )
    tls = ssl.create_default_context(cafile=str(authority.file))
    tls.load_cert_chain(nameless.cert, nameless.key)

    async def story() -> None:
        async with Broker(_config(listener)) as broker:
            client = Client(
                "127.0.0.1",
                broker.port,
                username=username,
                tls=tls,
                transport="tcp" if kind == "tls" else "websocket",
            )
            with pytest.raises(ConnectRefused, match="common name") as refused:
                async with client:
                    pass
            assert refused.value.reason_code == 0x87

    play(story())


# --- access lists -------------------------------------------------------------------------------------------------

ACL = "pattern readwrite home/%c/#\npattern readwrite user/%u/#\npattern read all\nuser ann\ntopic read open/+/x\n"


async def _rights(client: WireClient, *topics: str) -> list[bool]:
    """Of each topic, whether what the client publishes there comes back to it."""
    got = []
    for number, topic in enumerate(topics, start=1):
        client.send(Publish(topic, b"x", qos=1, packet_id=number))
        packet = await client.next()
        got.append(getattr(packet, "reason_code", 0) in (0, 0x10))
    return got


@pytest.mark.parametrize(
    ("client_id", "username", "topics", "wanted"),
    [
        ("c1", "ann", ["home/c1/x", "user/ann/x", "home/c2/x"], [True, True, False]),
        ("c1/cellar", "ann", ["home/c1/cellar/x", "user/ann/x"], [False, True]),
        ("c1", "ann/b", ["home/c1/x", "user/ann/b/x"], [True, False]),
        ("+", "ann", ["home/c1/x", "user/ann/x"], [False, False]),
        ("#", "ann", ["home/c1/x"], [False]),
        ("c1", "+", ["user/ann/x"], [False]),
        ("c1", "#", ["user/ann/x"], [False]),
    ],
)
def test_a_chosen_name_widens_no_pattern(
    tmp_path: Path, client_id: str, username: str, topics: list[str], wanted: list[bool]
) -> None:
    acl = tmp_path / "acl"
    acl.write_text(ACL)

    async def story() -> None:
        auth = Auth(acl_file=acl, allow_anonymous=True)
        async with (
            Broker(_config(Listener(port=0), auth)) as broker,
            wire_client(broker.port, Connect(client_id, username=username)) as client,
        ):
            assert await _rights(client, *topics) == wanted

    play(story())


@pytest.mark.parametrize(("version", "refusal"), [(MQTT5, 0x87), (MQTT311, 0x80)])
def test_subscribe_is_refused_where_nothing_can_be_read(tmp_path: Path, version: int, refusal: int) -> None:
    acl = tmp_path / "acl"
    acl.write_text(ACL + "topic deny open/no/x\nuser bob\ntopic write drop\n")
    filters = {
        "open/a/x": True,
        "open/no/x": False,  # denied
        "open/+/x": True,
        "open/+/y": False,
        "#": True,
        "+": True,  # `all`
        "+/+/x": True,
        "$SYS/#": False,
        "home/c1/#": True,
        "home/c2/#": False,
        "home/#": True,
        "$share/g/open/a/x": True,
        "$share/g/shut": False,
        "shut": False,
    }

    async def story(option: str, wanted: list[int]) -> None:
        auth = Auth(acl_file=acl, allow_anonymous=True, unreadable_filters=option)  # type: ignore[arg-type]
        async with (
            Broker(_config(Listener(port=0), auth)) as broker,
            wire_client(broker.port, Connect("c1", version, username="ann")) as client,
        ):
            client.send(Subscribe(1, [Subscription(filter, 1) for filter in filters]))
            assert (await client.expect(Suback)).reason_codes == wanted

    play(story("refuse", [1 if granted else refusal for granted in filters.values()]))
    play(story("grant", [1] * len(filters)))


# --- what is the broker's own -------------------------------------------------------------------------------------


def test_clients_neither_write_nor_read_what_is_the_brokers_own() -> None:
    async def story() -> None:
        async with (
            Broker(_config(Listener(port=0))) as broker,
            wire_client(broker.port, Connect("c")) as client,
        ):
            assert await _rights(client, "$SYS/x", "$SYS", "$metromq/x", "$metromq", "mine") == [False] * 4 + [True]
            filters = ["$metromq/#", "$metromq", "$share/g/$metromq/#", "#", "+/x"]
            client.send(Subscribe(9, [Subscription(filter, 1) for filter in filters]))
            assert (await client.expect(Suback)).reason_codes == [0x87, 0x87, 0x87, 1, 1]

    play(story())


@pytest.mark.parametrize("client_id", ["$link/b", "$SYS", "$metromq"])
def test_reserved_identifiers_are_refused_before_a_password_is_checked(tmp_path: Path, client_id: str) -> None:
    """Peers are let past the limit of CONNECTs per second; nobody may try passwords on their way in."""
    passwords = tmp_path / "passwords"
    passwords.write_text(f"ann:{hash_password(b'right', b'salt', 1)}\n")

    async def story() -> None:
        async with Broker(_config(Listener(port=0), Auth(password_file=passwords))) as broker:
            for password in ("right", "wrong"):
                client = Client("127.0.0.1", broker.port, identifier=client_id, username="ann", password=password)
                with pytest.raises(ConnectRefused) as refused:
                    async with client:
                        pass
                assert refused.value.reason_code == 0x85

    play(story())
