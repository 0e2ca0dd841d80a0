"""Plays a story in the simulator."""

from collections.abc import Callable, Mapping

from metromq.federation import City, grid_city, with_area
from metromq.lab.scenario import StoryStep, areas_of, judge_delivery, judge_share, payloads, play
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient


class SimStage:
    def __init__(self) -> None:
        self._city: SimCity | None = None
        self._read: dict[str, int] = {}  # how much of a client's deliveries earlier expectations have used
        self.verbs: Mapping[str, Callable[[Mapping[str, str]], None]] = {
            "city": self._found,
            "connects": self._connects,
            "is_refused": self._is_refused,
            "subscribes": self._subscribes,
            "unsubscribes": self._unsubscribes,
            "publishes": self._publishes,
            "clears": lambda words: self._publish(words, "", 1, True),
            "disconnects": lambda words: self._at(words).disconnect(),
            "vanishes": lambda words: self._at(words).vanish(),
            "kill": lambda words: self.city.brokers[words["broker"]].kill(),
            "start": lambda words: self.city.brokers[words["broker"]].start(),
            "pause": lambda words: self.city.brokers[words["broker"]].pause(),
            "resume": lambda words: self.city.brokers[words["broker"]].resume(),
            "split": lambda words: self.city.network.split(words["brokers"].split(), self.city.city.names),
            "cut": lambda words: self.city.network.cut(words["one"], words["other"]),
            "heal": lambda words: self.city.network.heal(),
            "move": lambda words: self._change(words, lambda city: with_area(city, words["area"], words["home"])),
            "join": lambda words: self.city.join(words["newcomer"], words["broker"], areas_of(words)),
            "leaves": self._leaves,
            "drain": self._drain,
            "route": lambda words: self.city.route(words["broker"], words["routing"]),
            "undo": lambda words: self.city.undo(words["broker"]),
            "wait": lambda words: self.city.run(float(words["seconds"])),
            "settle": lambda words: self.city.settle(),
            "expect_nothing": self._expect_nothing,
            "expect_gets": lambda words: judge_delivery(self._news(words["client"]), words),
            "expect_share": lambda words: judge_share([self._news(c) for c in words["clients"].split(" and ")], words),
            "expect_owner": self._expect_owner,
            "expect_tables": self._expect_tables,
        }

    @property
    def city(self) -> SimCity:
        assert self._city is not None, "a story starts with its city"
        return self._city

    def _at(self, words: Mapping[str, str]) -> SimClient:
        return self.city.client(words["client"])

    def _found(self, words: Mapping[str, str]) -> None:
        self._city = SimCity(grid_city(words["routing"], count=int(words["count"]), hello_interval_ms=200))
        self._city.start()

    def _change(self, words: Mapping[str, str], change: Callable[[City], City]) -> None:
        self.city.change(words["broker"], change)

    def _leaves(self, words: Mapping[str, str]) -> None:
        assert self.city.leave(words["broker"]), f"waits for {self.city.waits_for(words['broker'])}"

    def _drain(self, words: Mapping[str, str]) -> None:
        assert self.city.drain(words["broker"]), f"waits for {self.city.waits_for(words['broker'])}"

    def _connects(self, words: Mapping[str, str]) -> None:
        topic, _, payload = words.get("will", "").partition(" ")
        will = (topic, payload) if topic else None
        client = self.city.connect(words["client"], words["broker"], "keeps" in words, will)
        assert client.is_open, f"{words['broker']} does not let {client.name} in: {client.refused[-1:]}"

    def _is_refused(self, words: Mapping[str, str]) -> None:
        intruder = SimClient(words["owner"], self.city.network, user=words["client"])
        intruder.connect(words["broker"], "clean" not in words)
        self.city.clock.run_until(lambda: bool(intruder.refused) or intruder.is_open, 10.0)
        assert not intruder.is_open, "was let in"
        assert not intruder.received, f"got {intruder.received}"

    def _subscribes(self, words: Mapping[str, str]) -> None:
        self._at(words).subscribe(words["filter"], int(words.get("qos", "0")))
        self.city.run(0.05)

    def _unsubscribes(self, words: Mapping[str, str]) -> None:
        self._at(words).unsubscribe(words["filter"])

    def _publishes(self, words: Mapping[str, str]) -> None:
        for payload in payloads(words["payloads"]):
            self._publish(words, payload, int(words.get("qos", "0")), "retained" in words)

    def _publish(self, words: Mapping[str, str], payload: str, qos: int, retain: bool) -> None:
        """Until it is acknowledged, as a careful client would."""
        client = self._at(words)
        token = client.publish(words["topic"], payload, qos, retain)
        self.city.run(0.001)
        if token:
            self.city.clock.run_until(lambda: token in client.acknowledged, 10.0)

    def _news(self, client: str) -> list[str]:
        self.city.run(0.05)
        received = [delivery.payload for delivery in self.city.received(client)]
        start, self._read[client] = self._read.get(client, 0), len(received)
        return received[start:]

    def _expect_nothing(self, words: Mapping[str, str]) -> None:
        news = self._news(words["client"])
        assert not news, f"got {news}"

    def _expect_owner(self, words: Mapping[str, str]) -> None:
        running = [name for name, broker in self.city.brokers.items() if broker.running]
        owners = {self.city.owner(words["area"], name) for name in running}
        assert owners == {words["broker"]}, f"brokers say {sorted(owners)}"

    def _expect_tables(self, words: Mapping[str, str]) -> None:
        assert self.city.tables_equal(), "they differ"


def play_simulated(steps: tuple[StoryStep, ...]) -> SimCity:
    stage = SimStage()
    play(steps, stage)
    return stage.city
