"""What the bench measures between brokers: a stream, a hop, a takeover, copies, and memory."""

import os
import random
import select
import socket
import struct
import time
from collections.abc import Sequence
from statistics import median

from bench import generator
from bench.cities import BenchCity, bench_city, bridged, wait_until
from bench.machine import resident_bytes
from bench.scenarios import PER_SUBSCRIBER_BYTES
from metromq.federation.city import City, grid_city
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Subscribe, Subscription

Values = dict[str, float]
STAMP = struct.Struct(">q")
PROBE_S = 0.01
SPREAD_MESSAGES = 500
SPREAD_SUBSCRIBERS = 10  # at each of the interested brokers
LOOP_MESSAGES = 20
LOOP_S = 2.0
FILTERS = 100_000
FILTERS_AT_ONCE = 500


def pair_of_brokers() -> City:
    return grid_city("geographic", l_b=2, count=2)


# --- a stream over one link ---------------------------------------------------------------------------------------


def stream(seconds: float) -> Values:
    """QoS 0 from a publisher at one broker to a subscriber at the other, as fast as it goes."""
    topic = "bench/stream"
    with bench_city(pair_of_brokers()) as running:
        one, other = running.city.names
        subscriber = generator.connect(running.port(other), "sub", filter=topic)
        publisher = generator.connect(running.port(one), "pub")
        _first_arrives(publisher, subscriber, topic)
        size = len(generator.packet(topic))
        window = PER_SUBSCRIBER_BYTES // size
        batch = b"".join([generator.packet(topic) for _ in range(window // 4)])
        flow = generator.Stream(publisher, 1, batch, (size, size), window)
        count = generator.Load([flow], [(subscriber, flow)]).run(seconds / 4, seconds)
        publisher.close()
        subscriber.close()
    return {"messages/s": count.rate, "lost": float(count.lost)}


def _first_arrives(publisher: socket.socket, subscriber: socket.socket, topic: str) -> None:
    """The subscription has to travel before messages do."""
    poll = select.poll()
    poll.register(subscriber, select.POLLIN)

    def arrives() -> bool:
        publisher.send(generator.packet(topic))
        return bool(poll.poll(100))

    wait_until("a message crosses the link", arrives)
    while poll.poll(300):
        subscriber.recv(1 << 20)


# --- the latency of one hop ---------------------------------------------------------------------------------------


def hop(rate: float, seconds: float) -> Values:
    """Every message goes to a subscriber at the publisher's broker and to one behind a link; both are timed."""
    topic = "bench/hop"
    with bench_city(pair_of_brokers()) as running:
        one, other = running.city.names
        publisher = generator.connect(running.port(one), "pub")
        near = generator.connect(running.port(one), "near", filter=topic)
        far = generator.connect(running.port(other), "far", filter=topic)
        _first_arrives(publisher, far, topic)
        _drain(near)
        _timed(publisher, (near, far), topic, rate, seconds / 4)
        times = _timed(publisher, (near, far), topic, rate, seconds)
        for client in (publisher, near, far):
            client.close()
    direct, linked = times
    added = sorted(max(0, there - here) for here, there in zip(direct, linked, strict=True))
    direct.sort()
    linked.sort()
    return {
        "direct p50 ms": _at(direct, 0.5),
        "direct p99 ms": _at(direct, 0.99),
        "over a link p50 ms": _at(linked, 0.5),
        "over a link p99 ms": _at(linked, 0.99),
        "added p50 ms": _at(added, 0.5),
        "added p99 ms": _at(added, 0.99),
    }


def _at(ordered: Sequence[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6


def _drain(client: socket.socket) -> None:
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        pass


def _timed(
    publisher: socket.socket, subscribers: Sequence[socket.socket], topic: str, rate: float, seconds: float
) -> list[list[int]]:
    """Nanoseconds of each message to each subscriber; the generator never sleeps."""
    data = generator.packet(topic)
    clock = time.monotonic_ns
    poll = select.epoll()
    places = {client.fileno(): place for place, client in enumerate(subscribers)}
    for fd in places:
        poll.register(fd, select.EPOLLIN)
    sent: list[int] = []
    results: list[list[int]] = [[] for _ in subscribers]
    rests = [0] * len(subscribers)
    step, due = int(1e9 / rate), clock()
    end = due + int(seconds * 1e9)
    while (now := clock()) < end or any(len(result) < len(sent) for result in results):
        if now > end + 20e9:
            break
        if due <= now < end:
            sent.append(now)
            publisher.send(data)
            due += step
        for fd, _ in poll.poll(0, 8):
            place = places[fd]
            count, rests[place] = divmod(rests[place] + len(subscribers[place].recv(65536)), len(data))
            arrived = clock()
            first = len(results[place])
            results[place] += [arrived - moment for moment in sent[first : first + count]]
    poll.close()
    return results


# --- takeover -----------------------------------------------------------------------------------------------------


def takeover(times: int, fault: str, seed: int) -> Values:
    """Until everybody who wants or publishes something of a lost broker's area is served again, several times."""
    chance = random.Random(seed)
    served: list[float] = []
    with bench_city(grid_city("geographic", l_b=2, count=8, hello_interval_ms=500), "os") as running:
        for number in range(times):
            victim, publishing, subscribing, refuge = chance.sample(running.city.names, 4)
            served.append(_lose(running, fault, number, (victim, publishing, subscribing, refuge)))
            running.settle()
    return {"median s": median(served), "max s": max(served)}


def _lose(running: BenchCity, fault: str, number: int, names: tuple[str, str, str, str]) -> float:
    """The publisher and the subscriber at other brokers, and two clients that flee from the lost one to `refuge`."""
    victim, publishing, subscribing, refuge = names
    topic = running.city.broker(victim).area.split()[0] + "/probe"
    watch = _Watch(topic)
    watch.publisher(running.port(publishing), f"p{number}")
    watch.subscriber(running.port(subscribing), f"s{number}")
    wait_until("probes arrive", lambda: watch.arrived(0) >= 1)
    begin = time.monotonic()
    if fault == "kill -9":
        running.kill(victim)
    else:
        running.pause(victim)
    watch.subscriber(running.port(refuge), f"fled-s{number}")
    watch.publisher(running.port(refuge), f"fled-p{number}")
    wait_until("the area is served", lambda: watch.arrived(time.monotonic_ns()) >= 0 and watch.is_served(begin), 120)
    result = watch.served_at - begin
    watch.close()
    if fault == "kill -9":
        running.bury(victim)
        running.start(victim)
    else:
        running.resume(victim)
    return result


class _Watch:
    """Publishers send stamped probes all the time; each subscriber's latest stamp of each publisher is known."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._publishers: list[socket.socket] = []
        self._subscribers: list[socket.socket] = []
        self._rests: list[bytes] = []
        self._stamps: dict[tuple[int, int], int] = {}  # subscriber, publisher -> when its latest probe was sent
        self._size = len(generator.packet(topic, payload=bytes(STAMP.size + 1)))
        self.served_at = 0.0

    def publisher(self, port: int, name: str) -> None:
        self._publishers.append(generator.connect(port, name))

    def subscriber(self, port: int, name: str) -> None:
        self._subscribers.append(generator.connect(port, name, filter=self._topic))
        self._rests.append(b"")

    def close(self) -> None:
        for client in (*self._publishers, *self._subscribers):
            client.close()

    def arrived(self, since: int) -> int:
        """Sends and receives for a moment; the number of pairs with a probe sent after `since`."""
        end = time.monotonic() + 5 * PROBE_S
        while time.monotonic() < end:
            for number, client in enumerate(self._publishers):
                payload = STAMP.pack(time.monotonic_ns()) + bytes([number])
                client.send(generator.packet(self._topic, payload=payload))
            select.select(self._subscribers, [], [], PROBE_S)
            for place in range(len(self._subscribers)):
                self._receive(place)
        return sum(stamp > since for stamp in self._stamps.values())

    def _receive(self, place: int) -> None:
        try:
            data = self._rests[place] + self._subscribers[place].recv(1 << 20)
        except BlockingIOError:
            return
        whole = len(data) // self._size * self._size
        self._rests[place] = data[whole:]
        for start in range(0, whole, self._size):
            payload = data[start + self._size - STAMP.size - 1 : start + self._size]
            self._stamps[place, payload[-1]] = STAMP.unpack(payload[:-1])[0]

    def is_served(self, begin: float) -> bool:
        """Whether every publisher has reached every subscriber since then; remembers when that was."""
        pairs = len(self._publishers) * len(self._subscribers)
        if sum(stamp > begin * 1e9 for stamp in self._stamps.values()) < pairs:
            return False
        self.served_at = time.monotonic()
        return True


# --- copies -------------------------------------------------------------------------------------------------------


def copies() -> Values:
    """Messages between brokers for each message and interested peer: three of eight brokers have subscribers."""
    city = grid_city("geographic", l_b=2, count=8)
    names = city.names
    own, foreign = (city.broker(name).area.split()[0] for name in (names[0], names[3]))
    topics = {"without area": "news/today", "own area": f"{own}/t", "foreign area": f"{foreign}/t"}
    found: Values = {}
    with bench_city(city) as running:
        publisher = generator.connect(running.port(names[0]), "pub")
        for title, topic in topics.items():
            subscribers = [
                generator.connect(running.port(names[place]), f"{topic}-{place}-{number}", filter=topic)
                for place in (3, 5, 7)
                for number in range(SPREAD_SUBSCRIBERS)
            ]
            for client in subscribers[::SPREAD_SUBSCRIBERS]:
                _first_arrives(publisher, client, topic)
            between, delivered = _spread(running, publisher, topic)
            found[f"{title}: per interested peer"] = between / SPREAD_MESSAGES / 3
            found[f"{title}: per delivered message"] = between / delivered
            for client in subscribers:
                client.close()
        publisher.close()
    return found


def _spread(running: BenchCity, publisher: socket.socket, topic: str) -> tuple[int, int]:
    """Publishes; messages over links and messages delivered, once all have arrived."""
    links, clients = running.between()
    for _ in range(SPREAD_MESSAGES):
        publisher.sendall(generator.packet(topic))
    wanted = clients + 3 * SPREAD_SUBSCRIBERS * SPREAD_MESSAGES
    wait_until("all is delivered", lambda: running.between()[1] >= wanted)
    links_after, clients_after = running.between()
    return links_after - links, clients_after - clients


def star_of_bridges() -> Values:
    """The same city as eight mosquittos, seven of them bridged to the first, everything both ways."""
    between, delivered = _over_bridges([(leaf, 0) for leaf in range(1, 8)], SPREAD_MESSAGES, 4.0)
    return {
        "per interested peer": between / SPREAD_MESSAGES / 3,
        "per delivered message": between / max(delivered, 1),
    }


def mesh_of_bridges() -> Values:
    """Every pair bridged: messages go round for ever; what a few of them come to in a moment."""
    pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
    between, _ = _over_bridges(pairs, LOOP_MESSAGES, LOOP_S)
    return {"copies of one message so far": between / LOOP_MESSAGES}


def _over_bridges(pairs: Sequence[tuple[int, int]], messages: int, wait_s: float) -> tuple[float, float]:
    """Copies between brokers and deliveries, by the brokers' own $SYS counters."""
    topic = "news/today"
    with bridged(pairs) as ports:
        last = len(ports) - 1
        publisher = generator.connect(ports[last], "pub")
        places = [place for place in (1, 3, 5) if place < last] or [0]
        loops = len(pairs) > last
        subscribers = [
            generator.connect(ports[place], f"s{place}-{number}", filter=topic)
            for place in places
            for number in range(1 if loops else SPREAD_SUBSCRIBERS)
        ]
        counters = [_SysCounter(port) for port in ports]
        if loops:
            time.sleep(LOOP_S)  # one probe would never end: bridges come up within a second
        else:
            for client in subscribers:
                _first_arrives(publisher, client, topic)
        _settled(counters)
        for client in subscribers:
            _drain(client)
        before = sum(counter.value for counter in counters)
        for _ in range(messages):
            publisher.sendall(generator.packet(topic))
        got, end = 0, time.monotonic() + wait_s
        while time.monotonic() < end:
            for client in select.select(subscribers, [], [], 0.1)[0]:
                got += len(client.recv(1 << 20))
        for counter in counters:
            counter.read(1.5)
        after = sum(counter.value for counter in counters)
        for client in (publisher, *subscribers):
            client.close()
        for counter in counters:
            counter.close()
    return after - before - messages, got / len(generator.packet(topic))


class _SysCounter:
    """PUBLISH packets that a mosquitto has received, as it tells every second."""

    TOPIC = "$SYS/broker/publish/messages/received"

    def __init__(self, port: int) -> None:
        self._client = generator.connect(port, f"sys{os.getpid()}", filter=self.TOPIC)
        self.value = 0

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._client], [], [], left)[0]:
                packets = self._client.recv(65536).split(self.TOPIC.encode())
                self.value = max(self.value, _digits(packets[-1]))

    def close(self) -> None:
        self._client.close()


def _digits(data: bytes) -> int:
    text = bytes(byte for byte in data if byte in b"0123456789")
    return int(text or b"0")


def _settled(counters: Sequence[_SysCounter]) -> None:
    def is_quiet() -> bool:
        before = [counter.value for counter in counters]
        for counter in counters:
            counter.read(1.2 / len(counters) + 0.1)
        return before == [counter.value for counter in counters]

    wait_until("mosquittos are quiet", is_quiet)


# --- memory -------------------------------------------------------------------------------------------------------


def memory() -> Values:
    """What a broker keeps of 100,000 filters of a peer's clients."""
    settings = {"METROMQ_LIMITS__MAX_SUBSCRIPTIONS_PER_CLIENT": str(2 * FILTERS)}
    with bench_city(grid_city("flood-subscriptions", l_b=2, count=2), settings=settings) as running:
        one, other = running.city.names
        client = generator.connect(running.port(one), "sub")
        client.setblocking(True)
        _subscribe(client, [f"warm/{number:06}/state" for number in range(2 * FILTERS_AT_ONCE)])
        _heard(running, other, 2 * FILTERS_AT_ONCE)
        before = resident_bytes(running.pid(other))
        _subscribe(client, [f"device/{number:06}/state" for number in range(FILTERS)])
        _heard(running, other, FILTERS + 2 * FILTERS_AT_ONCE)
        used = resident_bytes(running.pid(other)) - before
        client.close()
    return {"bytes": used / FILTERS}


def _subscribe(client: socket.socket, filters: Sequence[str]) -> None:
    for start in range(0, len(filters), FILTERS_AT_ONCE):
        wanted = [Subscription(text, 0) for text in filters[start : start + FILTERS_AT_ONCE]]
        client.sendall(encode(Subscribe(1, wanted), MQTT311))
        missing = 5 + len(wanted)  # SUBACK: two bytes of length here, and a code for each
        while missing > 0:
            missing -= len(client.recv(missing))


def _heard(running: BenchCity, name: str, count: int) -> None:
    def all_heard() -> bool:
        return any(b.name == name and b.interest_received >= count for b in running.status().brokers)

    wait_until("the peer hears of all filters", all_heard, 120)
