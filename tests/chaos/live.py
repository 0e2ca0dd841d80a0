"""Plays a history on live, compiled broker processes with paho's clients, and writes down what they saw."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from metromq.control.city_status import NoAnswer
from metromq.federation import grid_city
from metromq.lab.storm.history import TOPICS, History
from metromq.lab.storm.seen import Delivered, Seen, Wish
from metromq.lab.storm.stage import GOODBYE, SLIP, Stage
from metromq.protocol.wire import MQTT5
from tests.chaos.brokers import DEADLINE_S, Brokers
from tests.chaos.devices import Device, Event
from tests.chaos.ensemble import StandsStill

LONGEST_DELAY_S = 3.0  # of a will: virtual time makes longer ones for free
LAST_S = 3.0  # for everybody to take what waits
REST_S = 1.5  # so long nothing comes any more
QUIET_S = 60.0
IDLE_S = 2  # in every second storm on an overlay topics that nobody publishes are given back so soon
RETAINED_S = 2.0  # newcomers get what is retained within a second


class LiveStorm(Stage):
    """`play` it once.

    A power cut is a kill here, for what the kernel has is not lost; snapshots come when brokers make them.
    """

    links_s = 6.0

    def __init__(self, history: History, data: Path, durability: str = "os") -> None:
        city = grid_city(history.routing, count=history.brokers, hello_interval_ms=300)
        if history.seed % 2:
            city = replace(city, overlay=replace(city.overlay, idle_s=IDLE_S))
        super().__init__(history, city.names)
        self.brokers = Brokers(city, data, history.skews_s, durability, history.coordination)
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._devices: dict[str, Device] = {}
        self._heard_at = 0.0

    @property
    def now(self) -> float:
        return self.brokers.now

    def play(self) -> Seen:
        try:
            self.brokers.open()
            self._settle()
            start = self.now
            for step in self.history.steps:
                self._until(start + step.at)
                self.do(step)
            self._calm()
        except StandsStill as error:
            self.seen.stuck = str(error)
        finally:
            for device in self._devices.values():
                device.hang_up(False)
            self.brokers.close()
        self.seen.faults += [(start, "0 pause machine") for start, _ in self.brokers.stalls]
        self.seen.mends += [(end, "0 resume machine") for _, end in self.brokers.stalls]
        return self.seen

    # Time.

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Looks again and again, and listens to clients meanwhile; the city's time must go on."""
        last, end = self.now, time.monotonic() + DEADLINE_S
        while not condition():
            self._listen()
            time.sleep(0.005)
            if self.now > last:
                last, end = self.now, time.monotonic() + DEADLINE_S
            if self.brokers.problem or time.monotonic() > end:
                raise StandsStill(self.brokers.problem or f"the city's time stands still; {self.brokers.unanswered}")
        self._listen()

    def _until(self, at: float) -> None:
        self._wait(lambda: self.now >= at)

    def _pause(self, seconds: float) -> None:
        self._until(self.now + seconds)

    def _settle(self) -> None:
        """Until brokers have nothing more to tell each other and clients hear nothing more."""
        end, quiet = self.now + QUIET_S, 0
        while quiet < 2:
            self._pause(REST_S / 2)
            unrest = self.brokers.run(self.brokers.unrest())
            quiet = quiet + 1 if not unrest and self.now - self._heard_at > REST_S else 0
            if self.now > end:
                raise StandsStill(f"the city did not settle within {QUIET_S:g} s: {unrest or 'messages come'}")

    def _calm(self) -> None:
        """Everything is mended; everybody comes back and takes what waits."""
        self.mend()
        self._settle()
        for name, device in self._devices.items():
            last = self._connections[name]
            if last.keeps and not device.is_open:
                self._connect(GOODBYE, name, last.broker, "keeps")
                self._wait_open(device)
        self._pause(self.longest_will() + LAST_S)
        self._settle()
        for name in self.names:
            self._probe(name)

    def _wait_open(self, device: Device) -> None:
        end = self.now + 20.0
        self._wait(lambda: device.is_open or self.now > end)

    def _probe(self, broker: str) -> None:
        """The retained values that a newcomer gets at this broker."""
        events: SimpleQueue[Event] = SimpleQueue()
        probe = Device(f"probe-{broker}", MQTT5, lambda: self.now, events)
        probe.dial(self.brokers.by_name[broker].address[1], False, None)
        self._wait(lambda: not events.empty())
        for topic in TOPICS:
            probe.subscribe(topic, 1)
        self._wait(lambda: events.qsize() > len(TOPICS))
        self._pause(RETAINED_S)
        probe.hang_up(True)
        messages = [event.value for event in _taken(events) if event.kind == "message"]
        self.seen.probes[broker] = {topic: payload for topic, payload, _, retain in messages if retain}

    # Clients.

    def _device(self, name: str) -> Device:
        if name not in self._devices:
            version = self.history.version_of(name)
            self._devices[name] = Device(name, version, lambda: self.now, self._events)
        return self._devices[name]

    def wish(self, will: Wish) -> Wish:
        return will._replace(delay_s=min(will.delay_s, LONGEST_DELAY_S))

    def dial(self, name: str, broker: str, keeps: bool, will: Wish | None) -> None:
        door = self.brokers.door(name)
        door.target = self.brokers.by_name[broker].address if self.brokers.by_name[broker].is_running else None
        self._device(name).dial(door.port, keeps, will)

    def hang_up(self, name: str, how: str) -> None:
        if how == SLIP:
            self.brokers.run(_slip(self.brokers, name))
        self._device(name).hang_up(how == GOODBYE)
        self._listen()

    def is_open(self, name: str) -> bool:
        self._listen()
        return self._device(name).is_open

    def ask(self, name: str, topic_filter: str, qos: int) -> int:
        return self._device(name).subscribe(topic_filter, qos)

    def end(self, name: str, topic_filter: str) -> None:
        self._device(name).unsubscribe(topic_filter)

    def send(self, name: str, topic: str, payload: str, qos: int, retain: bool) -> int:
        return self._device(name).publish(topic, payload, qos, retain)

    def _listen(self) -> None:
        for event in _taken(self._events):
            device = self._devices[event.client]
            if event.kind == "message":
                self._heard_at = event.at
                self.saw_message(Delivered(event.client, event.at, *event.value))
            elif event.kind == "answer":
                token, code = event.value
                self.saw_answer(event.client, token, code, event.at)
            elif event.kind == "open":
                device.is_open = True
                self.saw_open(event.client, event.value, event.at)
            else:
                device.is_open = False
                self.saw_end(event.client, event.at)

    # Faults.

    def kill(self, broker: str) -> None:
        self.brokers.by_name[broker].kill()

    def power(self, broker: str) -> None:
        self.kill(broker)

    def tear(self, broker: str) -> None:
        self.brokers.by_name[broker].tear()

    def start(self, broker: str, version: str = "") -> None:
        process = self.brokers.by_name[broker]
        if not process.is_running:
            process.launch(version)
            self.brokers.await_start(process)

    def pause(self, broker: str) -> None:
        self.brokers.by_name[broker].pause()

    def resume(self, broker: str) -> None:
        self.brokers.by_name[broker].resume()

    def snapshot(self, broker: str) -> None:
        pass

    def delegate(self, topic_filter: str, broker: str) -> None:
        self.brokers.delegate(topic_filter, broker)

    def cut(self, one: str, other: str) -> None:
        self.brokers.run(_cut(self.brokers, one, other))

    def hold(self, sender: str, receiver: str) -> None:
        self.brokers.ways[sender, receiver].free.clear()

    def slow(self, sender: str, receiver: str, by_s: float) -> None:
        self.brokers.ways[sender, receiver].delay_s = by_s

    def heal(self) -> None:
        self.brokers.run(_heal(self.brokers))
        if self.brokers.ensemble is not None:
            self.brokers.ensemble.heal()

    def ensemble(self, fault: str, *words: str) -> None:
        live = self.brokers.ensemble
        assert live is not None
        deeds: Mapping[str, Callable[..., None]] = {
            **{"away": live.away, "back": live.back, "fall": live.fall, "rise": live.rise, "lag": live.lag},
            **{"unreach": live.unreach, "expire": live.expire, "fell": live.fell, "hire": live.hire},
        }
        deeds[fault](*words)

    def mend(self) -> None:
        if self.brokers.ensemble is not None:
            self.brokers.ensemble.mend()
        super().mend()

    def leads(self, broker: str, topic: str) -> bool:
        try:
            status = self.brokers.run(self.brokers.by_name[broker].status())
        except NoAnswer:
            return False
        return any(cluster.topic == topic for cluster in status.clusters)

    def is_awake(self, broker: str) -> bool:
        return self.brokers.by_name[broker].is_awake

    def is_cut(self, one: str, other: str) -> bool:
        pairs = ((one, other), (other, one))
        return any(self.brokers.relays[pair].is_cut or not self.brokers.ways[pair].free.is_set() for pair in pairs)


# On the relays' own loop.


async def _cut(brokers: Brokers, one: str, other: str) -> None:
    for pair in ((one, other), (other, one)):
        brokers.relays[pair].cut()


async def _heal(brokers: Brokers) -> None:
    for pair, relay in brokers.relays.items():
        relay.is_cut = False
        brokers.ways[pair].mend()


async def _slip(brokers: Brokers, client: str) -> None:
    if client in brokers.doors:
        brokers.doors[client].slip()


def _taken(events: "SimpleQueue[Event]") -> list[Event]:
    found: list[Event] = []
    try:
        while True:
            found.append(events.get_nowait())
    except Empty:
        return found
