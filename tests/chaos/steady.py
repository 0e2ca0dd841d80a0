"""Steady traffic on nine live brokers under kills, freezes and cuts: many messages, each of them counted."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from metromq.client import Client, MqttError
from metromq.federation import grid_city
from tests.scenarios.city import LiveCity, live_city

BROKERS = 9
PUBLISHERS = 6
SUBSCRIBERS = 5
PAUSE_S = 0.02  # between two messages of one publisher
KEPT_S = 3600
AREAS = ("0/0", "1/1", "2/2", "3/3", "1/3")


@dataclass(slots=True)
class Verdict:
    """What the storm showed; `problems` is empty when every promise was kept."""

    acknowledged: Counter[int] = field(default_factory=Counter)  # by QoS
    delivered: Counter[int] = field(default_factory=Counter)
    repeated: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    between: int = 0  # messages sent over links
    problems: list[str] = field(default_factory=list)


class StormClient:
    """Stays with its broker and comes back to it with the same session."""

    def __init__(self, city: LiveCity, name: str, broker: str) -> None:
        self.city = city
        self.name = name
        self.broker = broker
        self.client = Client(
            "127.0.0.1",
            1,
            identifier=name,
            clean_start=False,
            session_expiry_s=KEPT_S,
            keepalive_s=5,
            timeout_s=5.0,
            max_inflight=50,
        )

    async def connect(self) -> None:
        while True:
            self.client.port = self.city.ports[self.broker]
            try:
                await self.client.connect()
                return
            except (MqttError, OSError):
                await asyncio.sleep(0.1)


class Publisher(StormClient):
    """Numbers its messages; what it got an acknowledgement for is on its list."""

    def __init__(self, city: LiveCity, name: str, broker: str, topic: str, qos: int) -> None:
        super().__init__(city, name, broker)
        self.topic = topic
        self.qos = qos
        self.acknowledged: list[str] = []
        self._unsettled: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        await self.connect()
        while not stop.is_set():
            if not self.client.is_connected:
                await self.connect()
            number += 1
            text = f"{self.name}:{number}"
            task = asyncio.create_task(self._publish(text))
            self._unsettled[text] = task
            task.add_done_callback(lambda _, text=text: self._unsettled.pop(text, None))  # type: ignore[misc]
            await asyncio.sleep(PAUSE_S if len(self._unsettled) < 40 else 0.2)

    async def _publish(self, text: str) -> None:
        """A message whose connection broke stays in the client's session, which sends it again; it does not count."""
        try:
            await self.client.publish(self.topic, text, qos=self.qos)
        except (MqttError, OSError):
            return
        self.acknowledged.append(text)

    async def finish(self) -> None:
        if not self.client.is_connected:
            await self.connect()
        if self._unsettled:
            await asyncio.wait(list(self._unsettled.values()), timeout=30)
        await self.client.disconnect()


class Subscriber(StormClient):
    def __init__(self, city: LiveCity, name: str, broker: str, filters: tuple[str, ...]) -> None:
        super().__init__(city, name, broker)
        self.filters = filters
        self.got: Counter[str] = Counter()

    async def begin(self) -> None:
        await self.connect()
        for topic_filter in self.filters:
            await self.client.subscribe(topic_filter, qos=2)

    async def run(self) -> None:
        while True:
            try:
                async for message in self.client.messages:
                    self.got[bytes(message.payload).decode()] += 1
            except MqttError:
                pass
            await self.connect()


class Storm:
    def __init__(self, city: LiveCity, seed: int, say: Callable[[str], None]) -> None:
        self._city = city
        self._random = random.Random(seed)
        self._say = say
        names = list(city.city.names)
        self.publishers = [
            Publisher(city, f"pub{i}", names[i % len(names)], f"{AREAS[i % len(AREAS)]}/p{i}", 1 + i % 2)
            if i % 3
            else Publisher(city, f"pub{i}", names[i % len(names)], f"news/p{i}", 1 + i % 2)
            for i in range(PUBLISHERS)
        ]
        self.subscribers = [
            Subscriber(city, f"sub{i}", names[-1 - i], ("#",) if i == 0 else ("news/#", f"{AREAS[i]}/#"))
            for i in range(SUBSCRIBERS)
        ]
        self.verdict = Verdict()

    def rage(self, seconds: float) -> None:
        """One fault after the other, each mended after a while."""
        end = time.monotonic() + seconds
        names = self._city.city.names
        while time.monotonic() < end:
            fault = self._random.choice(("kill", "pause", "cut", "split"))
            name, other = self._random.sample(names, 2)
            lasting_s = self._random.uniform(0.5, 3.0)
            self.verdict.faults[fault] += 1
            self._say(f"{fault} {name} for {lasting_s:.1f} s")
            if fault == "kill":
                self._city.kill(name)
                self._sleep(lasting_s)
                self._city.start(name)
            elif fault == "pause":
                self._city.pause(name)
                self._sleep(lasting_s)
                self._city.resume(name)
            else:
                if fault == "cut":
                    self._city.cut(name, other)
                else:
                    self._city.split(self._random.sample(names, 3))
                self._sleep(lasting_s)
                self._city.heal()
            self._sleep(self._random.uniform(0.0, 1.0))

    def _sleep(self, seconds: float) -> None:
        self._city.run(asyncio.sleep(seconds))

    def judge(self) -> None:
        verdict = self.verdict
        for publisher in self.publishers:
            verdict.acknowledged[publisher.qos] += len(publisher.acknowledged)
        for subscriber in self.subscribers:
            self._judge(subscriber)
        answers = [self._city.ask(name) for name in self._city.city.names]
        if len({answer.digest for answer in answers}) != 1:
            verdict.problems.append("topic tables differ at the end")
        verdict.between = sum(answer.between for answer in answers)

    def _judge(self, subscriber: Subscriber) -> None:
        verdict = self.verdict
        for publisher in self._wanted(subscriber):
            missing = [text for text in publisher.acknowledged if text not in subscriber.got]
            if missing:
                verdict.problems.append(
                    f"{subscriber.name} at {subscriber.broker} misses {len(missing)} of {len(publisher.acknowledged)} "
                    f"from {publisher.name} on {publisher.topic} (QoS {publisher.qos}): {missing[:3]}"
                )
            for text, count in subscriber.got.items():
                if text.startswith(f"{publisher.name}:"):
                    verdict.delivered[publisher.qos] += 1
                    if count > 1:
                        verdict.repeated[publisher.qos] += count - 1
                        if publisher.qos == 2:
                            verdict.problems.append(f"{subscriber.name} got {text} {count} times at QoS 2")

    def _wanted(self, subscriber: Subscriber) -> list[Publisher]:
        from metromq.protocol.topics import matches

        return [p for p in self.publishers if any(matches(f, p.topic) for f in subscriber.filters)]

    def complete(self) -> bool:
        return all(
            text in subscriber.got
            for subscriber in self.subscribers
            for publisher in self._wanted(subscriber)
            for text in publisher.acknowledged
        )


def storm(data: Path, seconds: float, seed: int, say: Callable[[str], None] = lambda text: None) -> Verdict:
    city = grid_city("geographic", l_b=2, count=BROKERS, hello_interval_ms=300)
    with live_city(city, data) as live:
        chaos = Storm(live, seed, say)
        for subscriber in chaos.subscribers:
            live.run(subscriber.begin())
        live.settle()
        stop = asyncio.Event()

        async def launch() -> list[asyncio.Task[None]]:
            reading = [asyncio.create_task(one.run()) for one in chaos.subscribers]
            return [*reading, *(asyncio.create_task(one.run(stop)) for one in chaos.publishers)]

        tasks = live.run(launch())
        try:
            chaos.rage(seconds)
            live.heal()
            live.settle(busy=True)

            async def finish() -> None:
                stop.set()
                await asyncio.gather(*tasks[len(chaos.subscribers) :])
                await asyncio.gather(*(one.finish() for one in chaos.publishers))

            live.run(finish())
            live.settle()
            try:
                live.wait_until(chaos.complete)
            except AssertionError:
                pass  # the judge names what is missing
            chaos.judge()
        finally:
            live.run(_cancel(tasks))
            for client in (*chaos.subscribers, *chaos.publishers):
                live.run(client.client.disconnect())
    return chaos.verdict


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
