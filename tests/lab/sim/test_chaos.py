"""Random kills, pauses, cuts and splits in virtual time: everything acknowledged arrives, QoS 2 exactly once."""

import random
from collections import Counter

import pytest

from metromq.federation.city import grid_city
from metromq.lab.sim.sim_city import SimCity

TOPICS = ("0/1/a", "1/2/b", "2/0/c", "3/3/d", "home/e")
FILTERS = ("#", "1/+/b", "2/0/#", "3/3/d", "home/#", "0/1/a")


def matches(topic_filter: str, topic: str) -> bool:
    wanted, names = topic_filter.split("/"), topic.split("/")
    for position, name in enumerate(wanted):
        if name == "#":
            return True
        if position >= len(names) or name not in ("+", names[position]):
            return False
    return len(wanted) == len(names)


class Chaos:
    def __init__(self, seed: int, routing: str) -> None:
        self.random = random.Random(seed)
        self.city = SimCity(grid_city(routing, count=9, hello_interval_ms=200))
        self.city.start()
        self.names = list(self.city.city.names)
        self.subscribers: dict[str, str] = {}
        self.published: dict[str, list[str]] = {}  # acknowledged
        self.doubtful: dict[str, list[str]] = {}  # not acknowledged: may arrive, once
        self.sent = 0
        self.down: set[str] = set()
        self.paused: set[str] = set()

    def populate(self) -> None:
        for number, topic_filter in enumerate(FILTERS):
            name = f"sub{number}"
            self.city.connect(name, self.random.choice(self.names), keeps=True).subscribe(topic_filter, 2)
            self.subscribers[name] = topic_filter
        for name in self.names:
            self.city.connect(f"pub-{name}", name)
        self.city.settle()

    def fault(self) -> None:
        name = self.random.choice(self.names)
        broker = self.city.brokers[name]
        what = self.random.choice(("kill", "start", "pause", "resume", "cut", "split", "heal", "heal"))
        if what == "kill" and len(self.down) < 3 and name not in self.paused:
            broker.kill()
            self.down.add(name)
        elif what == "start" and self.down:
            self.revive(self.random.choice(sorted(self.down)))
        elif what == "pause" and name not in self.down | self.paused:
            broker.pause()
            self.paused.add(name)
        elif what == "resume" and self.paused:
            self.wake(self.random.choice(sorted(self.paused)))
        elif what == "cut":
            self.city.network.cut(name, self.random.choice([other for other in self.names if other != name]))
        elif what == "split":
            self.city.network.split(self.random.sample(self.names, self.random.randint(1, 4)), self.names)
        elif what == "heal":
            self.city.network.heal()

    def revive(self, name: str) -> None:
        self.down.discard(name)
        self.city.brokers[name].start()
        self.city.connect(f"pub-{name}", name)
        for client in self.subscribers:
            if self.city.client(client).place == name:
                self.city.connect(client, name, keeps=True)

    def wake(self, name: str) -> None:
        self.paused.discard(name)
        self.city.brokers[name].resume()

    def publish(self) -> None:
        for name in self.names:
            if name in self.down or name in self.paused:
                continue
            topic = self.random.choice(TOPICS)
            self.sent += 1
            payload = f"{name}-{self.sent}-{topic}"
            publisher = self.city.client(f"pub-{name}")
            token = publisher.publish(topic, payload, 2)
            stored = self.city.clock.run_until(lambda: token in publisher.acknowledged, 1.0)  # noqa: B023
            (self.published if stored else self.doubtful).setdefault(topic, []).append(payload)

    def run(self, rounds: int) -> None:
        self.populate()
        for _ in range(rounds):
            if self.random.random() < 0.3:
                self.fault()
            self.publish()
            self.city.run(self.random.uniform(0.05, 0.8))
        for name in sorted(self.paused):
            self.wake(name)
        self.city.network.heal()
        for name in sorted(self.down):
            self.revive(name)
        self.city.settle()

    def check(self) -> None:
        assert self.city.tables_equal()
        for name, topic_filter in self.subscribers.items():
            wanted = self._matching(self.published, topic_filter)
            got = Counter(delivery.payload for delivery in self.city.received(name))
            assert not wanted - got, f"{name} ({topic_filter}) misses {list((wanted - got).items())[:5]}"
            twice = got - wanted - self._matching(self.doubtful, topic_filter)
            assert not twice, f"{name} ({topic_filter}) has twice {list(twice.items())[:5]}"

    def _matching(self, sent: dict[str, list[str]], topic_filter: str) -> Counter[str]:
        return Counter(text for topic, texts in sent.items() if matches(topic_filter, topic) for text in texts)


@pytest.mark.parametrize("routing", ["geographic", "flood-subscriptions", "flood-publications", "central"])
@pytest.mark.parametrize("seed", range(2))
def test_everything_arrives_exactly_once(seed: int, routing: str) -> None:
    chaos = Chaos(seed, routing)
    chaos.run(40)
    chaos.check()
