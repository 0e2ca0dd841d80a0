"""Plays a story on live brokers, with the same verbs and the same judgement as the simulator."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from metromq.client import Client, MqttError, Will
from metromq.federation.city import grid_city
from metromq.lab.scenario import StoryStep, areas_of, judge_delivery, judge_share, payloads, play
from tests.scenarios.city import LiveCity, live_city, move_area, undo

LONGEST_WAIT_S = (
    4.0  # stories wait for takeovers, and sometimes longer to make a point that virtual time makes for free
)
KEPT_S = 3600


class LiveClient:
    """A client of the story: reads all the time, keeps what it got over all its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[str] = []
        self.read = 0
        self._client: Client | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, port: int, keeps: bool, will: tuple[str, str] | None) -> None:
        await self.stop()
        self._client = Client(
            "127.0.0.1",
            port,
            identifier=self.name,
            clean_start=not keeps,
            session_expiry_s=KEPT_S if keeps else 0,
            will=Will(will[0], will[1].encode(), 1) if will else None,
            timeout_s=30.0,
        )
        await self._client.connect()
        self._reading = asyncio.create_task(self._read(self._client))

    async def _read(self, client: Client) -> None:
        try:
            async for message in client.messages:
                self.got.append(bytes(message.payload).decode())
        except MqttError:
            pass  # taken over, or the broker was killed

    @property
    def client(self) -> Client:
        assert self._client is not None, f"{self.name} is not connected"
        return self._client

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.disconnect()
        if self._reading is not None:
            await self._reading
        self._client = self._reading = None

    async def vanish(self) -> None:
        self.client.abort()
        await self.stop()


class LiveStage:
    def __init__(self, city: LiveCity) -> None:
        self._city = city
        self._clients: dict[str, LiveClient] = {}
        self.verbs: Mapping[str, Callable[[Mapping[str, str]], None]] = {
            "city": lambda words: None,
            "connects": self._connects,
            "is_refused": self._is_refused,
            "subscribes": self._subscribes,
            "unsubscribes": self._unsubscribes,
            "publishes": self._publishes,
            "clears": lambda words: self._publish(words, "", True),
            "disconnects": lambda words: city.run(self._clients[words["client"]].stop()),
            "vanishes": lambda words: city.run(self._clients[words["client"]].vanish()),
            "kill": lambda words: city.kill(words["broker"]),
            "start": lambda words: city.start(words["broker"]),
            "pause": lambda words: city.pause(words["broker"]),
            "resume": lambda words: city.resume(words["broker"]),
            "split": lambda words: city.split(words["brokers"].split()),
            "cut": lambda words: city.cut(words["one"], words["other"]),
            "heal": lambda words: city.heal(),
            "move": lambda words: city.change(words["broker"], partial(move_area, words["area"], words["home"])),
            "join": lambda words: city.join(words["newcomer"], words["broker"], areas_of(words)),
            "leaves": lambda words: city.leave(words["broker"]),
            "drain": lambda words: city.drain(words["broker"]),
            "route": lambda words: city.route(words["broker"], words["routing"]),
            "undo": lambda words: city.change(words["broker"], undo),
            "wait": lambda words: city.run(asyncio.sleep(min(float(words["seconds"]), LONGEST_WAIT_S))),
            "settle": lambda words: city.settle(),
            "expect_nothing": self._expect_nothing,
            "expect_gets": lambda words: judge_delivery(self._news([words["client"]], words)[0], words),
            "expect_share": lambda words: judge_share(self._news(words["clients"].split(" and "), words), words),
            "expect_owner": self._expect_owner,
            "expect_tables": lambda words: city.settle(),
        }

    def close(self) -> None:
        for client in self._clients.values():
            self._city.run(client.stop())

    def _connects(self, words: Mapping[str, str]) -> None:
        topic, _, payload = words.get("will", "").partition(" ")
        client = self._clients.setdefault(words["client"], LiveClient(words["client"]))
        port = self._city.ports[words["broker"]]
        self._city.run(client.connect(port, "keeps" in words, (topic, payload) if topic else None))

    def _is_refused(self, words: Mapping[str, str]) -> None:
        intruder = Client(
            "127.0.0.1",
            self._city.ports[words["broker"]],
            identifier=words["owner"],
            username=words["client"],
            clean_start="clean" in words,
            session_expiry_s=KEPT_S,
        )
        said = "was let in"
        try:
            self._city.run(intruder.connect())
            self._city.run(intruder.disconnect())
        except MqttError as error:
            said = str(error)
        assert "another user" in said, said

    def _subscribes(self, words: Mapping[str, str]) -> None:
        client = self._clients[words["client"]].client
        self._city.run(client.subscribe(words["filter"], qos=int(words.get("qos", "0"))))

    def _unsubscribes(self, words: Mapping[str, str]) -> None:
        self._city.run(self._clients[words["client"]].client.unsubscribe(words["filter"]))

    def _publishes(self, words: Mapping[str, str]) -> None:
        for payload in payloads(words["payloads"]):
            self._publish(words, payload, "retained" in words)

    def _publish(self, words: Mapping[str, str], payload: str, retain: bool) -> None:
        qos = int(words.get("qos", "0")) if payload else 1
        client = self._clients[words["client"]].client
        self._city.run(client.publish(words["topic"], payload, qos=qos, retain=retain))

    def _news(self, names: list[str], words: Mapping[str, str]) -> list[list[str]]:
        """What the clients got since the last expectation; waits for as much as the story expects."""
        clients = [self._clients[name] for name in names]
        wanted = set(payloads(words["payloads"]))

        def is_there() -> bool:
            return wanted <= {payload for client in clients for payload in client.got[client.read :]}

        try:
            self._city.wait_until(is_there)
        except AssertionError:
            pass  # the judge says what is missing
        news: list[list[str]] = []
        for client in clients:
            news.append(client.got[client.read :])
            client.read = len(client.got)
        return news

    def _expect_nothing(self, words: Mapping[str, str]) -> None:
        client = self._clients[words["client"]]
        news, client.read = client.got[client.read :], len(client.got)
        assert not news, f"got {news}"

    def _expect_owner(self, words: Mapping[str, str]) -> None:
        owners: set[str] = set()

        def is_agreed() -> bool:
            owners.clear()
            owners.update(self._city.ask(name).owners[words["area"]] for name in self._city.running)
            return owners == {words["broker"]}

        try:
            self._city.wait_until(is_agreed)
        except AssertionError:
            raise AssertionError(f"brokers say {sorted(owners)}") from None


def play_live(steps: tuple[StoryStep, ...], data: Path) -> None:
    words = steps[0].words
    city = grid_city(words["routing"], count=int(words["count"]), hello_interval_ms=300)
    with live_city(city, data) as live:
        stage = LiveStage(live)
        try:
            play(steps, stage)
        finally:
            stage.close()
