"""Histories by seed: what clients do and what breaks, drawn by dice that a seed throws always alike."""

import random
from typing import Final

from metromq.lab.storm.scenes import with_scenes
from metromq.lab.storm.steps import (
    COORDINATIONS,
    FILES,
    FILTERS,
    GROUPS,
    PLAYED,
    ROUTINGS,
    TOPICS,
    WATCHED,
    WILL_TOPIC,
    WORDS,
    History,
    Step,
    parse_history,
)
from metromq.lab.storm.variations import (
    CHANGING,
    RESTLESS,
    changing,
    closely,
    coordinated,
    delegating,
    restless,
    toppling,
)

# What may happen, and how often. A seed draws some of the faults, so that most storms have few kinds of them.
ACTIONS: Final = {
    "publish": 50,
    "roam": 14,
    "vanish": 5,
    "disconnect": 4,
    "connect": 10,
    "subscribe": 7,
    "unsubscribe": 2,
    "retain": 7,
    "clear": 4,
}
FAULTS: Final = ("kill", "power", "pause", "cut", "hold", "split", "snapshot", "skew")


class Generator:
    def __init__(self, seed: int, brokers: int = 3, clients: int = 8, steps: int = 200, routing: str = "") -> None:
        self._dice = random.Random(seed)
        self._seed = seed
        self._count = steps
        drawn = self._dice.choice(ROUTINGS)
        self._routing = routing or drawn
        self._brokers = brokers
        self._names = [f"#{number}" for number in range(brokers)]
        self._clients = [f"c{number}" for number in range(clients)]
        self._members = set(self._clients[:2])  # clients with nothing but shared subscriptions
        self._clean = {self._clients[2]}  # their sessions end with their connections
        self._faults = [fault for fault in FAULTS if self._dice.random() < 0.35]
        self._down: set[str] = set()
        self._paused: set[str] = set()
        self._steps: list[Step] = []
        self._now = 0.0
        self._number = 0

    def history(self) -> History:
        self._begin()
        while len(self._steps) < self._count:
            self._now += self._dice.choice((0.001, 0.01, 0.05, 0.2, 0.2, 0.8))
            if self._faults and self._dice.random() < 0.12:
                self._fault()
            else:
                kinds = list(ACTIONS)
                self._act(self._dice.choices(kinds, [ACTIONS[kind] for kind in kinds])[0])
        skews = [0.0] * self._brokers
        if "skew" in self._faults:
            skews = [self._dice.choice((0.0, 0.0, 600.0, -600.0, 5.0)) for _ in range(self._brokers)]
        steps = More(self._seed, self._names, self._clients, self._members, self._clean).added(self._steps)
        history = with_scenes(History(self._seed, self._routing, self._brokers, tuple(skews), tuple(steps)))
        return history if "skew" in self._faults else closely(history)

    def _begin(self) -> None:
        """Everybody connects, and who subscribes subscribes; one watches the wills."""
        for client in self._clients:
            self._connect(client)
        self._add("connect", "watch", self._dice.choice(self._names), "keeps")
        self._now += 0.5
        self._add("subscribe", "watch", WATCHED, "2")
        for client in self._clients:
            self._subscribe(client)
        self._now += 2.0

    def _add(self, verb: str, *words: str) -> None:
        self._steps.append(Step(round(self._now, 3), verb, words))

    def _connect(self, client: str) -> None:
        broker = self._dice.choice([name for name in self._names if name not in self._down] or self._names)
        words = [client, broker, "clean" if client in self._clean else "keeps"]
        if self._dice.random() < 0.2:
            self._number += 1
            words += [f"{WILL_TOPIC}/{client}", f"w{self._number}", self._dice.choice(("0", "0", "2", "30"))]
        self._add("connect", *words)

    def _subscribe(self, client: str) -> None:
        if client in self._members:
            self._add("subscribe", client, self._dice.choice(GROUPS), self._dice.choice("122"))
        else:
            self._add("subscribe", client, self._dice.choice(FILTERS), self._dice.choice("0122"))

    def _act(self, kind: str) -> None:
        client = self._dice.choice(self._clients)
        if kind == "publish":
            for _ in range(self._dice.choice((1, 1, 1, 3, 8))):
                self._publish(client, self._dice.choice(TOPICS), False)
        elif kind == "retain":
            self._publish(client, self._dice.choice(TOPICS), True)
        elif kind == "clear":
            self._add("clear", client, self._dice.choice(TOPICS))
        elif kind in ("roam", "connect"):
            self._connect(client)
        elif kind in ("subscribe", "unsubscribe") and client not in self._members:
            if kind == "subscribe":
                self._subscribe(client)
            else:
                self._add("unsubscribe", client, self._dice.choice(FILTERS))
        elif kind in ("vanish", "disconnect"):
            self._add(kind, client)

    def _publish(self, client: str, topic: str, retain: bool) -> None:
        self._number += 1
        qos = self._dice.choice("0112222")
        self._add("publish", client, topic, f"m{self._number}", qos, "retain" if retain else "live")

    def _fault(self) -> None:
        fault = self._dice.choice([*self._faults, "heal"])
        broker = self._dice.choice(self._names)
        other = self._dice.choice([name for name in self._names if name != broker])
        if broker in self._down:
            self._down.discard(broker)
            self._add("start", broker)
        elif broker in self._paused:
            self._paused.discard(broker)
            self._add("resume", broker)
        elif fault in ("kill", "power"):
            self._down.add(broker)
            self._add(fault, broker)
        elif fault == "pause":
            self._paused.add(broker)
            self._add("pause", broker)
        elif fault in ("cut", "hold"):
            self._add(fault, broker, other)
        elif fault == "split":
            self._add("split", broker)
        elif fault in ("heal", "snapshot"):
            self._add(fault, *([broker] if fault == "snapshot" else []))


class More:
    """What half of the storms have besides, drawn from dice of its own so that the other half stays what it was."""

    def __init__(self, seed: int, names: list[str], clients: list[str], members: set[str], clean: set[str]) -> None:
        self._dice = random.Random(f"{seed} and more")
        self._names = names
        self._clients = clients
        self._members = members
        self._clean = clean
        self._number = 0

    def added(self, steps: list[Step]) -> list[Step]:
        if self._dice.random() < 0.5:
            return steps
        kinds = [kind for kind in ("slip", "reuse", "tear", "revise", "slow") if self._dice.random() < 0.5]
        first, last = 2 * len(self._clients), len(steps)  # after everybody is there
        more = [
            step
            for _ in range(self._dice.randint(2, 8) if kinds else 0)
            for step in self._some(self._dice.choice(kinds), steps[self._dice.randrange(min(first, last - 1), last)].at)
        ]
        return sorted([*steps, *more], key=lambda step: step.at)

    def _some(self, kind: str, at: float) -> list[Step]:
        broker, other = self._dice.sample(self._names, 2)
        client = self._dice.choice(self._clients)
        if kind == "tear":
            lasts_s = self._dice.choice((0.1, 1.0, 3.0))
            return [Step(at, "tear", (broker,)), Step(round(at + lasts_s, 3), "start", (broker,))]
        if kind == "revise":
            return [Step(at, "revise", (broker, self._dice.choice(FILES)))]
        if kind == "slow":
            return [Step(at, "slow", (broker, other, self._dice.choice(("0.05", "0.3", "1"))))]
        # What was sent to a member at QoS 2 ends with its session [MQTT-4.8.2-5]: those that begin anew have a scene.
        is_new = kind == "reuse" and client not in self._members
        words = [client, broker, "clean" if is_new or client in self._clean else "keeps"]
        if self._dice.random() < 0.3:
            self._number += 1
            words += [f"{WILL_TOPIC}/{client}", f"x{self._number}", self._dice.choice(("0", "2", "30"))]
        return [Step(at, "slip", tuple(words))]


def history_of(
    seed: int, brokers: int = 3, clients: int = 8, steps: int = 200, routing: str = "", coordination: str = ""
) -> History:
    """The storm of a seed, which draws its routing unless one is asked for.

    With CHANGING areas move, and brokers join and leave; with RESTLESS sessions move all the time.
    """
    if routing == RESTLESS:
        history = restless(seed, max(brokers, 4))
    elif routing == CHANGING:
        history = changing(Generator(seed, brokers, clients, steps).history())
    else:
        history = Generator(seed, brokers, clients, steps, routing).history()
        history = delegating(history) if routing == "delegation" else history
    return coordinated(history, coordination) if coordination not in ("", "embedded") else history


__all__ = [
    "CHANGING",
    "COORDINATIONS",
    "FILES",
    "PLAYED",
    "RESTLESS",
    "ROUTINGS",
    "TOPICS",
    "WORDS",
    "History",
    "Step",
    "history_of",
    "parse_history",
    "toppling",
]
