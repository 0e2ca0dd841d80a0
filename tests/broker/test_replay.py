"""Replays of one broker: over a subscription, and as records; who may, and what is said when it cannot be."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.broker.replaying import gate
from metromq.client import Client, Fetcher, FetchPlace, MqttError
from metromq.config import Auth, Config, JournalConfig, Listener, ReplayConfig
from metromq.moments import text_of
from metromq.protocol.replay import FetchRequest
from metromq.protocol.session.records import decode_message

pytestmark = pytest.mark.timeout(60)
TOPIC = "city/air"


def config(directory: Path, **changes: object) -> Config:
    settings: dict[str, object] = {
        "name": "b1",
        "data_dir": directory,
        "listeners": (Listener(port=0),),
        "replay": ReplayConfig(enabled=True),
    }
    return Config(**{**settings, **changes})  # type: ignore[arg-type]


async def publish(port: int, texts: list[str], topic: str = TOPIC, qos: int = 1, **options: object) -> None:
    async with Client("127.0.0.1", port, **options) as client:  # type: ignore[arg-type]
        for text in texts:
            await client.publish(topic, text, qos)


async def take(client: Client, count: int) -> list[str]:
    async with asyncio.timeout(20):
        return [(await anext(client.messages)).payload.decode() for _ in range(count)]


@asynccontextmanager
async def fetcher(port: int, **options: str) -> AsyncIterator[Fetcher]:
    made = Fetcher(FetchPlace("127.0.0.1", port, **options))  # type: ignore[arg-type]
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def test_old_messages_then_live_ones(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            await publish(broker.port, [str(number) for number in range(2000)])
            await publish(broker.port, ["other"], "city/noise")
            async with Client("127.0.0.1", broker.port) as client:
                assert await client.subscribe(f"$replay/since/1h/{TOPIC}", 1) == (0,)
                live = asyncio.create_task(publish(broker.port, [str(number) for number in range(2000, 4000)]))
                got = await take(client, 4000)
                assert got == [str(number) for number in range(4000)]
                await live
                await publish(broker.port, ["at QoS 0"], qos=0)
                assert await take(client, 1) == ["at QoS 0"]
                await client.unsubscribe(f"$replay/since/1h/{TOPIC}")
                await publish(broker.port, ["nobody listens"])
                await client.subscribe("end")
                await publish(broker.port, ["end"], "end")
                assert await take(client, 1) == ["end"]

    asyncio.run(story())


def test_a_broker_that_serves_a_replay_does_not_stay_awake(tmp_path: Path) -> None:
    """Its process that reads needs the cores; a second later everything is as before."""

    def awake(broker: Broker, after_s: float) -> bool:
        now = broker.cycle.clock() + after_s
        return [broker.cycle.vigil.after_turn(now + n / 2000, now + n / 2000) for n in range(400)][-1] > 0

    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            await publish(broker.port, ["old"])
            assert awake(broker, 0.0)
            async with fetcher(broker.port) as reader:
                assert len((await reader.fetch(FetchRequest())).bodies_list()) == 1
            assert not awake(broker, 0.0)
            assert awake(broker, 1.0)

    asyncio.run(story())


def test_each_message_says_what_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            await publish(broker.port, ["old"])
            async with Client("127.0.0.1", broker.port) as client:
                await client.subscribe("$replay/since/offset:0/#")
                old = await anext(client.messages)
                await publish(broker.port, ["new"])
                new = await anext(client.messages)
        assert [dict(one.properties.user)["metromq-id"] for one in (old, new)] == ["b1/0", "b1/1"]
        times = [dict(one.properties.user)["metromq-time"] for one in (old, new)]
        assert times == sorted(times)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("changes", "name", "code", "words"),
    [
        ({"replay": ReplayConfig()}, "$replay/since/1h/#", 0x87, "set enabled = true under"),
        ({}, "$replay/since/yesterday/#", 0x8F, "write an age"),
        ({}, "$replay/since/1h", 0x8F, "lacks something"),
        ({}, "$replay/since/1h/$share/g/a", 0x8F, "leave $share"),
    ],
)
def test_a_refusal_says_why(tmp_path: Path, changes: dict[str, object], name: str, code: int, words: str) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, **changes)) as broker, Client("127.0.0.1", broker.port) as client:
            with pytest.raises(MqttError) as refused:
                await client.subscribe(name)
            assert refused.value.reason_code == code
            assert words in str(refused.value)

    asyncio.run(story())


def test_records_are_fetched_as_they_were_written(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            await publish(broker.port, [str(number) for number in range(300)])
            async with fetcher(broker.port) as client:
                answer = await client.fetch(FetchRequest(10, 250, max_bytes=2000))
                found = answer.bodies_list()
                assert (answer.broker, answer.first, answer.end, answer.code) == ("b1", 0, 300, "")
                while answer.next < 250:
                    answer = await client.fetch(FetchRequest(answer.next, 250, journal=answer.journal))
                    found += answer.bodies_list()
                assert [offset for offset, _ in found] == list(range(10, 250))
                assert [decode_message(body).message.payload for _, body in found] == [
                    str(number).encode() for number in range(10, 250)
                ]
                wrong = await client.fetch(FetchRequest(0, journal="none"))
                assert wrong.code == "journal"

    asyncio.run(story())


def test_fetching_is_off_by_default(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, replay=ReplayConfig())) as broker, fetcher(broker.port) as client:
            answer = await client.fetch(FetchRequest(0))
            assert answer.code == "off"
            assert "[replay]" in answer.error

    asyncio.run(story())


ACL = "user all\ntopic read #\ntopic write $replay/fetch\ntopic read $replay/since\n"
ACL += "user some\ntopic read city/#\ntopic read $replay/since\nuser none\ntopic read #\nuser pen\ntopic write #\n"


def test_the_access_list_decides(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(ACL)
    auth = Auth(acl_file=tmp_path / "acl", allow_anonymous=True)

    async def story() -> None:
        async with Broker(config(tmp_path / "data", auth=auth)) as broker:
            broker.access._own_authenticator = Everyone()  # type: ignore[assignment]
            await publish(broker.port, ["secret"], "vault/code", username="pen")
            await publish(broker.port, ["open"], username="pen")
            async with Client("127.0.0.1", broker.port, username="none") as client:
                with pytest.raises(MqttError, match="topic read"):
                    await client.subscribe("$replay/since/1h/#")
            async with fetcher(broker.port, username="some") as client:
                answer = await client.fetch(FetchRequest(0))
                assert (answer.code, answer.lengths) == ("denied", b"")
            async with fetcher(broker.port, username="all") as client:
                assert len((await client.fetch(FetchRequest(0))).bodies_list()) == 2
            async with Client("127.0.0.1", broker.port, username="some") as client:
                await client.subscribe("$replay/since/1h/#")
                await publish(broker.port, ["secret too"], "vault/code", username="pen")
                await publish(broker.port, ["last"], username="pen")
                assert await take(client, 2) == ["open", "last"]

    asyncio.run(story())


class Everyone:
    """Lets everybody in under the name they give."""

    def connect(self, request: object) -> object:
        from metromq.broker.auth import Accept

        return Accept(request.username or "")  # type: ignore[attr-defined]


def test_what_retention_removed_is_told(tmp_path: Path) -> None:
    journal = JournalConfig(segment_bytes=1 << 16, keep_bytes=1 << 16, snapshot_bytes=1 << 16)

    async def story() -> None:
        async with Broker(config(tmp_path, journal=journal)) as broker:
            begun = text_of(broker.hub.clock.wall_us - 60_000_000)
            async with Client("127.0.0.1", broker.port) as writer:
                while "00000001-" in "".join(path.name for path in (tmp_path / "journal").iterdir()):
                    for _ in range(50):
                        await writer.publish(TOPIC, "x" * 1000, 1)
                    await asyncio.sleep(0.1)
            for start, words in ((begun, "retention removed older ones"), ("offset:0", "offsets 0 to")):
                async with Client("127.0.0.1", broker.port) as client:
                    await client.subscribe(f"$replay/since/{start}/#")
                    async with asyncio.timeout(20):
                        notice = await anext(client.messages)
                    assert notice.topic == "$replay/notice"
                    assert words in notice.payload.decode()

    asyncio.run(story())


def test_too_many_live_messages_are_read_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a replay begins again as long as more comes than may wait."""
    holds: list[gate.Following] = []
    hold = gate.Following.hold

    def overflowing(following: gate.Following) -> None:
        hold(following)
        holds.append(following)
        if len(holds) < 3:
            following.stage = gate.Stage.OVERFLOWN

    monkeypatch.setattr(gate.Following, "hold", overflowing)

    async def story() -> None:
        async with Broker(config(tmp_path)) as broker, Client("127.0.0.1", broker.port) as client:
            texts = [str(number) for number in range(3000)]
            await publish(broker.port, texts[:1000])
            await client.subscribe(f"$replay/since/1h/{TOPIC}")
            live = asyncio.create_task(publish(broker.port, texts[1000:]))
            assert await take(client, 3000) == texts
            await live
            while not holds or holds[-1].stage is not gate.Stage.LIVE:
                await publish(broker.port, ["more"])
                assert await take(client, 1) == ["more"]
            await publish(broker.port, ["last"])
            assert await take(client, 1) == ["last"]

    asyncio.run(story())
    assert len(holds) == 3


def test_the_process_that_reads_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            await publish(broker.port, ["kept"])
            async with fetcher(broker.port) as client:
                assert (await client.fetch(FetchRequest(0))).end == 1
                reading = broker._desk._process._process  # type: ignore[union-attr]
                assert reading is not None
                os.kill(reading.pid, signal.SIGSTOP)  # so that the request waits
                await client.ask(FetchRequest(0))
                async with Client("127.0.0.1", broker.port) as other:
                    await other.subscribe("$replay/since/1h/#")
                    os.kill(reading.pid, signal.SIGKILL)
                    with pytest.raises(MqttError, match="the replay broke off"):
                        await anext(other.messages)
                assert (await client.answer()).code == "busy"
                assert len((await client.fetch(FetchRequest(0))).bodies_list()) == 1

    asyncio.run(story())


def test_a_client_that_does_not_read_is_waited_for(tmp_path: Path) -> None:
    """Bounded in the broker: what it has not taken stays in the journal."""

    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            texts = [f"{number} " + "x" * 5000 for number in range(3000)]
            await publish(broker.port, texts)
            async with Client("127.0.0.1", broker.port, max_queued_messages=100) as client:
                await client.subscribe(f"$replay/since/1h/{TOPIC}")
                await asyncio.sleep(2)
                assert broker.cycle.held_bytes < 2 << 20
                assert await take(client, 3000) == texts

    asyncio.run(story())
