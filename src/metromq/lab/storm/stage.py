"""Where a history is played: the verbs, and the record of what clients did and saw; live or simulated, others act."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from metromq.errors import MetroError, UsageError
from metromq.federation import City
from metromq.lab.storm.history import History, Step
from metromq.lab.storm.seen import FOREVER, Delivered, Published, Seen, SeenConnection, Subscribed, Wish
from metromq.protocol.wire import MQTT5

BREAKS: Final = frozenset(
    (
        *("kill", "power", "tear", "pause", "cut", "hold", "slow", "split", "leave"),
        *("away", "unreach", "expire", "lag", "fall"),  # of the ensemble
    )
)
MENDS: Final = frozenset(("heal", "start", "resume", "back", "rise"))
BY_CLIENTS: Final = frozenset(
    ("connect", "slip", "disconnect", "vanish", "subscribe", "unsubscribe", "publish", "clear", "delegate")
)
GOODBYE: Final = "goodbye"  # how a connection ends: with DISCONNECT,
VANISH: Final = "vanish"  # without,
SLIP: Final = "slip"  # or without telling even the network
WAKE_S: Final = 0.5  # so soon a broker that goes on knows that it stood still
LINK_TRIPS: Final = 3  # round trips until a link is up: to reach the peer, to be asked for a proof, and to give it


def revised(city: City, version: str) -> City:
    """The city file's versions: those that brokers of one city may have at the same time."""
    now = city.membership
    if version == "slower":
        changed = dataclasses.replace(now, hello_interval_ms=2 * now.hello_interval_ms, takeover="least-loaded")
    elif version == "faster":
        changed = dataclasses.replace(now, hello_interval_ms=now.hello_interval_ms // 2, missed_hellos=5, far_factor=2)
    else:
        changed = now
    return dataclasses.replace(city, membership=changed)


class Stage(ABC):
    """`seen` is what came of it. It is large because it names every deed that a history may ask for."""

    lag_s: float = 1.0  # how long a message may take between brokers when nothing is broken
    links_s: ClassVar[float] = 3.0  # so long after a mend links come up again, if none is slow

    def __init__(self, history: History, names: tuple[str, ...]) -> None:
        self.history = history
        self.seen = Seen(routing=history.routing, lag_s=self.lag_s)
        self.names = names
        self._founders = names
        self.gone: set[str] = set()  # brokers that have left for good
        self._connections: dict[str, SeenConnection] = {}  # the last of each client
        self._waiting: dict[tuple[str, int], Published | Subscribed] = {}  # for their acknowledgements
        self._mended_at = -self.links_s
        self._slowed: dict[tuple[str, str], float] = {}  # sender and receiver: seconds more
        self._back_at: dict[str, float] = {}  # when brokers began to run again, or to go on
        self._still: dict[str, tuple[float, float]] = {}  # brokers that stood still: from when to when
        self._toppled: dict[str, str] = {}  # by the topic of the cluster that they led
        self._verbs: Mapping[str, Callable[..., None]] = {
            "connect": lambda *words: self._connect(GOODBYE, *words),
            "slip": lambda *words: self._connect(SLIP, *words),
            "disconnect": lambda name: self._leave(name, GOODBYE),
            "vanish": lambda name: self._leave(name, VANISH),
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "publish": self._publish,
            "clear": lambda name, topic: self._publish(name, topic, "", "1", "retain"),
            "kill": lambda broker: self.kill(self._name(broker)),
            "power": lambda broker: self.power(self._name(broker)),
            "tear": lambda broker: self.tear(self._name(broker)),
            "start": lambda broker: self.start(self._name(broker)),
            "revise": self._revise,
            "pause": lambda broker: self.pause(self._name(broker)),
            "resume": lambda broker: self.resume(self._name(broker)),
            "cut": lambda one, other: self.cut(self._name(one), self._name(other)),
            "hold": lambda sender, receiver: self.hold(self._name(sender), self._name(receiver)),
            "slow": self._slow,
            "split": self._split,
            "heal": self._heal,
            "snapshot": lambda broker: self.snapshot(self._name(broker)),
            "move": lambda area, home, at: self.move(area, self._name(home), self._name(at)),
            "join": lambda name, at, area="": self.join(name, self._name(at), area),
            "leave": lambda broker: self.leave(self._name(broker)),
            "route": lambda routing, at: self.route(routing, self._name(at)),
            "away": lambda: self.ensemble("away"),
            "back": lambda: self.ensemble("back"),
            "unreach": lambda broker: self.ensemble("unreach", self._name(broker)),
            "expire": lambda broker: self.ensemble("expire", self._name(broker)),
            "lag": lambda broker, by_s: self.ensemble("lag", self._name(broker), by_s),
            "fell": lambda worker: self.ensemble("fell", worker),
            "hire": lambda worker: self.ensemble("hire", worker),
            "fall": lambda server: self.ensemble("fall", server),
            "rise": lambda server: self.ensemble("rise", server),
            "topple": self._topple,
            "restore": self._restore,
            "delegate": lambda topic_filter, broker="": self.delegate(topic_filter, self._name(broker)),
        }

    def do(self, step: Step) -> None:
        if step.verb not in BY_CLIENTS and not self._is_possible(step):
            return
        if step.verb in BREAKS:
            self.seen.faults.append((self.now, str(step)))
        if step.verb in MENDS:
            self._mended_at = self.now
            self.seen.mends.append((self.now, str(step)))
        if step.verb in ("start", "resume"):
            self._back_at[self._name(step.words[0])] = self.now
        if step.verb in ("pause", "resume"):
            self._stands_still(self._name(step.words[0]), step.verb == "pause")
        elif step.verb in ("kill", "power", "tear"):
            self._still.pop(self._name(step.words[0]), None)
            self.seen.deaths.append((self.now, self._name(step.words[0])))
        self._verbs[step.verb](*step.words)

    def _stands_still(self, name: str, is_still: bool) -> None:
        if is_still and self.is_awake(name):
            self._still[name] = self.now, FOREVER
        elif not is_still and name in self._still:
            begun, over = self._still[name]
            self._still[name] = begun, min(over, self.now)

    def _still_since(self, name: str) -> float:
        begun, over = self._still.get(name, (FOREVER, FOREVER))
        return begun if self.now < over + WAKE_S else FOREVER

    def _name(self, word: str) -> str:
        return self._founders[int(word[1:])] if word.startswith("#") else word

    def _is_possible(self, step: Step) -> bool:
        """Not with a broker that is no more, or did not come to be."""
        own = step.words[1:2] if step.verb == "join" else step.words
        named = [self._name(word) for word in own if word.startswith(("#", "b"))]
        return all(name in self.names and name not in self.gone for name in named)

    def _place(self, word: str) -> str:
        """The broker that a client goes to: another one, if that one is not there for good."""
        name = self._name(word)
        there = [one for one in self.names if one not in self.gone]
        return name if name in there else there[0]

    def mend(self) -> None:
        """Everything works again."""
        self._heal()
        for name in [one for one in self.names if one not in self.gone]:
            self._stands_still(name, False)
            self.resume(name)
            self.start(name)

    def _revise(self, word: str, version: str) -> None:
        self.do(Step(self.now, "kill", (word,)))
        self.start(self._name(word), version)
        self.do(Step(self.now, "start", (word,)))

    def _topple(self, topic: str) -> None:
        words = [f"#{number}" for number, name in enumerate(self._founders) if self.is_awake(name)]
        leader = next((word for word in words if self.leads(self._name(word), topic)), "")
        if leader and topic not in self._toppled:
            self._toppled[topic] = leader
            self.do(Step(self.now, "kill", (leader,)))

    def _restore(self, topic: str) -> None:
        leader = self._toppled.pop(topic, "")
        if leader:
            self.do(Step(self.now, "start", (leader,)))

    def _slow(self, sender: str, receiver: str, by_s: str) -> None:
        one, other = self._name(sender), self._name(receiver)
        self.slow(one, other, float(by_s))
        self._slowed[one, other] = float(by_s)
        self.seen.slowed(self.now, float(by_s))

    def _heal(self) -> None:
        self.heal()
        self._slowed.clear()
        self.seen.healed(self.now)

    def _split(self, word: str) -> None:
        for other in [one for one in self.names if one not in self.gone]:
            if other != self._name(word):
                self.cut(self._name(word), other)

    def move(self, area: str, home: str, at: str) -> None:
        """Somebody moves an area, at a broker that may not be there."""
        raise UsageError("areas move in the simulator only")

    def join(self, name: str, at: str, area: str) -> None:
        """A newcomer; `names` has it from then on, if it was let in."""
        raise UsageError("brokers join in the simulator only")

    def leave(self, broker: str) -> None:
        """A broker leaves for good, if it can; `gone` has it when it has."""
        raise UsageError("brokers leave in the simulator only")

    def route(self, routing: str, at: str) -> None:
        """Somebody wants another routing, and sees its steps through as long as the broker lives that was told so."""
        raise UsageError("the routing changes in the simulator only")

    def ensemble(self, fault: str, *words: str) -> None:
        """Something happens to the ensemble, or between it and a broker."""
        raise UsageError("an ensemble has faults in the simulator only")

    # What clients do.

    def _connect(
        self, how: str, name: str, place: str, keeps: str, topic: str = "", payload: str = "", delay_s: str = "0"
    ) -> None:
        waits_s = float(delay_s) if self.history.version_of(name) == MQTT5 else 0.0  # before there was no delay
        broker, will = self._place(place), self.wish(Wish(topic, payload, waits_s)) if topic else None
        self._leave(name, how)
        before = self._connections.get(name)
        if keeps != "keeps" or (before is not None and not before.keeps):
            # Its tokens start again, and what was under way is not sent again.
            self._waiting = {key: waiting for key, waiting in self._waiting.items() if key[0] != name}
        connection = self._connections[name] = SeenConnection(name, broker, keeps == "keeps", will, self.now)
        connection.apart = before is not None and self._is_apart(before, broker)
        connection.still_since = self._still_since(broker)
        self.seen.connections.append(connection)
        self.dial(name, broker, connection.keeps, will)

    def _is_apart(self, before: SeenConnection, broker: str) -> bool:
        if before.broker == broker:
            return before.apart  # it may have gone on with what was there
        if before.opened == FOREVER and before.apart:
            return True  # it was not let in: its session is where it was before that
        is_mended = self.now - self._mended_at < self.links_s or self._comes_up(before.broker, broker)
        awake = self.is_awake(before.broker) and self.is_awake(broker)  # who stands still has not heard the others
        return is_mended or not awake or self.is_cut(before.broker, broker)

    def _comes_up(self, one: str, other: str) -> bool:
        """Whether one of two brokers is just back, and their link, which is slow, may not be up again."""
        slow_s = self._slowed.get((one, other), 0.0) + self._slowed.get((other, one), 0.0)
        back_s = self.now - max(self._back_at.get(one, -FOREVER), self._back_at.get(other, -FOREVER))
        return slow_s > 0 and back_s < self.links_s + LINK_TRIPS * (slow_s + self.lag_s)

    def _leave(self, name: str, how: str) -> None:
        last = self._connections.get(name)
        was_open = self.is_open(name)
        if last is not None and last.ended > self.now:
            last.ended = self.now
            last.goodbye = how == GOODBYE and was_open
        self.hang_up(name, how)

    def _subscribe(self, name: str, topic_filter: str, qos: str) -> None:
        if self.is_open(name):
            self._end_subscription(name, topic_filter)  # the new one takes its place
            asked = Subscribed(name, topic_filter, int(qos), self.now)
            self.seen.subscriptions.append(asked)
            self._waiting[name, self.ask(name, topic_filter, asked.qos)] = asked

    def _unsubscribe(self, name: str, topic_filter: str) -> None:
        if self.is_open(name):
            self._end_subscription(name, topic_filter)
            self.end(name, topic_filter)

    def _end_subscription(self, client: str, topic_filter: str) -> None:
        for asked in self.seen.subscriptions:
            if asked.client == client and asked.topic_filter == topic_filter:
                asked.ended = min(asked.ended, self.now)

    def _publish(self, name: str, topic: str, payload: str, qos: str, retain: str) -> None:
        if not self.is_open(name):
            return
        place = self._connections[name].broker
        number = len(self.seen.published)
        sent = Published(number, name, place, topic, payload, int(qos), retain == "retain", self.now)
        self.seen.published.append(sent)
        try:
            token = self.send(name, topic, payload, sent.qos, sent.retain)
        except MetroError:
            return
        if token:
            self._waiting[name, token] = sent

    # What clients see.

    def saw_open(self, name: str, session_present: bool, at: float) -> None:
        last = self._connections[name]
        last.opened, last.present = at, session_present
        if last.apart or not session_present:
            for sent in self._waiting.values():
                if sent.client == name and isinstance(sent, Published):
                    sent.again = True

    def saw_end(self, name: str, at: float) -> None:
        last = self._connections[name]
        last.ended = min(last.ended, at)

    def saw_message(self, delivered: Delivered) -> None:
        self.seen.delivered.append(delivered)

    def saw_answer(self, name: str, token: int, code: int, at: float) -> None:
        waiting = self._waiting.pop((name, token), None)
        if waiting is not None and code < 0x80:
            waiting.acked = at

    def longest_will(self) -> float:
        """How long some will, that should or should not fire, may still wait."""
        waits = [one.ended + one.will.delay_s - self.now for one in self.seen.connections if one.will is not None]
        return max([0.0, *(wait for wait in waits if wait < FOREVER)])

    # What a stage can do.

    @property
    @abstractmethod
    def now(self) -> float: ...

    def wish(self, will: Wish) -> Wish:
        """The will as this stage leaves it."""
        return will

    @abstractmethod
    def dial(self, name: str, broker: str, keeps: bool, will: Wish | None) -> None: ...

    @abstractmethod
    def hang_up(self, name: str, how: str) -> None: ...

    @abstractmethod
    def is_open(self, name: str) -> bool: ...

    @abstractmethod
    def ask(self, name: str, topic_filter: str, qos: int) -> int:
        """Subscribes; the token of the answer."""

    @abstractmethod
    def end(self, name: str, topic_filter: str) -> None:
        """Unsubscribes."""

    @abstractmethod
    def send(self, name: str, topic: str, payload: str, qos: int, retain: bool) -> int:
        """Publishes; the token of the acknowledgement, 0 at QoS 0."""

    @abstractmethod
    def kill(self, broker: str) -> None: ...

    @abstractmethod
    def power(self, broker: str) -> None: ...

    @abstractmethod
    def tear(self, broker: str) -> None: ...

    @abstractmethod
    def start(self, broker: str, version: str = "") -> None:
        """Unless it runs; with the version of the city file that it had, if none is named."""

    @abstractmethod
    def pause(self, broker: str) -> None: ...

    @abstractmethod
    def resume(self, broker: str) -> None: ...

    @abstractmethod
    def snapshot(self, broker: str) -> None: ...

    @abstractmethod
    def delegate(self, topic_filter: str, broker: str) -> None:
        """Asks the central broker; it may refuse."""

    @abstractmethod
    def cut(self, one: str, other: str) -> None: ...

    @abstractmethod
    def hold(self, sender: str, receiver: str) -> None: ...

    @abstractmethod
    def slow(self, sender: str, receiver: str, by_s: float) -> None: ...

    @abstractmethod
    def heal(self) -> None: ...

    @abstractmethod
    def is_awake(self, broker: str) -> bool: ...

    @abstractmethod
    def leads(self, broker: str, topic: str) -> bool:
        """Whether it leads a cluster of the topic, with routing = "overlay"."""

    @abstractmethod
    def is_cut(self, one: str, other: str) -> bool: ...
