"""Plays a history on whole brokers under the virtual clock and writes down what clients saw."""

import hashlib
import traceback
from collections.abc import Callable, Mapping
from typing import Final

from metromq.client import Will
from metromq.errors import MetroError, UsageError
from metromq.federation import grid_city
from metromq.lab.sim.sim_broker import SimBroker
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient, SimDelivery
from metromq.lab.storm.history import TOPICS, History, Step
from metromq.lab.storm.seen import FOREVER, Delivered, Published, Seen, SeenConnection, Subscribed
from metromq.protocol.wire import MQTT5, MQTT311, Properties

PROBE: Final = "probe-"
LAST_S: Final = 3.0  # for everybody to take what waits
QUIET_S: Final = 300.0
LINKS_S: Final = 3.0
LAG_S: Final = 0.01  # two links of two milliseconds, and what they wait for disks


class SimulatedStorm:
    """`seen` is what came of it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.seen = Seen(routing=history.routing, lag_s=LAG_S)
        self.city = SimCity(grid_city(history.routing, count=history.brokers, hello_interval_ms=200))
        self._names = self.city.city.names
        for broker, skew_s in zip(self.city.brokers.values(), history.skews_s, strict=True):
            broker.skew_us = int(skew_s * 1_000_000)
        self._clients: dict[str, SimClient] = {}
        self._connections: dict[str, SeenConnection] = {}  # the last of each client
        self._mended_at = -LINKS_S
        self._asked: dict[tuple[str, int], Subscribed] = {}
        self._sent: dict[tuple[str, int], Published] = {}
        self._verbs: Mapping[str, Callable[[tuple[str, ...]], None]] = {
            "connect": self._connect,
            "disconnect": lambda words: self._leave(words[0], True),
            "vanish": lambda words: self._leave(words[0], False),
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "publish": self._publish,
            "clear": lambda words: self._publish((words[0], words[1], "", "1", "retain")),
            "kill": lambda words: self._broker(words[0]).kill(),
            "power": lambda words: self._broker(words[0]).kill(power=True),
            "start": lambda words: self._start(words[0]),
            "pause": lambda words: self._broker(words[0]).pause(),
            "resume": lambda words: self._broker(words[0]).resume(),
            "cut": lambda words: self.city.network.cut(self._name(words[0]), self._name(words[1])),
            "hold": lambda words: self.city.network.hold(self._name(words[0]), self._name(words[1])),
            "split": lambda words: self.city.network.split([self._name(words[0])], self._names),
            "heal": lambda words: self.city.network.heal(),
            "snapshot": lambda words: self._broker(words[0]).take_snapshot(),
        }

    @property
    def now(self) -> float:
        return self.city.clock.now

    def play(self) -> Seen:
        try:
            self.city.start()
            start = self.now
            for step in self.history.steps:
                self.city.run(max(0.0, start + step.at - self.now))
                self._do(step)
            self._calm()
        except UsageError as error:
            self.seen.stuck = str(error)
        except Exception as error:  # a broker that raises breaks every promise
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.seen.stuck = f"{type(error).__name__} in {where.name}, line {where.lineno}: {error}"
        return self.seen

    def _do(self, step: Step) -> None:
        if step.verb in ("kill", "power", "pause", "cut", "hold", "split"):
            self.seen.faults.append((self.now, str(step)))
        if step.verb in ("heal", "start", "resume"):
            self._mended_at = self.now
            self.seen.mends.append((self.now, str(step)))
        self._verbs[step.verb](step.words)

    def _calm(self) -> None:
        """Everything is mended; everybody comes back and takes what waits."""
        self.city.network.heal()
        for name in self._names:
            self._broker(name).resume()
            if not self._broker(name).running:
                self._broker(name).start()
        self.city.settle(QUIET_S)
        for name, client in self._clients.items():
            last = self._connections[name]
            if last.keeps and not client.is_open:
                self._connect((name, last.broker, "keeps"))
                self.city.clock.run_until(lambda: client.is_open, 20.0)  # noqa: B023
        self.city.run(self._longest_will() + LAST_S)
        self.city.settle(QUIET_S)
        for name in self._names:
            self._probe(name)
        for name, broker in self.city.brokers.items():
            for client_id in broker.hub.sessions.by_client_id if broker.hub is not None else ():
                if not client_id.startswith(("$", PROBE)):
                    self.seen.sessions.setdefault(client_id, []).append(name)

    def _longest_will(self) -> float:
        """How long some will, that should or should not fire, may still wait."""
        waits = [
            one.ended + one.will[2] - self.now for one in self.seen.connections if one.will and one.ended < FOREVER
        ]
        return max([0.0, *waits])

    def _probe(self, broker: str) -> None:
        """The retained values that a newcomer gets at this broker."""
        client = self.city.connect(PROBE + broker, broker)
        for topic in TOPICS:
            client.subscribe(topic, 1)
        self.city.run(2.0)
        self.seen.probes[broker] = {item.topic: item.payload for item in client.received if item.retain}
        client.disconnect()

    # Words.

    def _name(self, word: str) -> str:
        return self._names[int(word[1:])] if word.startswith("#") else word

    def _broker(self, word: str) -> SimBroker:
        return self.city.brokers[self._name(word)]

    def _start(self, word: str) -> None:
        if not self._broker(word).running:
            self._broker(word).start()

    def _client(self, name: str) -> SimClient:
        found = self._clients.get(name)
        if found is None:
            is_older = hashlib.blake2b(f"{self.history.seed}{name}".encode()).digest()[0] % 3 == 0
            version = MQTT311 if is_older else MQTT5
            found = self._clients[name] = SimClient(name, self.city.network, version, self)
        return found

    def _connect(self, words: tuple[str, ...]) -> None:
        name, broker, keeps = words[0], self._name(words[1]), words[2] == "keeps"
        client = self._client(name)
        self._leave(name, True)
        if not keeps:  # its tokens start again, and what was under way is not sent again
            self._sent = {key: sent for key, sent in self._sent.items() if key[0] != name}
            self._asked = {key: asked for key, asked in self._asked.items() if key[0] != name}
        wish = (words[3], words[4], float(words[5])) if len(words) > 3 else None
        will = Will(wish[0], wish[1].encode(), 2, False, Properties(will_delay_s=int(wish[2]))) if wish else None
        before = self._connections.get(name)
        self._connections[name] = SeenConnection(name, broker, keeps, wish, self.now)
        self._connections[name].apart = before is not None and self._is_apart(before, broker)
        self.seen.connections.append(self._connections[name])
        client.connect(broker, keeps, will)

    def _is_apart(self, before: SeenConnection, broker: str) -> bool:
        old = self.city.brokers[before.broker]
        if before.broker == broker:
            return before.apart  # it may have gone on with what was there
        is_mended = self.now - self._mended_at < LINKS_S  # links come up again after a while
        return is_mended or not old.is_awake or self.city.network.is_cut(before.broker, broker)

    def _leave(self, name: str, goodbye: bool) -> None:
        client, last = self._client(name), self._connections.get(name)
        if last is not None and last.ended > self.now:
            last.ended = self.now
            last.goodbye = goodbye and client.is_open
        if goodbye:
            client.disconnect()
        else:
            client.vanish()

    def _subscribe(self, words: tuple[str, ...]) -> None:
        client = self._client(words[0])
        if not client.is_open:
            return
        self._end_subscription(words[0], words[1])  # the new one takes its place
        asked = Subscribed(words[0], words[1], int(words[2]), self.now)
        self.seen.subscriptions.append(asked)
        self._asked[words[0], client.subscribe(words[1], asked.qos)] = asked

    def _unsubscribe(self, words: tuple[str, ...]) -> None:
        client = self._client(words[0])
        if client.is_open:
            self._end_subscription(words[0], words[1])
            client.unsubscribe(words[1])

    def _end_subscription(self, client: str, topic_filter: str) -> None:
        for asked in self.seen.subscriptions:
            if asked.client == client and asked.topic_filter == topic_filter:
                asked.ended = min(asked.ended, self.now)

    def _publish(self, words: tuple[str, ...]) -> None:
        client = self._client(words[0])
        if not client.is_open:
            return
        qos, retain = int(words[3]), words[4] == "retain"
        number = len(self.seen.published)
        sent = Published(number, words[0], client.place, words[1], words[2], qos, retain, self.now)
        self.seen.published.append(sent)
        try:
            token = client.publish(words[1], words[2], qos, retain)
        except MetroError:
            return
        if token:
            self._sent[words[0], token] = sent

    # What clients see.

    def opened(self, client: SimClient, session_present: bool) -> None:
        last = self._connections[client.name]
        last.opened, last.present = self.now, session_present

    def ended(self, client: SimClient, problem: str) -> None:
        last = self._connections[client.name]
        last.ended = min(last.ended, self.now)

    def delivered(self, client: SimClient, delivery: SimDelivery) -> None:
        seen = Delivered(client.name, self.now, delivery.topic, delivery.payload, delivery.qos, delivery.retain)
        self.seen.delivered.append(seen)

    def settled(self, client: SimClient, token: int, code: int) -> None:
        sent, asked = self._sent.get((client.name, token)), self._asked.get((client.name, token))
        if sent is not None and code < 0x80:
            sent.acked = self.now
        if asked is not None and code < 0x80:
            asked.acked = self.now
