"""Messages through brokers under a virtual clock: latency of links and clients, and the brokers' ports.

Every publisher sends a packet at each step. A broker's port sends one packet after the other: copies for brokers, and
one for each subscriber. What is measured is what the paper measures: the mean time from publisher to subscriber (ADL),
and the share of packets that brokers forward to each other among all that are sent (AFT).
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metromq.federation import OverlaySettings, haversine_km
from metromq.lab.overlay.schemes import Routing, Scheme, Way
from metromq.lab.overlay.workload import Workload

PORT_BITS_PER_S = 1e8
PACKET_BITS = 64 * 8
CLIENT_RTT_MS = (1.0, 4.0)
CLOUD_RTT_MS = (1.0, 2.0)
# One way, milliseconds for each kilometre: chosen so that brokers are as far apart as in the paper, see `sweep`.
MS_PER_KM = 0.0176
UNLIMITED = OverlaySettings(max_topics=10_000_000)
STEPS = 15
STEP_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Choices:
    """What the paper leaves open."""

    ms_per_km: float = MS_PER_KM
    jitter: float = 0.2  # the delay of a message between brokers lies evenly within so much of its mean
    spread_ms: float = 0.0  # publishers of a step send within so long; 0: all at once
    forwards_first: bool = True  # a port sends copies for brokers before those for subscribers
    client_rtt_ms: tuple[float, float] = CLIENT_RTT_MS
    publishers_first: bool = True  # who wants a topic asks when it has publishers, and need not wait
    overlay: OverlaySettings = UNLIMITED


@dataclass(frozen=True, slots=True)
class Outcome:
    latency_ms: float  # ADL
    forwarded: float  # AFT, percent
    between_ms: float  # mean delay of a link between two brokers, which the other schemes are given
    deliveries: int


def simulate(
    scheme: Scheme, work: Workload, seed: int, choices: Choices, between_ms: float = 0.0, steps: int = STEPS
) -> Outcome:
    """`between_ms` is the mean delay between brokers in the overlay: the way to the cloud in the other schemes."""
    dice = np.random.default_rng([seed, 7])
    routing = Routing(scheme, work, choices.overlay)
    routing.join(dice, choices.publishers_first)
    starts = [
        (routing.way(topic, number), count)
        for topic, brokers in work.publishers.items()
        for number, count in brokers.items()
    ]
    run = _Run(scheme, work, choices, between_ms, dice)
    for _ in range(steps):
        run.step(starts)
    return run.outcome()


class _Dice:
    """Numbers drawn in advance: one at a time from numpy would take longer than the rest."""

    def __init__(self, values: np.ndarray) -> None:
        self._values: list[float] = values.tolist()
        self._next = 0

    def draw(self) -> float:
        self._next = (self._next + 1) % len(self._values)
        return self._values[self._next]


class _Run:
    """It has many attributes because each kind of delay is drawn in advance, and what is measured is summed up."""

    def __init__(
        self, scheme: Scheme, work: Workload, choices: Choices, between_ms: float, dice: np.random.Generator
    ) -> None:
        self._choices = choices
        self._far_ms = _distances(work.places) * choices.ms_per_km
        self._edges = len(work.places)
        self._rows: list[list[float]] = self._far_ms.tolist()
        low, high = (rtt / 2 for rtt in choices.client_rtt_ms)
        if scheme == "pscloud":
            low, high = 0.5 * between_ms, 1.5 * between_ms
        self._between_ms = between_ms
        self._delay: Callable[[int, int], float] = self._of_cloud if scheme != "overlay" else self._of_edges
        self._all_cloud = scheme == "pscloud"
        self._ways_in = _Dice(dice.uniform(low, high, 65_521))
        self._tens_out = _Dice(dice.uniform(low, high, (65_519, 10)).sum(axis=1))
        self._jitters = _Dice(dice.uniform(1 - choices.jitter, 1 + choices.jitter, 65_497))
        self._cloudy = _Dice(dice.uniform(0.5, 1.5, 65_479))
        self._within_cloud = _Dice(dice.uniform(CLOUD_RTT_MS[0] / 2, CLOUD_RTT_MS[1] / 2, 65_449))
        self._phases = _Dice(dice.uniform(0, choices.spread_ms, 65_447))
        self._port_ms = PACKET_BITS / PORT_BITS_PER_S * 1000
        self.total_ms = 0.0
        self.deliveries = self.published = self.forwards = 0
        self.linked_ms = 0.0

    def _of_edges(self, one: int, other: int) -> float:
        return self._rows[one][other] * self._jitters.draw()

    def _of_cloud(self, one: int, other: int) -> float:
        if self._all_cloud or (one >= self._edges and other >= self._edges):
            return self._within_cloud.draw()
        return self._between_ms * self._cloudy.draw()

    def step(self, starts: list[tuple[Way, int]]) -> None:
        """One packet of every publisher, until the last subscriber has it; steps are far enough apart to be alone."""
        waiting: list[tuple[float, int, Way, float]] = []
        number = 0
        for way, count in starts:
            for _ in range(count):
                sent = self._phases.draw()
                waiting.append((sent + self._ways_in.draw(), number, way, sent))
                number += 1
        self.published += number
        heapq.heapify(waiting)
        free: dict[int, float] = {}
        port, first = self._port_ms, self._choices.forwards_first
        while waiting:
            now, _, way, sent = heapq.heappop(waiting)
            at = way.broker
            start = max(now, free.get(at, 0.0))
            copies, clients = len(way.onward), way.clients
            served = start + (port * copies if first else 0.0)
            if clients:
                self.total_ms += clients * (served - sent) + port * clients * (clients + 1) / 2
                self.total_ms += self._tens_out.draw() * clients / 10
                self.deliveries += clients
            passed = start + (0.0 if first else port * clients)
            for onward in way.onward:
                passed += port
                delay = self._delay(at, onward.broker)
                self.linked_ms += delay
                number += 1
                heapq.heappush(waiting, (passed + delay, number, onward, sent))
            self.forwards += copies
            free[at] = start + port * (copies + clients)

    def outcome(self) -> Outcome:
        every = self.published + self.forwards + self.deliveries
        between = self.linked_ms / self.forwards if self.forwards else 0.0
        return Outcome(self.total_ms / self.deliveries, 100 * self.forwards / every, between, self.deliveries)


def _distances(places: tuple[tuple[float, float], ...]) -> Any:
    """Equation 1 for all pairs; `haversine_km` for one."""
    degrees = np.radians(np.array(places))
    phi, theta = degrees[:, :1], degrees[:, 1:]
    a = np.sin((phi.T - phi) / 2) ** 2 + np.cos(phi) * np.cos(phi.T) * np.sin((theta.T - theta) / 2) ** 2
    found = 2 * 6371.0 * np.arctan2(np.sqrt(a), np.sqrt(1 - a))
    assert len(places) < 2 or math.isclose(found[0, 1], haversine_km(*places[0], *places[1]), abs_tol=1e-6)
    return found
