"""What is measured: each scenario sets up clients at a running broker, loads it, and returns one value."""

import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path

from bench import generator
from bench.dialects import MQTT, Dialect
from bench.generator import PAYLOAD_BYTES
from bench.machine import cpu_seconds, fdatasync_rate
from bench.measured import Measured, Probe
from bench.outside import outside, outside_probe
from bench.peers import Running
from bench.standing import filters, idle
from metromq.protocol.wire.packets import MQTT5, MQTT311

UNDER_WAY_BYTES = 32 << 20  # of all subscribers together,
PER_SUBSCRIBER_BYTES = 512 << 10  # and of one at most: no broker's default makes it drop that little
WINDOW = 20
LONG_PAYLOAD_BYTES = 1000
PAIRS = 10
CHURN_S = 0.01
MANY_CLIENTS = 1000
LONE_PAIRS = 200
MQTT5_BROKERS = ("metromq", "pure", "mosquitto", "amqtt")  # nats-server speaks 3.1.1 only
MQTT_BROKERS = ("metromq", "pure", "mosquitto", "nats", "amqtt")
SPEAKERS = (*MQTT_BROKERS, "nats own")  # what the bench has a dialect for
EVERYBODY = (*SPEAKERS, "zenoh")


@dataclass(frozen=True, slots=True)
class Target:
    """What issue 2 asks of a value: `limit` times mosquitto's (or of another value), or an absolute number."""

    limit: float
    relative_to: str = ""  # "mosquitto", "<scenario>": of MetroMQ itself, empty: absolute
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """Either `run`, with one broker at a time, or `probe`: all brokers run and are measured in turn, in slices."""

    name: str
    title: str
    unit: str
    targets: dict[str, Target]
    run: Callable[[Running, float], Measured] | None = None
    probe: Callable[[Running], Probe] | None = None
    slice_s: float = 0.25
    summary: "Callable[[list[int]], dict[str, float]]" = lambda found: quantiles(found)  # of each slice; medians count
    durability: str = "memory"
    families: tuple[str, ...] = MQTT_BROKERS


def _close(clients: list[socket.socket]) -> None:
    for client in clients:
        client.close()


def _cpu_of(broker: Running) -> Callable[[], float]:
    return lambda: cpu_seconds(broker.pid)


def _dialect(broker: Running) -> Dialect:
    return broker.dialect or MQTT


def _newer_packet(topic: str, payload: bytes) -> bytes:
    return generator.packet(topic, MQTT5, payload=payload)


def pipelined(
    pairs: int, fan: int, version: int = MQTT311, payload_bytes: int = PAYLOAD_BYTES
) -> Callable[[Running, float], Measured]:
    """QoS 0 as fast as it goes, with a bound on the bytes under way that is the same for every broker."""

    def run(broker: Running, seconds: float) -> Measured:
        dialect = broker.dialect
        if dialect is None:
            return outside(broker, pairs, fan, 0, seconds, payload_bytes)
        streams: list[generator.Stream] = []
        receivers: list[tuple[socket.socket, generator.Stream]] = []
        clients: list[socket.socket] = []
        for pair in range(pairs):
            topic = f"bench/{pair:02}"
            packet = _newer_packet if version == MQTT5 else dialect.packet
            size = len(packet(topic, bytes(payload_bytes)))
            window = min(PER_SUBSCRIBER_BYTES, UNDER_WAY_BYTES // fan // pairs) // size
            payloads = [generator.random_payload(payload_bytes) for _ in range(max(1, window // 4))]
            batch = b"".join([packet(topic, payload) for payload in payloads])
            sizes = size, dialect.delivered_bytes(topic, payload_bytes)
            publisher = (
                generator.connect(broker.port, f"pub{pair}", version)
                if version == MQTT5
                else dialect.connect(broker.port, f"pub{pair}", ())
            )
            stream = generator.Stream(publisher, fan, batch, sizes, window)
            streams.append(stream)
            clients.append(publisher)
            for number in range(fan):
                subscriber = dialect.connect(broker.port, f"sub{pair}-{number}", [topic])
                receivers.append((subscriber, stream))
                clients.append(subscriber)
        dialect.settle(clients)
        count = generator.Load(streams, receivers).run(seconds / 4, seconds, _cpu_of(broker))
        _close(clients)
        return Measured(count.values, count.lost)

    return run


def many_topics(count: int, by_name: bool = False, churning: bool = False) -> Callable[[Running, float], Measured]:
    """QoS 0 as fast as it goes from ten publishers to ten subscribers, each topic in turn, in an order without order.

    A subscriber has its tenth of the topics by one wildcard filter, or each by its name.
    """

    def run(broker: Running, seconds: float) -> Measured:
        dialect = broker.dialect
        if dialect is None:
            return outside(broker, PAIRS, 1, count, seconds)
        streams: list[generator.Stream] = []
        receivers: list[tuple[socket.socket, generator.Stream]] = []
        clients: list[socket.socket] = []
        for pair in range(PAIRS):
            topics = topics_of(pair, count)
            size, delivered = len(dialect.packet(topics[0], b"")), dialect.delivered_bytes(topics[0], PAYLOAD_BYTES)
            window = PER_SUBSCRIBER_BYTES // size
            names = [topics[n % len(topics)] for n in range(max(window // 4, len(topics)))]
            publisher = dialect.connect(broker.port, f"pub{pair}", ())
            filters = topics if by_name else [f"bench/{pair:02}/#"]
            subscriber = dialect.connect(broker.port, f"sub{pair}", filters)
            batch = b"".join([dialect.packet(name, b"") for name in names])
            streams.append(generator.Stream(publisher, 1, batch, (size, delivered), window))
            receivers.append((subscriber, streams[-1]))
            clients += [publisher, subscriber]
        dialect.settle(clients)
        churn = None
        if churning:
            clients.append(generator.connect(broker.port, "churn"))
            churn = generator.Churn(clients[-1], "+/+/nowhere", CHURN_S)
        load = generator.Load(streams, receivers, churn).run(seconds / 4, seconds, _cpu_of(broker))
        _close(clients)
        return Measured(load.values, load.lost)

    return run


def topics_of(pair: int, count: int) -> list[str]:
    """The topics of one of ten pairs, all of one length, shuffled."""
    topics = [f"bench/{pair:02}/{number:06}" for number in range(count // PAIRS)]
    random.Random(pair).shuffle(topics)
    return topics


def windowed(publishers: int, subscribers: int, topics: int = 0) -> Callable[[Running, float], Measured]:
    """QoS 1 on both sides; every publisher has up to 20 messages unacknowledged. `topics`: in all; 0: one a pair."""

    def run(broker: Running, seconds: float) -> Measured:
        senders: list[tuple[socket.socket, list[str]]] = []
        receivers: list[tuple[socket.socket, str]] = []
        for number in range(subscribers):
            topic = f"bench/{number:02}"
            example, filter = (topics_of(number, topics)[0], f"{topic}/#") if topics else (topic, topic)
            receivers.append((generator.connect(broker.port, f"sub{number}", filter=filter, qos=1), example))
        for number in range(publishers):
            place = number % subscribers
            names = topics_of(place, topics) if topics else [f"bench/{place:02}"]
            senders.append((generator.connect(broker.port, f"pub{number}"), names))
        count = generator.Windowed(senders, receivers, WINDOW).run(seconds / 4, seconds, _cpu_of(broker))
        _close([client for client, _ in [*senders, *receivers]])
        return Measured(count.values, count.lost)

    return run


def fsync(broker: Running, seconds: float) -> Measured:
    """QoS 1 with every message on disk before its PUBACK, and what the disk itself can do."""
    measured = windowed(50, 10)(broker, seconds)
    disk = fdatasync_rate(Path(__file__).parent.parent / "build", min(1.0, seconds))
    return Measured(measured.values | {"disk": disk}, measured.lost)


def fan_in(broker: Running) -> Probe:
    dialect = _dialect(broker)
    publishers = [dialect.connect(broker.port, f"pub{number}", ()) for number in range(MANY_CLIENTS)]
    subscriber = dialect.connect(broker.port, "sub", ["bench/in"])
    filler = bytes(PAYLOAD_BYTES - 4)
    packets = [dialect.packet("bench/in", filler + struct.pack(">I", n)) for n in range(MANY_CLIENTS)]
    delivered = dialect.delivered_bytes("bench/in", PAYLOAD_BYTES), dialect.tail
    dialect.settle([*publishers, subscriber])

    def take(seconds: float) -> tuple[list[int], int]:
        count = generator.fan_in(publishers, packets, subscriber, delivered, seconds)
        return [int(count.rate)], count.lost

    return take


def in_pairs(broker: Running) -> Probe:
    dialect = _dialect(broker)
    pairs: list[tuple[socket.socket, socket.socket, bytes]] = []
    for number in range(LONE_PAIRS):
        topic = f"bench/{number:03}"
        subscriber = dialect.connect(broker.port, f"sub{number}", [topic])
        pairs.append((dialect.connect(broker.port, f"pub{number}", ()), subscriber, dialect.packet(topic, b"")))
    size = dialect.delivered_bytes("bench/000", PAYLOAD_BYTES)
    dialect.settle([end for pair in pairs for end in pair[:2]])

    def take(seconds: float) -> tuple[list[int], int]:
        count = generator.in_pairs(pairs, size, seconds)
        return [int(count.rate)], count.lost

    return take


def fan_out(broker: Running, seconds: float) -> Measured:
    dialect = _dialect(broker)
    subscribers = [dialect.connect(broker.port, f"sub{number}", ["bench/out"]) for number in range(MANY_CLIENTS)]
    publisher = dialect.connect(broker.port, "pub", ())
    packets = [dialect.packet("bench/out", b"") for _ in range(64)]
    size = dialect.delivered_bytes("bench/out", PAYLOAD_BYTES)
    dialect.settle([*subscribers, publisher])
    generator.fan_out(publisher, packets, subscribers, size, seconds / 4)
    count = generator.fan_out(publisher, packets, subscribers, size, seconds)
    _close([*subscribers, publisher])
    return Measured({"rate": count.rate}, count.lost)


def latency(rate: float) -> "Callable[[Running], Probe]":
    def probe(broker: Running) -> Probe:
        dialect = broker.dialect
        if dialect is None:
            return outside_probe(broker, PAIRS, rate)
        pairs: list[tuple[socket.socket, socket.socket, bytes]] = []
        for number in range(PAIRS):
            topic = f"bench/{number:02}"
            subscriber = dialect.connect(broker.port, f"sub{number}", [topic])
            publisher = dialect.connect(broker.port, f"pub{number}", ())
            pairs.append((publisher, subscriber, dialect.packet(topic, b"")))
        size = dialect.delivered_bytes("bench/00", PAYLOAD_BYTES)
        dialect.settle([end for pair in pairs for end in pair[:2]])

        def take(seconds: float) -> tuple[list[int], int]:
            generator.latencies(pairs, size, rate, seconds / 4)
            return generator.latencies(pairs, size, rate, seconds)

        return take

    return probe


def quantiles(results: list[int]) -> dict[str, float]:
    """Of nanoseconds, in microseconds."""
    ordered = sorted(results) or [10**12]
    at = {"p50": 0.5, "p99": 0.99}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000 for name, share in at.items()}


def histogram(results: Sequence[int]) -> dict[str, int]:
    """How many of these nanoseconds there are up to each bound, in microseconds; four bounds for each doubling."""
    counts = Counter(max(0, ceil(4 * log2(max(one, 1) / 1000))) for one in results)
    return {f"{2 ** (step / 4):.1f}": counts[step] for step in sorted(counts)}


def _of(limit: float) -> dict[str, Target]:
    return {"rate": Target(limit, "mosquitto")}


_BELOW = Target(1.0, "mosquitto", at_most=True)
_WITH_BUSY = ("metromq", "busy poll", "pure", "mosquitto", "nats", "nats own", "zenoh")  # amqtt falls behind

SCENARIOS: tuple[Scenario, ...] = (
    # Clients that do not wait for each other, nothing pipelined beyond a window of QoS 1.
    Scenario(
        "fan-in",
        "fan-in 1000 -> 1, unpipelined",
        "messages/s",
        _of(1.4),
        probe=fan_in,
        slice_s=1.0,
        summary=lambda rates: {"rate": rates[0]},
        families=SPEAKERS,
    ),
    Scenario(
        "pairs",
        f"{LONE_PAIRS} pairs, unpipelined",
        "messages/s",
        _of(1.0),
        probe=in_pairs,
        slice_s=1.0,
        summary=lambda rates: {"rate": rates[0]},
        families=SPEAKERS,
    ),
    Scenario("fan-out-single", "fan-out 1 -> 1000, unpipelined", "messages/s", _of(1.2), fan_out, families=SPEAKERS),
    Scenario("qos1-10-10", "QoS 1 window 20, 10 -> 10", "messages/s", _of(4), windowed(10, 10)),
    Scenario(
        "qos1-topics-1000", "QoS 1 window 20, 1,000 topics, 10 -> 10", "messages/s", _of(10), windowed(10, 10, 1_000)
    ),
    Scenario(
        "fsync",
        "QoS 1 with fsync, 50 -> 10",
        "messages/s",
        {"rate": Target(20_000)},
        fsync,
        durability="fsync",
        families=("metromq", "pure"),
    ),
    *(
        Scenario(
            f"latency-{rate}",
            f"latency at {rate:,}/s, 10 -> 10",
            "us",
            {"p50": _BELOW, "p99": _BELOW},
            probe=latency(rate),
            families=_WITH_BUSY,
        )
        for rate in (1_000, 20_000)
    ),
    Scenario(
        "idle",
        "memory of one of 5,000 idle clients",
        "bytes",
        {"bytes": Target(2500, at_most=True)},
        idle,
        families=SPEAKERS,
    ),
    Scenario(
        "filters",
        "a million filters of 10,000 clients",
        "bytes",
        {"bytes": Target(200, at_most=True)},
        filters,
        families=("metromq", "mosquitto"),
    ),
    # As fast as the window allows: every row is pipelined.
    Scenario("qos0-1-1", "QoS 0 pipelined 1 -> 1", "messages/s", _of(8), pipelined(1, 1), families=EVERYBODY),
    Scenario("qos0-10-10", "QoS 0 pipelined 10 -> 10", "messages/s", _of(8), pipelined(10, 1), families=EVERYBODY),
    Scenario(
        "payload-1000",
        "QoS 0 pipelined 10 -> 10, payloads of 1,000 bytes",
        "messages/s",
        {},
        pipelined(10, 1, payload_bytes=LONG_PAYLOAD_BYTES),
        families=EVERYBODY,
    ),
    Scenario(
        "v5-1-1",
        "MQTT 5 publisher 1 -> 1",
        "messages/s",
        {"rate": Target(0.75, "qos0-1-1")},
        pipelined(1, 1, MQTT5),
        families=MQTT5_BROKERS,
    ),
    Scenario(
        "v5-10-10",
        "MQTT 5 publishers 10 -> 10",
        "messages/s",
        {"rate": Target(0.75, "qos0-10-10")},
        pipelined(10, 1, MQTT5),
        families=MQTT5_BROKERS,
    ),
    Scenario("fan-out-100", "fan-out pipelined 1 -> 100", "messages/s", _of(10), pipelined(1, 100), families=SPEAKERS),
    Scenario(
        "fan-out-1000", "fan-out pipelined 1 -> 1000", "messages/s", _of(8), pipelined(1, 1000), families=SPEAKERS
    ),
    *(
        Scenario(
            f"topics-{count}",
            f"QoS 0 pipelined, {count:,} topics, 10 -> 10",
            "messages/s",
            _of(limit),
            many_topics(count),
            families=EVERYBODY,
        )
        for count, limit in ((1_000, 25), (50_000, 14), (1_000_000, 8))
    ),
    Scenario(
        "names-50000",
        "the same with 50,000 topics, subscribed by name",
        "messages/s",
        _of(14),
        many_topics(50_000, by_name=True),
        families=SPEAKERS,
    ),
    Scenario(
        "churn",
        "1,000 topics, a wildcard subscription comes or goes every 10 ms",
        "messages/s",
        {"rate": Target(2 / 3, "topics-1000")},
        many_topics(1_000, churning=True),
    ),
)
