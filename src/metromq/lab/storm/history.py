"""Histories by seed: what clients do and what breaks, as plain steps that can be printed, shrunk and played again."""

import dataclasses
import hashlib
import random
from dataclasses import dataclass
from typing import Final

from metromq.errors import UsageError
from metromq.protocol.wire import MQTT5, MQTT311

ROUTINGS: Final = ("geographic", "flood-subscriptions", "flood-publications", "central")
PLAYED: Final = (*ROUTINGS, "delegation", "overlay")  # those drawn by seed, and some that must be asked for
DELEGATED: Final = ("0/#", "0/0/0/0/a", "1/2/#", "plain/#", "plain/d", "#")
TOPICS: Final = ("0/0/0/0/a", "1/2/0/0/b", "3/3/1/1/c", "plain/d")
FILTERS: Final = ("#", "0/#", "1/2/+/0/b", "3/3/1/1/c", "plain/#", "+/d", "0/0/0/0/a", "1/2/0/0/b", "plain/d")
COORDINATIONS: Final = ("embedded", "zookeeper", "workers")  # the last is ZooKeeper with coordination workers
GROUPS: Final = ("$share/g/1/#", "$share/g/plain/d", "$share/h/#")
WILL_TOPIC: Final = "will"
WATCHED: Final = "will/#"

# The verbs, and how many words may follow them.
WORDS: Final = {
    "connect": (3, 6),  # client, broker, keeps or clean, and maybe a will: topic, payload, delay
    "slip": (3, 6),  # as connect, from another network: the connection of before stays half-open
    "disconnect": (1,),
    "vanish": (1,),
    "subscribe": (3,),
    "unsubscribe": (2,),
    "publish": (5,),
    "clear": (2,),
    "kill": (1,),
    "power": (1,),  # what was not synced is lost
    "tear": (1,),  # the same, in the middle of a record
    "start": (1,),
    "revise": (2,),  # killed, and started at once with another version of the city file
    "pause": (1,),
    "resume": (1,),
    "cut": (2,),
    "hold": (2,),  # nothing that the first sends reaches the second, and nobody is told
    "slow": (3,),  # what the first sends reaches the second so many seconds later
    "split": (1,),
    "heal": (0,),
    "snapshot": (1,),
    "move": (3,),  # an area, the broker that is at home there from now on, and the one that is told so
    "join": (2, 3),  # a newcomer, the broker that it asks, and maybe the area that it gets
    "leave": (1,),  # for good
    "away": (0,),  # the whole ensemble, until it is
    "back": (0,),
    "unreach": (1,),  # a broker and the ensemble do not hear each other until `heal`
    "expire": (1,),  # the ensemble ends a broker's session
    "lag": (2,),  # watches of the ensemble tell a broker so many seconds later, until `heal`
    "fell": (1,),  # a coordination worker dies,
    "hire": (1,),  # and comes back
    "delegate": (1, 2),  # a filter, and the broker that gets it; without one it goes back
}
NEAR_S: Final = 1.0
FILES: Final = ("slower", "faster", "first")  # versions of the city file, see `stage.revised`


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, `at` seconds after the start."""

    at: float
    verb: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.at:8.3f}  {' '.join((self.verb, *self.words))}"


@dataclass(frozen=True, slots=True)
class History:
    """A whole storm. `skews_s` are how far the brokers' clocks are ahead."""

    seed: int
    routing: str
    brokers: int
    skews_s: tuple[float, ...]
    steps: tuple[Step, ...]
    coordination: str = "embedded"

    def __str__(self) -> str:
        """The text that `parse_history` reads."""
        clocks = " ".join(f"{skew:g}" for skew in self.skews_s)
        on = f" on {self.coordination}" if self.coordination != "embedded" else ""
        head = f"storm {self.seed} {self.routing}{on} clocks {clocks}"
        return "\n".join((head, *map(str, self.steps)))

    @property
    def is_near(self) -> bool:
        """Whether clocks are only milliseconds apart: then clients are nearer to brokers than these to each other.

        Somebody may set a value before the broker could hear of one that was set, and acknowledged, elsewhere.
        """
        return any(0.0 < abs(skew) < NEAR_S for skew in self.skews_s)

    def version_of(self, client: str) -> int:
        """The MQTT version that a client speaks in this storm."""
        is_older = hashlib.blake2b(f"{self.seed}{client}".encode()).digest()[0] % 3 == 0
        return MQTT311 if is_older else MQTT5


def parse_history(text: str, name: str = "history") -> History:
    """Reads what a history prints; lines that begin with `# ` are comments."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, words) for number, words in lines if words and words[0] != "#"]
    head = lines[0][1] if lines else []
    coordination = "embedded"
    if len(head) > 4 and head[3] == "on" and head[4] in COORDINATIONS:
        coordination, head = head[4], [*head[:3], *head[5:]]
    if len(head) < 5 or head[0] != "storm" or head[3] != "clocks" or head[2] not in PLAYED:
        raise UsageError(f"{name}: a storm starts with a line such as: storm 7 geographic clocks 0 0 600")
    try:
        skews = tuple(float(word) for word in head[4:])
        steps = tuple(_parse_step(words) for _, words in lines[1:])
        return History(int(head[1]), head[2], len(skews), skews, steps, coordination)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _parse_step(words: list[str]) -> Step:
    if len(words) < 2 or words[1] not in WORDS or len(words) - 2 not in WORDS[words[1]]:
        raise ValueError(f"{' '.join(words)!r} is not a step of a storm, such as: 3.25 publish c1 plain/d m7 2 live")
    return Step(float(words[0]), words[1], tuple(words[2:]))


CALM_S: Final = 12.0  # so long after all is mended links and owners are surely as before
RACES: Final = 6

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
        history = History(self._seed, self._routing, self._brokers, tuple(skews), tuple(steps))
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
        # What waits for a member of a group ends with its session [MQTT-4.8.2-5], so members do not begin anew.
        is_new = kind == "reuse" and client not in self._members
        words = [client, broker, "clean" if is_new or client in self._clean else "keeps"]
        if self._dice.random() < 0.3:
            self._number += 1
            words += [f"{WILL_TOPIC}/{client}", f"x{self._number}", self._dice.choice(("0", "2", "30"))]
        return [Step(at, "slip", tuple(words))]


def closely(history: History) -> History:
    """A quarter of the storms: clocks milliseconds apart, and values set at two brokers one just after the other.

    At the end, when all is mended, since only then the judge knows which must stay.
    """
    dice = random.Random(f"{history.seed} closely")
    if dice.random() < 0.75:
        return history
    skews = [dice.choice((0.0, 0.003, 0.008, -0.005, 0.02)) for _ in range(history.brokers)]
    names = [f"#{number}" for number in range(history.brokers)]
    at = history.steps[-1].at + 0.1
    mends = [Step(at, "heal", ()), *(Step(at, verb, (name,)) for verb in ("resume", "start") for name in names)]
    at += CALM_S
    writers = [Step(at, "connect", (f"r{number}", name, "clean")) for number, name in enumerate(names)]
    races: list[Step] = []
    for number in range(RACES):
        at += dice.choice((0.5, 0.9, 1.3))
        topic, (one, other) = dice.choice(TOPICS), dice.sample(range(history.brokers), 2)
        for place, writer, when in (("a", one, at), ("b", other, at + dice.choice((0.001, 0.001, 0.002, 0.004)))):
            words = (f"r{writer}", topic, f"{place}{number}", dice.choice("12"), "retain")
            races.append(Step(when, "publish", words))
    steps = [*mends, *writers, *races]
    rounded = [Step(round(step.at, 3), step.verb, step.words) for step in steps]
    return History(history.seed, history.routing, history.brokers, tuple(skews), (*history.steps, *rounded))


def delegating(history: History) -> History:
    """The same storm in a city whose central broker hands filters to others, and takes them back, all the time."""
    dice = random.Random(f"{history.seed} delegation")
    names = [f"#{number}" for number in range(history.brokers)]
    start, end = history.steps[0].at + 1.0, history.steps[-1].at
    changes: list[Step] = []
    for _ in range(dice.randint(4, 20)):
        broker = [] if dice.random() < 0.2 else [dice.choice(names)]
        changes.append(Step(round(dice.uniform(start, end), 3), "delegate", (dice.choice(DELEGATED), *broker)))
    steps = sorted([*history.steps, *changes], key=lambda step: step.at)
    return History(history.seed, "delegation", history.brokers, history.skews_s, tuple(steps))


CHANGING: Final = "changing"
AREAS: Final = ("0/0", "1/2", "3/3", "1", "3")


def changing(history: History) -> History:
    """The same storm in a city of areas that move from broker to broker all the time."""
    dice = random.Random(f"{history.seed} changing")
    names = [f"#{number}" for number in range(history.brokers)]
    start, end = history.steps[0].at + 1.0, history.steps[-1].at
    moves = [
        Step(round(dice.uniform(start, end), 3), "move", (dice.choice(AREAS), dice.choice(names), dice.choice(names)))
        for _ in range(dice.randint(2, 8))
    ]
    steps = sorted([*history.steps, *moves, *_members(history, names, start, end)], key=lambda step: step.at)
    return History(history.seed, "geographic", history.brokers, history.skews_s, tuple(steps))


def _members(history: History, names: list[str], start: float, end: float) -> list[Step]:
    """In half of these storms brokers join, clients come to them, and one of all brokers leaves for good."""
    dice = random.Random(f"{history.seed} members")
    if dice.random() < 0.5:
        return []
    clients = sorted({step.words[0] for step in history.steps if step.verb == "connect" and step.words[2] == "keeps"})
    steps: list[Step] = []
    newcomers = [f"b9{number}" for number in range(dice.randint(1, 2))]
    for name in newcomers:
        at = dice.uniform(start, end)
        area = [dice.choice(AREAS)] if dice.random() < 0.6 else []
        steps.append(Step(round(at, 3), "join", (name, dice.choice(names), *area)))
        for _ in range(dice.randint(1, 4)):
            comes = round(dice.uniform(at, end), 3)
            steps.append(Step(comes, "connect", (dice.choice(clients), name, "keeps")))
        if dice.random() < 0.3:
            dies = dice.uniform(at, end)
            steps += [Step(round(dies, 3), "kill", (name,)), Step(round(dies + 2.0, 3), "start", (name,))]
    if dice.random() < 0.7:
        steps.append(Step(round(dice.uniform(start, end), 3), "leave", (dice.choice([*names, *newcomers]),)))
    return steps


def coordinated(history: History, coordination: str) -> History:
    """The same storm on an ensemble, which has faults of its own."""
    dice = random.Random(f"{history.seed} {coordination}")
    names = [f"#{number}" for number in range(history.brokers)]
    start, end = history.steps[0].at + 1.0, history.steps[-1].at
    more: list[Step] = []
    for _ in range(dice.randint(0, 6)):
        at, broker = round(dice.uniform(start, end), 3), dice.choice(names)
        fault = dice.choice(("away", "unreach", "expire", "lag", *(("fell",) if coordination == "workers" else ())))
        if fault == "away":
            more += [Step(at, "away", ()), Step(round(at + dice.choice((0.3, 2.0, 8.0)), 3), "back", ())]
        elif fault == "lag":
            more.append(Step(at, "lag", (broker, dice.choice(("0.1", "1", "3")))))
        elif fault == "fell":
            worker = dice.choice(("w0", "w1"))
            more += [Step(at, "fell", (worker,)), Step(round(at + dice.choice((0.1, 3.0)), 3), "hire", (worker,))]
        else:
            more.append(Step(at, fault, (broker,)))
    steps = tuple(sorted([*history.steps, *more], key=lambda step: step.at))
    return dataclasses.replace(history, steps=steps, coordination=coordination)


def history_of(
    seed: int, brokers: int = 3, clients: int = 8, steps: int = 200, routing: str = "", coordination: str = ""
) -> History:
    """The storm of a seed, which draws its routing unless one is asked for.

    With CHANGING areas move, and brokers join and leave.
    """
    if routing == CHANGING:
        history = changing(Generator(seed, brokers, clients, steps).history())
    else:
        history = Generator(seed, brokers, clients, steps, routing).history()
        history = delegating(history) if routing == "delegation" else history
    return coordinated(history, coordination) if coordination not in ("", "embedded") else history
