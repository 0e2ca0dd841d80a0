"""A replay and the session that asked for it: it takes nothing from the session, and leaves nothing in it."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.client import Client, Message, MqttError
from metromq.config import JournalConfig, ReplayConfig
from tests.broker.test_replay import config, publish, take

pytestmark = pytest.mark.timeout(60)
FILTER = "0/#"
REPLAY = f"$replay/since/1h/{FILTER}"
TOPIC = "0/1"
NO_SUBSCRIPTION_EXISTED = 0x11


def told(directory: Path, story: Callable[[Broker, Client], Awaitable[None]], **changes: object) -> None:
    """A story of a broker and a client with a session that is kept."""

    async def run() -> None:
        async with Broker(config(directory, **changes)) as broker, reader(broker) as client:
            await story(broker, client)

    asyncio.run(run())


def reader(broker: Broker, clean_start: bool = False, **options: object) -> Client:
    return Client(
        "127.0.0.1",
        broker.port,
        identifier="reader",
        clean_start=clean_start,
        session_expiry_s=3600,
        **options,  # type: ignore[arg-type]
    )


async def one(client: Client) -> Message:
    async with asyncio.timeout(20):
        return await anext(client.messages)


async def nothing_more(broker: Broker, client: Client) -> bool:
    """Whether nothing comes before a message that was published last."""
    await client.subscribe("end", 1)
    await publish(broker.port, ["end"], "end")
    return await take(client, 1) == ["end"]


async def until_live(broker: Broker) -> None:
    """Until the replay has sent all that is old."""
    assert broker._desk is not None
    async with asyncio.timeout(20):
        while broker._desk._streams:
            await asyncio.sleep(0.01)


def id_of(message: Message) -> str:
    return dict(message.properties.user).get("metromq-id", "")


def test_a_filter_that_the_session_has_is_not_replayed(tmp_path: Path) -> None:
    async def story(broker: Broker, client: Client) -> None:
        await client.subscribe(FILTER, 1)
        with pytest.raises(MqttError, match="client identifier of its own") as refused:
            await client.subscribe(REPLAY)
        assert refused.value.reason_code == 0x83
        assert await client.unsubscribe(REPLAY) == (NO_SUBSCRIPTION_EXISTED,)
        await publish(broker.port, ["live"], TOPIC)
        message = await one(client)
        assert (message.payload, message.qos) == (b"live", 1)

    told(tmp_path, story)


def test_a_filter_that_the_session_replays_is_not_replayed_from_elsewhere(tmp_path: Path) -> None:
    """Neither would know which of them a live message is for, and one that ends would end the other."""

    async def story(broker: Broker, client: Client) -> None:
        await publish(broker.port, ["old"], TOPIC)
        await client.subscribe(REPLAY)
        with pytest.raises(MqttError, match="replays 0/# already"):
            await client.subscribe(f"$replay/since/2h/{FILTER}")
        await until_live(broker)
        await client.subscribe(REPLAY)  # the same again: from the beginning
        await until_live(broker)
        await publish(broker.port, ["live"], TOPIC)
        assert await take(client, 3) == ["old", "old", "live"]
        assert await client.unsubscribe(REPLAY) == (0,)
        await publish(broker.port, ["for nobody"], TOPIC)
        assert await nothing_more(broker, client)

    told(tmp_path, story)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("is_live", [False, True])
def test_a_plain_subscription_holds(tmp_path: Path, qos: int, is_live: bool) -> None:
    """Whatever the replay is at: from SUBSCRIBE on live messages come by it, and the end of the replay leaves it."""

    async def story(broker: Broker, client: Client) -> None:
        await publish(broker.port, ["old"], TOPIC)
        await client.subscribe(REPLAY, identifier=3)
        if is_live:
            await until_live(broker)
        await client.subscribe(FILTER, qos, identifier=4)
        await publish(broker.port, ["live"], TOPIC)
        await until_live(broker)
        assert await client.unsubscribe(REPLAY) == (0,)
        await publish(broker.port, ["after"], TOPIC)
        found = [await one(client)]
        while found[-1].payload != b"after":
            found.append(await one(client))
        own = [message for message in found if not id_of(message)]
        assert [message.payload for message in own] == [b"live", b"after"]
        assert {message.qos for message in own} == {qos}
        assert {message.properties.subscription_identifiers for message in own} == {(4,)}
        replayed = [message.payload for message in found if id_of(message)]
        assert replayed in ([b"old"], [b"old", b"live"])
        assert await client.unsubscribe(FILTER) == (0,)
        await publish(broker.port, ["for nobody"], TOPIC)
        assert await nothing_more(broker, client)

    told(tmp_path, story)


def test_a_plain_subscription_beside_a_replay_gets_what_is_retained(tmp_path: Path) -> None:
    """It is the session's first, though the replay has had the filter before."""

    async def story(broker: Broker, client: Client) -> None:
        await client.subscribe(REPLAY)
        await until_live(broker)
        async with Client("127.0.0.1", broker.port) as writer:
            await writer.publish(TOPIC, "state", 1, retain=True)
        assert id_of(await one(client))
        await client.subscribe(FILTER, 1, retain_handling=1)
        message = await one(client)
        assert (message.payload, message.retain) == (b"state", True)

    told(tmp_path, story)


def test_a_wider_replay_leaves_what_the_session_has(tmp_path: Path) -> None:
    """Live messages of its own subscription neither wait for the replay nor end with it."""

    async def story(broker: Broker, client: Client) -> None:
        await client.subscribe(TOPIC, 0)
        await client.subscribe(REPLAY)
        await publish(broker.port, ["live"], TOPIC)
        message = await one(client)
        assert (message.payload, id_of(message)) == (b"live", "")
        assert await client.unsubscribe(REPLAY) == (0,)
        await publish(broker.port, ["after"], TOPIC)
        while message.payload != b"after":
            message = await one(client)

    told(tmp_path, story)


def test_the_plain_filter_of_a_replay_is_no_subscription(tmp_path: Path) -> None:
    async def story(broker: Broker, client: Client) -> None:
        await client.subscribe(REPLAY)
        assert await client.unsubscribe(FILTER) == (NO_SUBSCRIPTION_EXISTED,)
        await publish(broker.port, ["live"], TOPIC)
        assert await take(client, 1) == ["live"]

    told(tmp_path, story)


@pytest.mark.parametrize("goodbye", [True, False])
def test_a_replay_ends_with_its_connection(tmp_path: Path, goodbye: bool) -> None:
    async def story(broker: Broker, client: Client) -> None:
        await client.subscribe("1/#", 1)
        await client.subscribe(REPLAY)
        await until_live(broker)
        if goodbye:
            await client.disconnect()
        async with reader(broker) as again:  # without goodbye it takes the session from the other
            assert again.session_present
            assert await again.unsubscribe(REPLAY) == (NO_SUBSCRIPTION_EXISTED,)
            await publish(broker.port, ["for nobody"], TOPIC)
            await publish(broker.port, ["own"], "1/1")
            assert await take(again, 1) == ["own"]
            await again.subscribe(REPLAY)
            assert await take(again, 1) == ["for nobody"]

    told(tmp_path, story)


@pytest.mark.parametrize("snapshot", [True, False])
def test_a_replay_does_not_come_back_with_the_broker(tmp_path: Path, snapshot: bool) -> None:
    """The broker is killed, that is, another one begins with the files as they are while the client is connected."""
    journal = JournalConfig(snapshot_bytes=1 << 16)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(Broker(config(tmp_path / "one", journal=journal)))
            client = await stack.enter_async_context(reader(broker))
            await client.subscribe("1/#", 1)
            await client.subscribe(REPLAY)
            await until_live(broker)
            if snapshot:
                await publish(broker.port, ["x" * 1000] * 100, "other")
                async with asyncio.timeout(20):
                    while not list((tmp_path / "one").rglob("*.snap")):
                        await asyncio.sleep(0.05)
            shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns("lock*"))
        async with Broker(config(tmp_path / "two", journal=journal)) as broker, reader(broker) as client:
            assert client.session_present
            await publish(broker.port, ["for nobody"], TOPIC)
            await publish(broker.port, ["own"], "1/1")
            assert await take(client, 1) == ["own"]

    asyncio.run(story())


def test_shared_replays_are_refused(tmp_path: Path) -> None:
    async def story(broker: Broker, client: Client) -> None:
        with pytest.raises(MqttError, match=r"leave \$share/GROUP/ out") as refused:
            await client.subscribe(f"$share/g/{REPLAY}")
        assert refused.value.reason_code == 0x8F

    told(tmp_path, story)


def test_more_replays_at_once_than_may_be_are_refused(tmp_path: Path) -> None:
    """Only while old messages are sent: who is live costs no more than any subscriber."""

    async def story(broker: Broker, client: Client) -> None:
        await publish(broker.port, [f"{number} " + "x" * 20_000 for number in range(1000)], TOPIC)
        async with Client("127.0.0.1", broker.port, max_queued_messages=1) as slow:
            await slow.subscribe(REPLAY)
            with pytest.raises(MqttError, match="1 replays are under way at this broker already") as refused:
                await client.subscribe(REPLAY)
            assert refused.value.reason_code == 0x97
            await take(slow, 1000)
            await until_live(broker)
            await client.subscribe(REPLAY)
            await publish(broker.port, ["live"], TOPIC)
            assert await take(slow, 1) == ["live"]

    told(tmp_path, story, replay=ReplayConfig(enabled=True, max_clients=1))


def test_a_request_that_cannot_be_answered_ends_the_connection(tmp_path: Path) -> None:
    async def story(broker: Broker, client: Client) -> None:
        with pytest.raises(MqttError, match="needs a Response Topic") as ended:
            await client.publish("$replay/fetch", "{}", 1)
        assert ended.value.reason_code == 0x82

    told(tmp_path, story)
