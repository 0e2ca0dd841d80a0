"""Kills the broker at random moments under load; what it acknowledged arrives once (QoS 2) or at least once (QoS 1).

Ten crashes for each durability; METROMQ_CRASHES=50 asks for more, METROMQ_SEED for other moments.
"""

import asyncio
import operator
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from tests.crash.clients import CrudeClient, Publisher, Subscriber
from tests.crash.process import DEADLINE_S, BrokerProcess

CRASHES = int(os.environ.get("METROMQ_CRASHES", "10"))
BACKLOG = 1200  # more than a session holds in memory
SEED = int(os.environ.get("METROMQ_SEED", "1"))


class Town:
    """Publishers and subscribers that live through all crashes of one broker."""

    def __init__(self, directory: Path, durability: str) -> None:
        self.dice = random.Random(SEED)
        self.broker = BrokerProcess(directory, durability)
        self.confirmations = 0
        self.publishers = [
            Publisher("one-a", 1, 3, False, 20, self._on_confirmed),
            Publisher("one-b", 1, 1, False, 1, self._on_confirmed),
            Publisher("two-a", 2, 3, False, 20, self._on_confirmed),
            Publisher("two-b", 2, 1, False, 1, self._on_confirmed),
            Publisher("kept", 1, 7, True, 5, self._on_confirmed),
        ]
        self.present = [Subscriber("one", {"crash/1/+/+": 1}), Subscriber("two", {"crash/2/#": 2})]
        self.absent = Subscriber("absent", {"crash/#": 2})
        self.flaky = Subscriber("flaky", {"crash/2/two-a/#": 2, "crash/1/one-a/1": 1})
        self.late = Subscriber("late", {"crash/2/#": 2})  # comes when much waits, and dies while it takes it
        self.port = 0
        self.finishing = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def subscribers(self) -> list[Subscriber]:
        return [*self.present, self.absent, self.flaky, self.late]

    def _on_confirmed(self) -> None:
        self.confirmations += 1
        if self.finishing:
            return
        if self.confirmations % 100 == 0:
            self.flaky.hang_up()
        elif self.confirmations % 100 == 50 and not self.flaky.running:
            self.connect([self.flaky])

    def connect(self, clients: Iterable[CrudeClient]) -> None:
        self._tasks += [asyncio.create_task(client.run(self.port)) for client in clients]

    async def subscribe_all(self) -> None:
        self.connect(self.subscribers)
        for subscriber in self.subscribers:
            await asyncio.wait_for(subscriber.ready.wait(), DEADLINE_S)
        self.absent.hang_up()
        self.late.hang_up()

    async def crash(self, life: int) -> None:
        """One life of the broker: up to some thousand confirmations, or not even until it listens."""
        if life > 1 and self.dice.random() < 0.2:
            await self.broker.launch()  # any moment will do, before, in or after recovery; nothing depends on which
            await asyncio.sleep(self.dice.random() * 0.5)
        else:
            self.port = await self.broker.start()
            if life == 0:
                await self.subscribe_all()
            else:
                self.connect([*self.present, self.flaky])
            self.connect(self.publishers)
            if self.backlog(self.late) > BACKLOG:
                self.connect([self.late])
                goal = len(self.late.received) + self.dice.randrange(BACKLOG)
                await poll(lambda: len(self.late.received) >= goal, "late gets too little")
            load = 4000 if life == 1 else self.dice.choice([0, 1, 10, 100, 400, 1000, 3000]) + self.dice.randrange(50)
            target = self.confirmations + load
            await poll(lambda: self.confirmations >= target, "too few confirmations")
        await self.broker.end(signal.SIGKILL)
        await self._hang_up()

    async def finish(self) -> None:
        """The last life: everything under way is brought to its end, and all subscribers take what waits for them."""
        self.finishing = True
        self.port = await self.broker.start()
        for publisher in self.publishers:
            publisher.producing = False
        self.connect([*self.publishers, *self.subscribers])
        for publisher in self.publishers:
            await poll(partial(operator.not_, publisher.under_way), f"{publisher.name} waits")
        for subscriber in self.subscribers:
            wanted = len(set(self.expected(subscriber)))
            await poll(partial(subscriber.has, wanted), f"{subscriber.name} misses some")

    async def end(self) -> None:
        await self.broker.end(signal.SIGTERM)
        await self._hang_up()

    def expected(self, subscriber: Subscriber) -> list[tuple[str, bytes]]:
        """All that was published to its filters: by now every message was confirmed."""
        sent = [message for publisher in self.publishers for message in publisher.sent]
        return [message for message in sent if any(matches(name, message[0]) for name in subscriber.filters)]

    def backlog(self, subscriber: Subscriber) -> int:
        return len(set(self.expected(subscriber)) - subscriber.seen)

    async def _hang_up(self) -> None:
        for client in [*self.publishers, *self.subscribers]:
            client.hang_up()
        await asyncio.gather(*self._tasks)
        self._tasks = []


async def poll(condition: Callable[[], bool], problem: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(problem) from None


def matches(name: str, topic: str) -> bool:
    """A filter against a topic, level by level."""
    wanted, given = name.split("/"), topic.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(given) or level not in ("+", given[index]):
            return False
    return len(wanted) == len(given)


def index_of(payload: bytes) -> tuple[bytes, int]:
    name, number = payload.split()
    return name, int(number)


def check_deliveries(town: Town, subscriber: Subscriber) -> None:
    expected = town.expected(subscriber)
    counts = Counter(subscriber.received)
    assert set(counts) == set(expected)
    repeated = {message: count for message, count in counts.items() if count > 1}
    assert not [message for message in repeated if message[0].startswith("crash/2/")]
    for publisher in town.publishers:  # the first arrivals keep the order of each publisher [MQTT-4.6.0-6]
        arrivals = [index_of(payload) for _, payload in dict.fromkeys(subscriber.received)]
        mine = [number for name, number in arrivals if name == publisher.name.encode()]
        assert mine == sorted(mine)


async def check_retained(town: Town) -> None:
    """A newcomer gets the newest retained message of each topic."""
    kept = town.publishers[-1]
    newest = dict(kept.sent)
    newcomer = Subscriber("newcomer", {"crash/1/kept/#": 1})
    await town.end()  # a clean stop: the snapshot of the end must hold the same as the journal
    town.port = await town.broker.start()
    town.connect([newcomer])
    await poll(lambda: len(newcomer.retained) >= len(newest), "retained messages are missing")
    assert dict(newcomer.retained) == newest
    newcomer.hang_up()


async def live_through(directory: Path, durability: str) -> None:
    town = Town(directory, durability)
    try:
        for crash in range(CRASHES):
            await town.crash(crash)
        await town.finish()
        assert [client.client_id for client in [*town.publishers, *town.subscribers] if client.lost_session] == []
        for publisher in town.publishers:
            assert len(publisher.confirmed) == len(publisher.sent) > 0
        for subscriber in town.subscribers:
            check_deliveries(town, subscriber)
        await check_retained(town)
        damage = [line for line in town.broker.log if "damage" in line or "Traceback" in line or " error " in line]
        assert damage == []
    except BaseException:
        print("".join(town.broker.log[-40:]))
        raise
    finally:
        await town.end()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_no_acknowledged_message_is_lost(tmp_path: Path, durability: str) -> None:
    asyncio.run(live_through(tmp_path, durability))
