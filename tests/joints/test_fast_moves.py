"""One session that goes from broker to broker several times a second, half of the times without a goodbye, while much
is published for it and one broker is dead: paho, compiled brokers, and nothing known but what clients sent and got."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest
from paho.mqtt.client import MQTTMessageInfo

from metromq.federation.city import Routing, grid_city
from tests.chaos.devices import INFLIGHT, Device, Event
from tests.clients.paho_client import client, unique
from tests.scenarios.city import LiveCity, live_city

TOPIC = "3/3/0/0/fast"  # with geographic routing at home at the last broker
PATIENCE_S = 240.0  # far beyond what any machine needs
AFTERWARDS_S = 4.0  # what follows the session around has come by then


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens, by the number of messages and not by the clock, so that a slow machine plays the same."""

    messages: int
    rate: int  # of messages a second, at most
    dies: int  # which of the brokers,
    dies_at: int  # after so many messages,
    back_at: int  # and comes back after so many
    stays_s: tuple[float, float] = (0.2, 0.5)  # at one broker
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What the mover got, against what was acknowledged."""

    lost: list[int] = field(default_factory=list)
    doubled: dict[int, int] = field(default_factory=dict)
    moves: int = 0
    told_anew: int = 0  # how often the client was told that it has a new session, after the first


class _Publisher(threading.Thread):
    """Publishes at QoS 2; `done` counts what was acknowledged."""

    def __init__(self, port: int, plan: Plan) -> None:
        super().__init__(name="publisher", daemon=True)
        self._port, self._plan = port, plan
        self.done = 0

    def run(self) -> None:
        with client(self._port) as publisher:
            under_way = []  # paho has twenty in flight
            start = time.monotonic()
            for number in range(self._plan.messages):
                time.sleep(max(0.0, start + number / self._plan.rate - time.monotonic()))
                under_way.append(publisher.paho.publish(TOPIC, str(number), 2))
                if len(under_way) >= 50:
                    self._finish(under_way.pop(0))
            for one in under_way:
                self._finish(one)

    def _finish(self, one: MQTTMessageInfo) -> None:
        one.wait_for_publish(60)
        if one.is_published():
            self.done += 1


class _Mover:
    """The client; each of its messages is counted by what it says."""

    def __init__(self, live: LiveCity) -> None:
        self._live = live
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._device = Device(unique("mover"), 5, time.monotonic, self._events)
        self.got: Counter[int] = Counter()
        self.place = ""
        self.is_connected = False
        self.told_anew = 0

    def go(self, place: str, goodbye: bool) -> None:
        self._device.hang_up(goodbye)
        self.place = place
        self._device.dial(self._live.ports[place], True, None)

    def subscribe(self, topic_filter: str) -> None:
        while self._events.get(timeout=30).kind != "open":
            pass
        self._device.subscribe(topic_filter, 2)
        while self._events.get(timeout=30).kind != "answer":
            pass

    def look(self) -> int:
        """How many different messages have come."""
        while not self._events.empty():
            event = self._events.get()
            if event.kind == "message":
                self.got[int(event.value[1])] += 1
            elif event.kind != "answer":
                self.is_connected = event.kind == "open"
                self.told_anew += self.is_connected and not event.value
        return len(self.got)

    def stay(self) -> None:
        """As any client does: a connection that the broker has ended is made again."""
        if not self.is_connected:
            self.go(self.place, False)
            time.sleep(1.0)

    def end(self) -> None:
        self._device.hang_up(True)


def play(live: LiveCity, plan: Plan) -> Outcome:
    dice = random.Random(plan.seed)
    names = live.city.names
    dying = names[plan.dies]
    mover, outcome = _Mover(live), Outcome()
    mover.go(names[1], True)
    mover.subscribe("3/3/#")
    live.settle()
    publisher = _Publisher(live.ports[names[0]], plan)
    publisher.start()
    while publisher.is_alive():
        is_dead = dying not in live.running
        if not is_dead and plan.dies_at <= publisher.done < plan.back_at:
            live.kill(dying)
        elif is_dead and publisher.done >= plan.back_at:
            live.start(dying)
        # A broker that dies with the client, or its session, is another promise: it is left in time.
        stands = publisher.done < plan.dies_at / 2 or publisher.done >= plan.back_at
        places = [name for name in live.running if name != mover.place and (stands or name != dying)]
        mover.go(dice.choice(places), dice.random() < 0.5)
        outcome.moves += 1
        time.sleep(dice.uniform(*plan.stays_s))
        mover.look()
    if dying not in live.running:
        live.start(dying)
    end = time.monotonic() + PATIENCE_S
    while mover.look() < plan.messages and time.monotonic() < end:
        mover.stay()
        time.sleep(0.2)
    live.settle()
    time.sleep(AFTERWARDS_S)
    mover.look()
    mover.end()
    outcome.told_anew = mover.told_anew
    assert publisher.done == plan.messages
    outcome.lost = [number for number in range(plan.messages) if not mover.got[number]]
    outcome.doubled = {number: count for number, count in mover.got.items() if count > 1}
    return outcome


@pytest.mark.parametrize("routing", ["geographic", "flood-subscriptions"])
def test_a_session_that_moves_all_the_time_loses_nothing(tmp_path: Path, routing: Routing) -> None:
    city = grid_city(routing, count=4, hello_interval_ms=500)
    with live_city(city, tmp_path) as live:
        outcome = play(live, Plan(messages=2000, rate=300, dies=3, dies_at=400, back_at=1600))
    assert outcome.moves > 10
    assert outcome.lost == []
    # On a machine so busy that a broker counts as away the client is told, and what came may come again. So may
    # what it had not confirmed with PUBCOMP when it left (docs/guarantees.md, Open).
    assert outcome.told_anew or len(outcome.doubled) <= INFLIGHT
