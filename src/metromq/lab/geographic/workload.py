"""The paper's clients, scaled down, so that simulator and live city count what the formulas count.

The formulas count every subscription and every foreign copy once. MetroMQ announces a filter once however many clients
have it, and sends one copy however many want it, so here no two subscribers of a broker share a filter, and foreign
ones follow different topics. A topic ends in levels that are all the same name; putting `+` in their places
gives many filters for the same topic. The formulas of the two flooding schemes know no area apart from the broker that
a publisher is attached to: there nobody is attached to a foreign broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from metromq.lab.geographic.formulas import Load
from metromq.protocol.topics import all_areas

TAIL_LEVELS = 7  # 128 filters per topic


@dataclass(frozen=True, slots=True)
class Publisher:
    name: str
    broker: str
    topic: str
    first_s: float


@dataclass(frozen=True, slots=True)
class Subscriber:
    name: str
    broker: str
    topic_filter: str
    change_s: float  # when it changes to `next_filter`
    next_filter: str


@dataclass(frozen=True, slots=True)
class Workload:
    load: Load
    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]

    def publications(self, seconds: float) -> Iterator[tuple[float, Publisher]]:
        for publisher in self.publishers:
            at_s = publisher.first_s
            while at_s < seconds:
                yield at_s, publisher
                at_s += self.load.publish_interval_s

    def changes(self, seconds: float) -> Iterator[tuple[float, Subscriber]]:
        return ((sub.change_s, sub) for sub in self.subscribers if sub.change_s < seconds)


def scaled(load: Load, factor: int) -> Load:
    return Load(
        load.level,
        load.publishers // factor,
        load.subscribers // factor,
        load.publish_interval_s,
        load.subscribe_interval_s,
        load.other,
        load.missed,
    )


def build(scheme: str, load: Load) -> Workload:
    areas = all_areas(load.level)
    missed = round(load.missed * load.publishers) if scheme == "geographic" else 0
    places: dict[str, str] = {}  # topic -> the area whose broker its publisher is attached to
    topics: dict[str, list[str]] = {}
    publishers: list[Publisher] = []
    for number, area in enumerate(areas):
        topics[area] = [f"{area}/p{index}" + "/t" * TAIL_LEVELS for index in range(load.publishers)]
        for index, topic in enumerate(topics[area]):
            away = 1 + (index * 7) % (len(areas) - 1) if index < missed else 0
            places[topic] = areas[(number + away) % len(areas)]
            first_s = (
                load.publish_interval_s * (number * load.publishers + index + 0.5) / (len(areas) * load.publishers)
            )
            publishers.append(Publisher(f"p-{area}-{index}", _name(places[topic]), topic, first_s))
    subscribers = [sub for number in range(len(areas)) for sub in _subscribers(number, areas, topics, places, load)]
    return Workload(load, tuple(publishers), tuple(subscribers))


def _subscribers(
    number: int, areas: tuple[str, ...], topics: dict[str, list[str]], places: dict[str, str], load: Load
) -> Iterator[Subscriber]:
    area = areas[number]
    own = iter(_filters(topics[area], load.subscribers * 2))
    foreign = iter(
        topic
        for index in range(load.publishers)
        for step in range(1, len(areas))
        for topic in [topics[areas[(number + step) % len(areas)]][index]]
        if places[topic] != area
    )
    tenths = round(load.other * 10)
    for index in range(load.subscribers):
        source = foreign if (index * 3) % 10 < tenths else own
        change_s = load.subscribe_interval_s * (index + (number + 0.5) / len(areas)) / load.subscribers
        yield Subscriber(f"s-{area}-{index}", _name(area), next(source), change_s, next(source))


def _filters(topics: list[str], count: int) -> Iterator[str]:
    """Different filters that match one of the topics each, all topics in turn."""
    for number in range(count):
        topic = topics[number % len(topics)]
        pattern = number // len(topics)
        head = topic[: -2 * TAIL_LEVELS]
        yield head + "".join("/+" if pattern >> level & 1 else "/t" for level in range(TAIL_LEVELS))


def _name(area: str) -> str:
    return "b" + area.replace("/", "")
