"""FlashMQ as a mark: it cannot be fetched here, so its ratios to mosquitto are constants, and ours are of this run.

A ratio travels from one machine to another better than a rate does, but not unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = "FlashMQ 1.26 on one core: published marks, measured elsewhere on a machine of this kind, not in this run"
AIM = 1.5  # times FlashMQ's ratio


@dataclass(frozen=True, slots=True)
class Mark:
    """One published row, and ours in this run; without a ratio the scenario or mosquitto was not measured."""

    scenario: str
    title: str
    pipelined: str
    flashmq: float
    ours: float | None = None
    reached: bool | None = None


# Independent clients first. The published rows name no more than this; each is the scenario of the same shape.
PUBLISHED: tuple[Mark, ...] = (
    Mark("fan-in", "fan-in of 1,000", "no", 1.14),
    Mark("qos1-10-10", "QoS 1, 10 pairs", "window of 20", 4.8),
    Mark("qos1-topics-1000", "QoS 1 with 1,000 topics", "window of 20", 7.3),
    Mark("qos0-1-1", "1 -> 1", "yes", 10.6),
    Mark("fan-out-100", "fan-out 100", "yes", 16.0),
    Mark("topics-1000", "1,000 topics", "yes", 14.1),
    Mark("topics-50000", "50,000 topics", "yes", 9.0),
    Mark("payload-1000", "1 kB payloads, 10 -> 10", "yes", 6.2),
)


def beside_flashmq(ratios: Mapping[str, float | None]) -> list[Mark]:
    """The published rows with our ratios to mosquitto, by scenario."""
    found: list[Mark] = []
    for mark in PUBLISHED:
        ours = ratios.get(mark.scenario)
        reached = None if ours is None else ours >= AIM * mark.flashmq
        found.append(Mark(mark.scenario, mark.title, mark.pipelined, mark.flashmq, ours, reached))
    return found
