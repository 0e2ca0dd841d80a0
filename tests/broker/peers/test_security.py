"""Nobody but the city's brokers speaks on a link or on control topics, by secret, by certificate, or by both."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.city_file import city_text, load_city
from metromq.client import Client, MqttError, Will
from metromq.errors import ConfigError
from metromq.federation.city import LinkSecurity
from metromq.federation.links.auth import METHOD, NONCE_BYTES, Dialler
from metromq.federation.links.auth import DialledSide as ProofListener
from metromq.protocol.reasons import CONTINUE_AUTHENTICATION
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, Auth, Connack, Connect, Packet, Properties, Publish
from tests.broker.peers.cities import SECRET, is_joined, memory_broker, memory_city, problem, running, until
from tests.broker.wire_client import WireClient
from tests.certificates import Authority
from tests.peers import play

NONCE = b"n" * NONCE_BYTES


@asynccontextmanager
async def _dialled(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[WireClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield WireClient(reader, writer, MQTT5)
    finally:
        writer.transport.abort()


def _connect(
    client_id: str, method: str | None = None, data: bytes | None = None, journal: str | None = None
) -> Connect:
    return Connect(client_id, MQTT5, username=journal, properties=Properties(auth_method=method, auth_data=data))


def _answer(data: bytes) -> Auth:
    return Auth(CONTINUE_AUTHENTICATION, Properties(auth_method=METHOD, auth_data=data))


async def _refused(client: WireClient, packet: Packet) -> None:
    """The answer is a CONNACK that says no, and then the end."""
    client.send(packet)
    assert (await client.expect(Connack)).reason_code >= 0x80
    assert await client.next() is None


async def _passes(one: Broker, other: Broker) -> None:
    """A message that is published at one broker reaches a subscriber of the other."""
    async with Client("127.0.0.1", other.port) as subscriber, Client("127.0.0.1", one.port) as publisher:
        await subscriber.subscribe("news/#", qos=1)
        assert one.host is not None
        node = one.host.node
        await until(lambda: bool(node.routes.route("news/today").hops))
        await publisher.publish("news/today", b"calm", qos=1)
        message = await anext(aiter(subscriber.messages))
        assert message.payload == b"calm"


# --- the secret ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packet",
    [
        _connect("$link/b10"),
        _connect("$link/b10", METHOD),
        _connect("$link/b10", METHOD, b"short"),
        _connect("$link/nobody", METHOD, NONCE),
        _connect("$link/b00", METHOD, NONCE),
        _connect("b10", METHOD, NONCE),
        _connect("$else/b10"),
    ],
    ids=["no proof", "no nonce", "bad nonce", "not in the file", "itself", "no link's identifier", "reserved"],
)
def test_a_stranger_cannot_open_a_link(packet: Connect) -> None:
    async def story() -> None:
        async with running(memory_city(), "b00") as [broker], _dialled(broker.port) as client:
            await _refused(client, packet)
            assert broker.host is not None
            assert not broker.host.answers.heard

    play(story())


def test_a_proof_of_another_secret_is_refused() -> None:
    async def story() -> None:
        async with running(memory_city(), "b00") as [broker], _dialled(broker.port) as client:
            client.send(_connect("$link/b10", METHOD, NONCE))
            challenge = (await client.expect(Auth)).properties.auth_data or b""
            nonces = NONCE + challenge[:NONCE_BYTES]
            forged = ProofListener(b"another secret here", "b00", "b10", nonces[NONCE_BYTES:]).challenge(NONCE)
            answer = Dialler(b"another secret here", "b10", "b00", NONCE).answer(forged)
            await _refused(client, _answer(answer))

    play(story())


def test_an_overheard_proof_is_worth_nothing_later() -> None:
    async def story() -> None:
        async with running(memory_city(), "b00") as [broker]:
            async with _dialled(broker.port) as peer:
                peer.send(_connect("$link/b10", METHOD, NONCE))
                challenge = (await peer.expect(Auth)).properties.auth_data or b""
                overheard = Dialler(SECRET.encode(), "b10", "b00", NONCE).answer(challenge)
                peer.send(_answer(overheard))
                assert (await peer.expect(Connack)).reason_code == 0
            async with _dialled(broker.port) as client:
                client.send(_connect("$link/b10", METHOD, NONCE))
                await client.expect(Auth)
                await _refused(client, _answer(overheard))

    play(story())


def test_nobody_makes_a_broker_forget_what_it_received_without_a_proof() -> None:
    """The CONNECT of a link names its journal; believed too early, a stranger could have messages delivered twice."""

    async def story() -> None:
        async with running(memory_city(), "b00", "b10") as [broker, peer]:
            await until(lambda: is_joined(peer, "b00"))
            await _passes(peer, broker)
            assert broker.host is not None
            assert peer.member is not None
            inbox = broker.host.inbox
            before = inbox.journal_number("b10")
            assert before == int(peer.member.journal_id, 16)
            async with _dialled(broker.port) as client:
                client.send(_connect("$link/b10", METHOD, NONCE, journal="abc"))
                await client.expect(Auth)
                await _refused(client, _answer(b"no proof"))
            assert inbox.journal_number("b10") == before

    play(story())


def test_brokers_with_different_secrets_do_not_join() -> None:
    async def story() -> None:
        city = memory_city()
        other = dataclasses.replace(city, links=LinkSecurity(secret="the secret of another city"))
        async with memory_broker(city, "b00") as one, memory_broker(other, "b10") as two:
            await until(lambda: "secret" in problem(one, "b10") and "secret" in problem(two, "b00"))
            assert not is_joined(one, "b10")
            assert not is_joined(two, "b00")

    play(story())


def test_clients_cannot_use_control_topics() -> None:
    async def story() -> None:
        async with (
            running(memory_city(), "b00") as [broker],
            Client("127.0.0.1", broker.port, identifier="mallory") as client,
            Client("127.0.0.1", broker.port, identifier="listener") as listener,
        ):
            for topic in ("$metromq/control", "$metromq/batch", "$metromq/session"):
                with pytest.raises(MqttError):
                    await client.publish(topic, b"frame", qos=1)
                await client.publish(topic, b"frame", qos=0)
            for topic_filter in ("$metromq/#", "$metromq/control", "$share/group/$metromq/batch", "$metromq/+"):
                with pytest.raises(MqttError):
                    await listener.subscribe(topic_filter)
            with pytest.raises(MqttError):
                await Client("127.0.0.1", broker.port, will=Will("$metromq/control", b"frame")).connect()
            await listener.subscribe("#")
            await client.publish("calm", b"", qos=1)
            assert (await anext(aiter(listener.messages))).topic == "calm"
            assert broker.host is not None
            assert broker.host.node.counters.frames_in == 0

    play(story())


def test_a_link_carries_nothing_but_batches_and_frames() -> None:
    async def story() -> None:
        async with running(memory_city(), "b00") as [broker], _dialled(broker.port) as client:
            client.send(_connect("$link/b10", METHOD, NONCE))
            challenge = (await client.expect(Auth)).properties.auth_data or b""
            client.send(_answer(Dialler(SECRET.encode(), "b10", "b00", NONCE).answer(challenge)))
            assert (await client.expect(Connack)).reason_code == 0
            client.writer.write(encode(Publish("1/2/temperature", b"21"), MQTT5))
            while await client.next() is not None:
                pass
            assert broker.hub.counters.violations == 1

    play(story())


# --- certificates -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of every broker, of a sensor, and of a broker whose certificate another authority made."""
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory)
    for name in ("b00", "b10", "b20", "b30", "sensor"):
        authority.pair(name, name)
    Authority(directory / "other", "Other CA").pair("b10", "b10")
    return directory


def _tls(directory: Path, name: str, authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    context.check_hostname = False
    context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    return context


@pytest.mark.parametrize("secret", [None, SECRET], ids=["certificates", "both"])
def test_brokers_join_by_certificate(certificates: Path, secret: str | None) -> None:
    async def story() -> None:
        async with running(memory_city(secret, certificates), "b00", "b10") as [one, two]:
            await until(lambda: is_joined(one, "b10") and is_joined(two, "b00"))
            await _passes(one, two)
            await _passes(two, one)

    play(story())


def test_only_a_broker_enters_through_the_door_of_links(certificates: Path) -> None:
    async def story() -> None:
        async with running(memory_city(None, certificates), "b00") as [broker]:
            for name, client_id in (
                ("sensor", "sensor"),
                ("sensor", "$link/b10"),
                ("b10", "$link/b20"),
                ("b10", "b10"),
            ):
                async with _dialled(broker.link_port, _tls(certificates, name, certificates)) as client:
                    await _refused(client, _connect(client_id))
            async with _dialled(broker.link_port, _tls(certificates, "b10", certificates)) as peer:
                peer.send(_connect("$link/b10"))
                assert (await peer.expect(Connack)).reason_code == 0

    play(story())


async def _answer_over(broker: Broker, tls: ssl.SSLContext) -> Packet | None:
    """What a link gets for its CONNECT; with TLS 1.3 a refusal may show only when it reads."""
    try:
        async with _dialled(broker.link_port, tls) as client:
            client.send(_connect("$link/b10"))
            return await client.next()
    except OSError:
        return None


def test_a_certificate_of_another_authority_is_refused(certificates: Path) -> None:
    async def story() -> None:
        async with running(memory_city(None, certificates), "b00") as [broker]:
            assert await _answer_over(broker, _tls(certificates / "other", "b10", certificates)) is None
            assert await _answer_over(broker, _tls(certificates, "b10", certificates)) is not None

    play(story())


@pytest.mark.parametrize("secret", [None, SECRET], ids=["certificates", "both"])
def test_links_do_not_enter_through_the_doors_of_clients(certificates: Path, secret: str | None) -> None:
    async def story() -> None:
        async with running(memory_city(secret, certificates), "b00") as [broker]:
            for method, data in ((None, None), (METHOD, NONCE)):
                async with _dialled(broker.port) as client:
                    await _refused(client, _connect("$link/b10", method, data))

    play(story())


def test_with_both_the_certificate_alone_is_not_enough(certificates: Path) -> None:
    async def story() -> None:
        async with running(memory_city(SECRET, certificates), "b00") as [broker]:
            async with _dialled(broker.link_port, _tls(certificates, "b10", certificates)) as client:
                await _refused(client, _connect("$link/b10"))
            async with _dialled(broker.link_port, _tls(certificates, "b10", certificates)) as client:
                client.send(_connect("$link/b10", METHOD, NONCE))
                await client.expect(Auth)
                await _refused(client, _answer(b"no proof"))

    play(story())


def test_a_broker_does_not_speak_to_one_that_has_another_name(certificates: Path) -> None:
    """b10's address leads to b20: traffic that was turned elsewhere must not be believed."""

    async def story() -> None:
        city = memory_city(None, certificates)
        turned = dataclasses.replace(
            city,
            brokers=tuple(
                dataclasses.replace(spec, link_listen=city.broker("b20").link_listen) if spec.name == "b10" else spec
                for spec in city.brokers
            ),
        )
        async with memory_broker(city, "b20"), memory_broker(turned, "b00") as one:
            await until(lambda: "names b20, not b10" in problem(one, "b10"))
            assert not is_joined(one, "b10")
            await until(lambda: is_joined(one, "b20"))

    play(story())


def test_the_city_file_tells_what_certificates_need(certificates: Path, tmp_path: Path) -> None:
    city = memory_city(None, certificates)
    file = tmp_path / "city.toml"
    file.write_text(city_text(city))
    assert load_city(file).brokers == city.brokers
    assert load_city(file).link_address("b10") != (city.broker("b10").host, city.broker("b10").port)
    file.write_text(city_text(city).replace(f'link_listen = "{city.broker("b00").link_listen}"', ""))
    with pytest.raises(ConfigError, match=r"brokers\[0\].link_listen"):
        load_city(file)
    file.write_text(city_text(memory_city()).replace('link_listen = ""', 'link_listen = "127.0.0.1:1"'))
    with pytest.raises(ConfigError, match="link_listen: needs certificates"):
        load_city(file)


def test_a_broker_without_its_certificate_says_which_file_it_wants(certificates: Path, tmp_path: Path) -> None:
    city = memory_city(None, certificates)
    assert city.links.ca_file is not None
    links = dataclasses.replace(city.links, cert_file=tmp_path / "{name}.crt")

    async def story() -> None:
        with pytest.raises(ConfigError, match=r"links.cert_file.*b00\.crt"):
            async with memory_broker(dataclasses.replace(city, links=links), "b00"):
                pass

    play(story())
