"""Plays a history on whole brokers under the virtual clock and writes down what clients saw."""

import contextlib
import dataclasses
import traceback
from itertools import combinations
from typing import Final, cast

from metromq.client import Will
from metromq.errors import UsageError
from metromq.federation import City, Routing, ZooKeeperSettings, clusters_led, grid_city, steps_to, with_area
from metromq.federation.host import Host
from metromq.lab.sim.network import Latency
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient, SimDelivery
from metromq.lab.storm.history import TOPICS, History
from metromq.lab.storm.seen import Delivered, Seen, Wish
from metromq.lab.storm.stage import GOODBYE, SLIP, Stage, revised
from metromq.protocol.wire import Properties

SESSION_MS: Final = 1000  # about as long as brokers that gossip take to miss one
PROBE: Final = "probe-"
CHANGE_S: Final = 1.0  # between changes of the city that must not meet
LAST_S: Final = 3.0  # for everybody to take what waits
LOST_S: Final = 6.0  # more than wills of a lost broker wait where they are kept for it
LOOK_S: Final = 0.5
IDLE_S: Final = 2  # in every second storm topics that nobody publishes are given back so soon, where that matters
SUMMARISED: Final = 3  # such storms of four: brokers announce a prefix where clients want two filters below it
STEP_S: Final = 0.1
QUIET_S: Final = 300.0
LAG_S: Final = 0.01  # two links of two milliseconds, and what they wait for disks
NEAR_S: Final = 0.0002
WIDE_LAG_S: Final = 0.05  # the same where both links must be opened first


def _near(brokers: frozenset[str]) -> Latency:
    """Links of two milliseconds, and clients that are next to their brokers."""
    return lambda sender, receiver: 0.002 if sender in brokers and receiver in brokers else NEAR_S


def _coordinated(city: City, coordination: str) -> City:
    if coordination == "embedded":
        return city
    overlay = dataclasses.replace(city.overlay, workers=2 if coordination == "workers" else 0)
    settings = ZooKeeperSettings(servers=("simulated:2181",), session_timeout_ms=SESSION_MS)
    return dataclasses.replace(city, coordination="zookeeper", zookeeper=settings, overlay=overlay)


class SimulatedStorm(Stage):
    """`play` it once. It has many methods because it does what a stage must be able to do."""

    def __init__(self, history: History, wide: bool = False) -> None:
        """`wide`: links are opened on demand, as in a city that is too large for a link between every two brokers."""
        mesh_up_to = 0 if wide else history.brokers
        city = grid_city(history.routing, count=history.brokers, hello_interval_ms=200, mesh_up_to=mesh_up_to)
        if history.seed % 4 == SUMMARISED:
            few = dataclasses.replace(city.membership, interest_entries=history.brokers)
            city = dataclasses.replace(city, membership=few)
        near = _near(frozenset(city.names)) if history.is_near else None
        if history.seed % 2:
            city = dataclasses.replace(city, overlay=dataclasses.replace(city.overlay, idle_s=IDLE_S))
        self.city = SimCity(_coordinated(city, history.coordination), near)
        super().__init__(history, self.city.city.names)
        self.lag_s = self.seen.lag_s = WIDE_LAG_S if wide else LAG_S
        for broker, skew_s in zip(self.city.brokers.values(), history.skews_s, strict=True):
            broker.skew_us = int(skew_s * 1_000_000)
        self._clients: dict[str, SimClient] = {}
        self._changed_at = -CHANGE_S
        self._leaving: dict[str, Host] = {}
        self._routing: Host | None = None  # that was told to change the routing, and has not seen it through
        self._wanted = "", ""  # the routing, and the broker that was told; empty: no change is incomplete

    @property
    def now(self) -> float:
        return self.city.clock.now

    def play(self) -> Seen:
        try:
            self.city.start()
            start = self.now
            for step in self.history.steps:
                self.city.run(max(0.0, start + step.at - self.now))
                self.do(step)
            self._calm()
        except UsageError as error:
            self.seen.stuck = str(error)
        except Exception as error:  # a broker that raises breaks every promise
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.seen.stuck = f"{type(error).__name__} in {where.name}, line {where.lineno}: {error}"
        return self.seen

    def _calm(self) -> None:
        """Everything is mended; everybody comes back and takes what waits."""
        self.mend()
        if not self.city.clock.run_until(lambda: not self._still_leaving(), QUIET_S):
            names = self._still_leaving()
            raise UsageError(f"{names[0]} cannot leave: it waits for {self.city.waits_for(names[0])}")
        self._reroute_again()
        self.city.settle(QUIET_S)
        for name, client in self._clients.items():
            last = self._connections[name]
            if last.keeps and not client.is_open:
                self._connect(GOODBYE, name, last.broker, "keeps")  # or another, if that one has left
                self.city.clock.run_until(lambda: client.is_open, 20.0)  # noqa: B023
        self._await_wills()
        self.city.run(LAST_S)
        self.city.settle(QUIET_S)
        self._probe([name for name in self.names if name not in self.gone])
        for name, broker in self.city.brokers.items():
            for client_id in broker.hub.sessions.by_client_id if broker.hub is not None else ():
                if not client_id.startswith(("$", PROBE)):
                    self.seen.sessions.setdefault(client_id, []).append(name)

    def _reroute_again(self) -> None:
        """Who began to change the routing at a broker that died since does so again."""
        if not self.city.clock.run_until(lambda: self._routing is None, QUIET_S):
            raise UsageError("the city does not follow its new routing")
        if self._is_rerouting():
            self.city.settle(QUIET_S)
            self.route(*self._wanted)
            if not self.city.clock.run_until(lambda: not self._is_rerouting(), QUIET_S):
                raise UsageError("the city does not follow its new routing")

    def _await_wills(self) -> None:
        """As long as some will may fire, rightly or not: when no broker has one that waits, none can."""
        end = self.now + self.longest_will()
        surely = min(end, self.now + LOST_S)
        while self.now < end and (self.now < surely or self._has_wills()):
            self.city.run(min(LOOK_S, end - self.now))

    def _has_wills(self) -> bool:
        """Whether a broker keeps a will of a client that is not there, as far as the client knows."""
        for name, broker in self.city.brokers.items():
            for client_id, session in broker.hub.sessions.by_client_id.items() if broker.hub is not None else ():
                if session.will is not None:
                    client = self._clients.get(client_id)
                    if client is None or not client.is_open or client.place != name:
                        return True
        return False

    def _probe(self, brokers: list[str]) -> None:
        """The retained values that newcomers get, one at each broker."""
        newcomers = [self.city.connect(PROBE + broker, broker) for broker in brokers]
        for newcomer in newcomers:
            for topic in TOPICS:
                newcomer.subscribe(topic, 1)
        self.city.run(2.0)
        for broker, newcomer in zip(brokers, newcomers, strict=True):
            self.seen.probes[broker] = {item.topic: item.payload for item in newcomer.received if item.retain}
            newcomer.disconnect()

    # Clients.

    def _client(self, name: str) -> SimClient:
        found = self._clients.get(name)
        if found is None:
            version, patient = self.history.version_of(name), name[-1] in "02468"
            found = self._clients[name] = SimClient(name, self.city.network, version, self, patient=patient)
        return found

    def dial(self, name: str, broker: str, keeps: bool, will: Wish | None) -> None:
        wish = will and Will(will.topic, will.payload.encode(), 2, False, Properties(will_delay_s=int(will.delay_s)))
        self._client(name).connect(broker, keeps, wish)

    def hang_up(self, name: str, how: str) -> None:
        client = self._client(name)
        if how == GOODBYE:
            client.disconnect()
        elif how == SLIP:
            client.slip()
        else:
            client.vanish()

    def is_open(self, name: str) -> bool:
        return self._client(name).is_open

    def ask(self, name: str, topic_filter: str, qos: int) -> int:
        return self._client(name).subscribe(topic_filter, qos)

    def end(self, name: str, topic_filter: str) -> None:
        self._client(name).unsubscribe(topic_filter)

    def send(self, name: str, topic: str, payload: str, qos: int, retain: bool) -> int:
        return self._client(name).publish(topic, payload, qos, retain)

    # Faults.

    def kill(self, broker: str) -> None:
        self.city.brokers[broker].kill()

    def power(self, broker: str) -> None:
        self.city.brokers[broker].kill(power=True)

    def tear(self, broker: str) -> None:
        self.city.brokers[broker].kill(power=True, torn=True)

    def start(self, broker: str, version: str = "") -> None:
        found = self.city.brokers[broker]
        if not found.running:
            found.city = revised(self.city.city, version) if version else found.city
            found.start()
            self._expect_to_leave(broker)  # it may have been killed when it had just left

    def pause(self, broker: str) -> None:
        self.city.brokers[broker].pause()

    def resume(self, broker: str) -> None:
        self.city.brokers[broker].resume()

    def snapshot(self, broker: str) -> None:
        self.city.brokers[broker].take_snapshot()

    def move(self, area: str, home: str, at: str) -> None:
        if self.now - self._changed_at < CHANGE_S or self._is_rerouting():
            return
        with contextlib.suppress(UsageError):  # the home may be about to leave
            self.city.change(at, lambda city: with_area(city, area, home))

    def join(self, name: str, at: str, area: str) -> None:
        """Only in calm, and when no other change is under way: an operator would see that it did not work."""
        # What was told lately may be under way: two changes would meet, and one of them be lost.
        is_told = self.now - self._mended_at >= self.links_s and not self.city.network.slowed
        if self._is_calm() and is_told and not self._leaving and not self._is_rerouting():
            self._changed_at = self.now
            self.city.join(name, at, area)
            self.names = (*self.names, name)

    def leave(self, broker: str) -> None:
        host = self.city.brokers[broker].host
        is_central = host is not None and host.city.central == broker
        if host is None or is_central or not self._is_calm() or self._leaving or self._is_rerouting():
            return

        def begin() -> None:
            with contextlib.suppress(UsageError):  # links may not be open again yet: who asks is told so, and it stays
                host.leaving.leave("somebody")
                self._leaving[broker] = host

        self._expect_to_leave(broker)
        self.city.brokers[broker].run(begin)

    def _expect_to_leave(self, broker: str) -> None:
        host = self.city.brokers[broker].host
        if host is not None:
            host.leaving.on_gone = lambda: self.city.clock.after(0.0, lambda: self._left(broker))

    def route(self, routing: str, at: str) -> None:
        """In calm, and when every broker follows the city as it is: an operator looks at `city show` first."""
        if self._is_rerouting():
            routing, at = self._wanted  # what was begun must be seen through first
        host = self.city.brokers[at].host
        hosts = [broker.host for broker in self.city.brokers.values() if broker.host is not None]
        is_followed = len({one.node.description.epoch for one in hosts}) == 1
        if host is None or not self._is_calm() or not is_followed or self._leaving or self._routing is not None:
            return
        central = at if routing == "central" else ""
        wanted = dataclasses.replace(
            host.city, routing=cast(Routing, routing), central=central, beside="", beside_central=""
        )
        if (wanted.routing, wanted.central) != (host.city.routing, host.city.central) or self._is_rerouting():
            self._routing, self._wanted = host, (routing, at)
            self._step(at, host, list(steps_to(host.city, wanted)))

    def _step(self, at: str, host: Host, steps: list[City], told: int = -1) -> None:
        """The next one when everybody follows the one before, unless the broker that leads them was killed."""
        if self.city.brokers[at].host is not host:
            self._routing = None
            return
        epoch = host.node.description.epoch
        if epoch > told and min(host.node.descriptions.followed_by.values()) >= epoch:
            if len(steps) <= 1:  # what is left takes the old routing away
                self.seen.rerouted(self.now)
            if not steps:
                self._routing, self._wanted = None, ("", "")
                return
            step, told = steps.pop(0), epoch
            if (step.routing, step.central) != (host.city.routing, host.city.central):
                self.seen.reroutes_from(self.now)
            self.city.change(at, lambda city: step)
        self.city.clock.after(STEP_S, lambda: self._step(at, host, steps, told))

    def _is_rerouting(self) -> bool:
        """Whether two routings are side by side, or about to be: somebody has begun a change that is not complete."""
        return self._wanted != ("", "")

    def _left(self, broker: str) -> None:
        self._leaving.pop(broker, None)
        self.gone.add(broker)
        self.city.brokers.pop(broker).kill()

    def _still_leaving(self) -> list[str]:
        """Who was killed meanwhile has forgotten that it wanted to leave."""
        return [name for name, host in self._leaving.items() if self.city.brokers[name].host is host]

    def _is_calm(self) -> bool:
        pairs = combinations(self.city.brokers, 2)
        return (
            self.now - self._changed_at >= CHANGE_S
            and all(one.is_awake for one in self.city.brokers.values())
            and not self.city.network.holds
            and not any(self.city.network.is_cut(*pair) for pair in pairs)
        )

    def delegate(self, topic_filter: str, broker: str) -> None:
        central = self.city.brokers[self.city.city.central]

        def ask() -> None:
            with contextlib.suppress(UsageError):  # it may be on its way already, or the broker away
                assert central.host is not None
                central.host.delegate(topic_filter, broker)

        central.run(ask)

    def cut(self, one: str, other: str) -> None:
        self.city.network.cut(one, other)

    def hold(self, sender: str, receiver: str) -> None:
        self.city.network.hold(sender, receiver)

    def slow(self, sender: str, receiver: str, by_s: float) -> None:
        self.city.network.slow(sender, receiver, by_s)

    def heal(self) -> None:
        self.city.network.heal()
        if self.city.ensemble is not None:
            self.city.ensemble.heal()

    def mend(self) -> None:
        super().mend()
        for worker in self.city.workers.names if self.city.workers is not None else ():
            self.ensemble("hire", worker)

    def ensemble(self, fault: str, *words: str) -> None:
        ensemble, workers = self.city.ensemble, self.city.workers
        assert ensemble is not None
        if fault == "away":
            ensemble.leave()
        elif fault == "back":
            ensemble.come_back()
        elif fault == "unreach":
            ensemble.unreached.add(words[0])
        elif fault == "expire":
            ensemble.expire(words[0])
        elif fault == "lag":
            ensemble.lags_s[words[0]] = float(words[1])
        elif workers is not None and fault in ("fell", "hire"):
            (workers.kill if fault == "fell" else workers.start)(words[0])

    def is_awake(self, broker: str) -> bool:
        """What was at one that has left is elsewhere, and no less awake."""
        return broker in self.gone or self.city.brokers[broker].is_awake

    def leads(self, broker: str, topic: str) -> bool:
        host = self.city.brokers[broker].host
        return host is not None and any(one.topic == topic for one in clusters_led(host.node.table.book, broker))

    def is_cut(self, one: str, other: str) -> bool:
        return self.city.network.is_cut(one, other)

    # What clients see.

    def opened(self, client: SimClient, session_present: bool) -> None:
        self.saw_open(client.name, session_present, self.now)
        self.seen.forgotten |= {(client.name, delivery.payload) for delivery in client.forgotten}

    def ended(self, client: SimClient, problem: str) -> None:
        self.saw_end(client.name, self.now)

    def delivered(self, client: SimClient, delivery: SimDelivery) -> None:
        seen = Delivered(client.name, self.now, delivery.topic, delivery.payload, delivery.qos, delivery.retain)
        self.saw_message(seen)

    def settled(self, client: SimClient, token: int, code: int) -> None:
        self.saw_answer(client.name, token, code, self.now)
