"""Whose session it is, in cities of live brokers, at the moments when the directory is silent or pieces come late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from metromq.broker import Broker
from metromq.client import Client
from metromq.errors import ConnectionLost, ConnectRefused
from metromq.federation.host.session_parcels import COMPLETE, FIRST, TOPIC, Piece, encode_piece
from metromq.protocol.session.message import Message
from metromq.protocol.session.seen_ids import SeenIds
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, Connack, Connect, Properties
from tests.broker.peers.cities import is_joined, memory_city, running, until
from tests.broker.wire_client import WireClient
from tests.peers import play

NAMES = ("b00", "b10", "b20", "b30")


@asynccontextmanager
async def city() -> AsyncIterator[list[Broker]]:
    async with running(memory_city(), *NAMES) as brokers:
        pairs = [(broker, peer) for broker in brokers for peer in NAMES if peer != broker.config.name]
        await until(lambda: all(is_joined(broker, peer) for broker, peer in pairs))
        yield brokers


def kept_by(brokers: list[Broker], keeper: str) -> str:
    """A client identifier whose directory is the named broker."""
    host = brokers[0].host
    assert host is not None
    return next(name for name in map(str, range(1000)) if host.node.directory.keeper_of(name) == keeper)


def enters(port: int, client_id: str, user: str | None, clean: bool = False) -> Client:
    return Client("127.0.0.1", port, identifier=client_id, username=user, clean_start=clean, session_expiry_s=600)


def connect(client_id: str, user: str | None, clean: bool = False) -> Connect:
    properties = Properties()
    properties.session_expiry_s = 600
    return Connect(client_id, 5, clean, 0, user, None, None, properties)


@asynccontextmanager
async def wire_client(port: int) -> AsyncIterator[WireClient]:
    """A connection that has said nothing yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield WireClient(reader, writer, MQTT5)
    finally:
        writer.close()


async def answer(port: int, client_id: str, user: str | None, clean: bool = False) -> int:
    async with wire_client(port) as client:
        client.send(connect(client_id, user, clean))
        return (await client.expect(Connack)).reason_code


def has(broker: Broker, client_id: str) -> bool:
    assert broker.host is not None
    return broker.host.node.directory.has(client_id)


def test_an_intruder_that_a_silent_directory_let_in_leaves_when_it_speaks_again() -> None:
    """It gets a session of its own, nothing of the owner's, and the owner keeps the identifier."""

    async def story() -> None:
        async with city() as brokers:
            one, other, _, keeper = brokers
            client_id = kept_by(brokers, "b30")
            async with enters(one.port, client_id, "ann") as owner:
                await owner.subscribe("t", qos=1)
                await keeper.stop()  # the others have not noticed yet
                intruder = Client("127.0.0.1", other.port, identifier=client_id, username="eve", session_expiry_s=600)
                try:
                    # It may be refused if the directory is missed in time, or have to leave before it can say anything.
                    with suppress(ConnectRefused, ConnectionLost):
                        await intruder.connect()
                        await intruder.publish("t", b"still here", qos=1)
                        assert (await anext(aiter(owner.messages))).payload == b"still here"
                    await until(lambda: client_id not in other.hub.sessions.by_client_id)
                finally:
                    await intruder.disconnect()
                assert client_id in one.hub.sessions.by_client_id
                await owner.publish("x", b"", qos=1)
                assert await answer(other.port, client_id, "eve") == 0x85

    play(story())


def test_a_piece_of_a_session_is_taken_by_its_owner_only() -> None:
    async def story() -> None:
        async with running(memory_city(), "b00") as [broker], enters(broker.port, "a", "eve") as _:
            assert broker.host is not None
            session = broker.hub.sessions.by_client_id["a"]
            for owner, opened_us in (("ann", 1), ("", 1), ("eve", 2)):
                piece = Piece("a", 1, FIRST | COMPLETE, owner, 1, 0, opened_us, 0, 600, seen=SeenIds().pack())
                broker.host.roaming.arrived("b10", Message(TOPIC, encode_piece(piece), 1))
                assert session.roamed == (owner == "eve")
                assert (session.opened_us == 2) == (owner == "eve")

    play(story())


def test_a_connect_that_is_given_up_leaves_no_claim() -> None:
    """Else a client that never came in would keep the identifier from everybody else."""

    async def story() -> None:
        async with city() as brokers:
            one, other, *_ = brokers
            client_id = kept_by(brokers, "b20")
            for _ in range(5):
                _, writer = await asyncio.open_connection("127.0.0.1", one.port)
                writer.write(encode(connect(client_id, "eve"), 5))
                await writer.drain()
                writer.transport.abort()
            await until(lambda: not has(one, client_id) and client_id not in one.hub.sessions.by_client_id)

            async def is_free() -> bool:
                return await answer(other.port, client_id, "ann") == 0

            while not await is_free():
                await asyncio.sleep(0.01)

    play(story())


def test_a_clean_start_keeps_its_claim() -> None:
    """The old session ends here while the new one begins: the city must still know where the client is."""

    async def story() -> None:
        async with city() as brokers:
            one, other, *_ = brokers
            client_id = kept_by(brokers, "b20")
            async with enters(one.port, client_id, "ann"):
                pass
            async with enters(one.port, client_id, "ann", True) as owner:
                assert has(one, client_id)
                assert await answer(other.port, client_id, "eve") == 0x85
                await owner.publish("x", b"", qos=1)

    play(story())


def test_an_assigned_identifier_is_its_users_in_the_whole_city() -> None:
    async def story() -> None:
        async with city() as brokers:
            one, other, *_ = brokers
            properties = Properties()
            properties.session_expiry_s = 600
            async with wire_client(one.port) as client:
                client.send(Connect("", 5, True, 0, "ann", None, None, properties))
                assigned = (await client.expect(Connack)).properties.assigned_client_id
                assert assigned is not None
            assert await answer(other.port, assigned, "eve") == 0x85
            async with enters(other.port, assigned, "ann"):
                await until(lambda: assigned in other.hub.sessions.by_client_id)

    play(story())


def test_an_intruder_that_is_still_waiting_does_not_keep_the_owner_out() -> None:
    """Both knock at once at a broker that must first ask; the session is elsewhere."""

    async def story() -> None:
        async with city() as brokers:
            one, other, *_ = brokers
            client_id = kept_by(brokers, "b20")
            async with enters(other.port, client_id, "ann") as owner:
                await owner.subscribe("t", qos=1)
            places = [one, other]
            for turn in range(10):
                port = places[turn % 2].port
                async with wire_client(port) as eve, wire_client(port) as ann, wire_client(port) as nobody:
                    eve.send(connect(client_id, "eve", turn % 4 > 1))
                    nobody.send(connect(client_id, None))
                    ann.send(connect(client_id, "ann"))
                    connack = await ann.expect(Connack)
                    assert (connack.reason_code, connack.session_present) == (0, True)
                    assert (await eve.expect(Connack)).reason_code == 0x85
                    assert (await nobody.expect(Connack)).reason_code == 0x85

    play(story(), 60)
