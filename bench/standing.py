"""What clients cost that only stand there: connections without messages, and filters."""

import time

from bench import generator
from bench.dialects import MQTT
from bench.machine import cpu_seconds, resident_bytes
from bench.measured import Measured
from bench.peers import Running

IDLE_CLIENTS = 5000
FILTER_CLIENTS = 10_000
FILTERS_EACH = 100
MATCHED = 200_000


def idle(broker: Running, seconds: float) -> Measured:
    """Resident memory for each of 5,000 clients that subscribe to a topic of their own and then keep quiet."""
    connect = (broker.dialect or MQTT).connect
    warm = [connect(broker.port, f"warm{number}", [f"warm/{number}"]) for number in range(20)]
    before = resident_bytes(broker.pid)
    clients = [connect(broker.port, f"device-{n:05}", [f"device/{n:05}"]) for n in range(IDLE_CLIENTS)]
    time.sleep(min(1.0, seconds))
    used = resident_bytes(broker.pid) - before
    for client in warm + clients:
        client.close()
    return Measured({"bytes": used / IDLE_CLIENTS})


def filters(broker: Running, seconds: float) -> Measured:
    """A million filters, nine of ten of them topic names: how fast they come in, what each costs in memory, and how
    long the broker then takes for a message on a topic that it has not seen before."""
    clients = [generator.connect(broker.port, f"device-{n:05}") for n in range(FILTER_CLIENTS)]
    before, start = resident_bytes(broker.pid), time.monotonic()
    for number, client in enumerate(clients):
        named = [f"city/{number:05}/sensor{n:03}" for n in range(FILTERS_EACH * 9 // 10)]
        wild = [f"city/{number:05}/+/alarm{n:02}" for n in range(FILTERS_EACH // 10)]
        generator.subscribe(client, named + wild)
    count = FILTER_CLIENTS * FILTERS_EACH
    inserts = count / (time.monotonic() - start)
    used = resident_bytes(broker.pid) - before
    publisher, last = generator.connect(broker.port, "pub"), clients[-1]
    busy = cpu_seconds(broker.pid)
    topics = [f"city/{n * 7919 % FILTER_CLIENTS:05}/nobody{n:06}" for n in range(MATCHED)]
    generator.until_heard(publisher, [*topics, f"city/{FILTER_CLIENTS - 1:05}/sensor000"], last)
    matched = (cpu_seconds(broker.pid) - busy) / MATCHED * 1e6
    for client in [*clients, publisher]:
        client.close()
    return Measured({"inserts/s": inserts, "bytes": used / count, "match us": matched})
