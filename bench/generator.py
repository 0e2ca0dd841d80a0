"""The load: clients on non-blocking sockets that send ready-made bytes and count what comes back.

Nothing is parsed while the clock runs. All packets of a topic have one length, so bytes received are messages received.
"""

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import lcm

from metromq.errors import UsageError
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Connect, Publish, Subscribe, Subscription, Unsubscribe

PAYLOAD_BYTES = 64
CHUNK_BYTES = 1 << 20
ANSWER_S = 20.0
CPU = "cpu us"  # of the broker, for a message
STOPPED_NS = 300_000  # a generator that never sleeps and was not there for so long was kept from its core
QUIET_S = 1.0  # when nothing has come for so long, what is missing counts as lost


def connect(
    port: int, name: str, version: int = MQTT311, filter: str = "", qos: int = 0, filters: Sequence[str] = ()
) -> socket.socket:
    """A connected client, with its subscriptions."""
    client = dial(port)
    client.sendall(encode(Connect(name, version, keepalive_s=0), version))
    _answer(client, 0x20, name)
    subscribe(client, [filter, *filters] if filter else filters, version, qos)
    client.setblocking(False)
    return client


def dial(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), ANSWER_S)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def subscribe(client: socket.socket, filters: Sequence[str], version: int = MQTT311, qos: int = 0) -> None:
    """Subscribes to all of them, a hundred at a time."""
    client.settimeout(ANSWER_S)
    for at in range(0, len(filters), 100):
        subscriptions = [Subscription(filter, qos) for filter in filters[at : at + 100]]
        client.sendall(encode(Subscribe(1, subscriptions), version))
        _answer(client, 0x90, "of the bench")
    client.setblocking(False)


def until_heard(publisher: socket.socket, topics: Sequence[str], subscriber: socket.socket) -> None:
    """Publishes to each topic; the subscriber hears of the last."""
    publisher.settimeout(ANSWER_S)
    subscriber.settimeout(ANSWER_S)
    publisher.sendall(b"".join([packet(topic) for topic in topics]))
    if not subscriber.recv(1):
        raise UsageError("the broker closed a subscriber's connection during the bench")


def _answer(client: socket.socket, kind: int, name: str) -> None:
    head = _exactly(client, 2)
    size = head[1]
    if size >= 128:
        size += (_exactly(client, 1)[0] << 7) - 128
    body = _exactly(client, size)
    if head[0] != kind or (kind == 0x20 and body[1]) or (kind == 0x90 and body[-1] > 2):
        raise UsageError(f"the broker refused client {name}: answer {(head + body).hex()} (is a limit too low?)")


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += some(client, size - len(data))
    return data


def some(client: socket.socket, most: int = 4096) -> bytes:
    """What comes next from the broker, at most so much."""
    piece = client.recv(most)
    if not piece:
        raise UsageError("the broker closed a connection of the bench (is a limit too low?)")
    return piece


def random_payload(payload_bytes: int = PAYLOAD_BYTES) -> bytes:
    return os.urandom(payload_bytes)


def packet(topic: str, version: int = MQTT311, qos: int = 0, packet_id: int = 0, payload: bytes = b"") -> bytes:
    """One PUBLISH with a random payload, so that no two are alike."""
    return encode(Publish(topic, payload or random_payload(), qos, packet_id=packet_id), version)


@dataclass(frozen=True, slots=True)
class Count:
    """What a run of messages came to."""

    messages: int  # delivered while the clock ran
    seconds: float
    lost: int
    broker_s: float = 0.0  # processor time of the broker meanwhile

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def values(self) -> dict[str, float]:
        return {"rate": self.rate, CPU: self.broker_s / max(self.messages, 1) * 1e6}


def nobody_s() -> float:
    return 0.0


class Stream:
    """One publisher and the subscribers of its topic, with a bound on what is under way."""

    def __init__(
        self, publisher: socket.socket, subscribers: int, batch: bytes, sizes: tuple[int, int], window: int
    ) -> None:
        self.publisher = publisher
        self.fan = subscribers
        self.batch = memoryview(batch)
        self.sent_size, self.got_size = sizes  # bytes of one packet as published and as delivered
        self.window = window * subscribers  # messages under way, all subscribers together
        self.position = 0
        self.sent_bytes = 0
        self.got_bytes = 0
        self.forgiven = 0  # messages given up as lost

    def under_way(self) -> int:
        return self.sent_bytes // self.sent_size * self.fan - self.got_bytes // self.got_size - self.forgiven

    def send(self) -> bool:
        """Sends while the window allows; False: the socket is full."""
        while self.under_way() < self.window:
            try:
                sent = self.publisher.send(self.batch[self.position :])
            except BlockingIOError:
                return False
            self.sent_bytes += sent
            self.position = (self.position + sent) % len(self.batch)
        return True

    def finish(self) -> bool:
        """Sends the rest of a packet that was sent in part; True: nothing is left."""
        left = -self.sent_bytes % self.sent_size
        if left:
            try:
                sent = self.publisher.send(self.batch[self.position : self.position + left])
            except BlockingIOError:
                return False
            self.sent_bytes += sent
            self.position = (self.position + sent) % len(self.batch)
        return self.sent_bytes % self.sent_size == 0


class Churn:
    """A client that subscribes and unsubscribes in turn, at a steady pace, beside the load."""

    def __init__(self, client: socket.socket, filter: str, every_s: float) -> None:
        self._client = client
        self._packets = (
            encode(Subscribe(1, [Subscription(filter, 0)]), MQTT311),
            encode(Unsubscribe(1, [filter]), MQTT311),
        )
        self._every_s = every_s
        self._due = time.monotonic()
        self.changes = 0

    def drive(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._client.send(self._packets[self.changes % 2])
            self.changes += 1
            self._due = max(self._due + self._every_s, now - self._every_s)


class Load:
    """Drives streams as fast as their windows allow."""

    def __init__(
        self,
        streams: Sequence[Stream],
        subscribers: Sequence[tuple[socket.socket, Stream]],
        churn: Churn | None = None,
    ) -> None:
        self._streams = streams
        self._churn = churn
        self._poll = select.epoll()
        self._by_fd = {client.fileno(): (client, stream) for client, stream in subscribers}
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)
        self._buffer = bytearray(CHUNK_BYTES)
        self._heard = time.monotonic()

    def run(self, warm_up_s: float, seconds: float, broker_s: Callable[[], float] = nobody_s) -> Count:
        self._drive(time.monotonic() + warm_up_s)
        before, start, cpu_s = self._delivered(), time.monotonic(), broker_s()
        self._drive(start + seconds)
        messages, elapsed, cpu_s = self._delivered() - before, time.monotonic() - start, broker_s() - cpu_s
        self._heard = time.monotonic()
        while not all([stream.finish() for stream in self._streams]) or any(s.under_way() for s in self._streams):
            self._receive(0.05)
            self._give_up()
        self._poll.close()
        return Count(messages, elapsed, sum(stream.forgiven for stream in self._streams), cpu_s)

    def _delivered(self) -> int:
        return sum(stream.got_bytes // stream.got_size for stream in self._streams)

    def _drive(self, until: float) -> None:
        while time.monotonic() < until:
            free = True
            for stream in self._streams:
                if self._churn is not None:
                    self._churn.drive()
                free = stream.send() and free
            self._receive(0.05 if free else 0.0005)
            self._give_up()

    def _receive(self, timeout_s: float) -> None:
        buffer = self._buffer
        by_fd = self._by_fd
        events = self._poll.poll(timeout_s, 4096)
        for fd, _ in events:
            client, stream = by_fd[fd]
            count = client.recv_into(buffer)
            if not count:
                raise UsageError("the broker closed a subscriber's connection during the bench")
            stream.got_bytes += count
        if events:
            self._heard = time.monotonic()

    def _give_up(self) -> None:
        if time.monotonic() - self._heard > QUIET_S:
            for stream in self._streams:
                stream.forgiven += stream.under_way()
            self._heard = time.monotonic()


class Windowed:
    """QoS 1: publishers keep a window of unacknowledged messages full, subscribers acknowledge what they get."""

    def __init__(
        self,
        publishers: Sequence[tuple[socket.socket, Sequence[str]]],
        subscribers: Sequence[tuple[socket.socket, str]],
        window: int,
    ) -> None:
        """Publishers with their topics, which come in turn; subscribers with a topic as long as all that they get."""
        self._window = window
        self._poll = select.epoll()
        self._publishers: dict[int, _Ring] = {}
        self._receivers: dict[int, _Acker] = {}
        for client, topics in publishers:
            self._publishers[client.fileno()] = _Ring(client, topics, window)
            self._poll.register(client.fileno(), select.EPOLLIN)
        for client, topic in subscribers:
            self._receivers[client.fileno()] = _Acker(client, topic)
            self._poll.register(client.fileno(), select.EPOLLIN)

    def run(self, warm_up_s: float, seconds: float, broker_s: Callable[[], float] = nobody_s, fan: int = 1) -> Count:
        for ring in self._publishers.values():
            ring.send(self._window)
        self._drive(time.monotonic() + warm_up_s)
        before, start, cpu_s = self._acknowledged(), time.monotonic(), broker_s()
        self._drive(start + seconds)
        messages, elapsed, cpu_s = self._acknowledged() - before, time.monotonic() - start, broker_s() - cpu_s
        quiet = time.monotonic()
        while time.monotonic() - quiet < QUIET_S and self._missing(fan):
            if self._receive(False, 0.05):
                quiet = time.monotonic()
        self._poll.close()
        return Count(messages, elapsed, max(0, self._missing(fan)), cpu_s)

    def _acknowledged(self) -> int:
        return sum(ring.acknowledged for ring in self._publishers.values())

    def _missing(self, fan: int) -> int:
        sent = sum(ring.sent for ring in self._publishers.values())
        got = sum(acker.received for acker in self._receivers.values())
        return max(sent - self._acknowledged(), (sent * fan - got) if self._receivers else 0)

    def _drive(self, until: float) -> None:
        while time.monotonic() < until:
            self._receive(True, 0.05)

    def _receive(self, sending: bool, timeout_s: float) -> int:
        events = self._poll.poll(timeout_s, 4096)
        for fd, _ in events:
            ring = self._publishers.get(fd)
            if ring is not None:
                ring.take(sending)
            else:
                self._receivers[fd].take()
        return len(events)


# What clients of `Windowed` receive goes here: a fresh megabyte for every read took longer than the read.
_BUFFER = bytearray(CHUNK_BYTES)
_VIEW = memoryview(_BUFFER)


class _Ring:
    """A publisher whose packets carry the identifiers 1 to `window` in turn."""

    def __init__(self, client: socket.socket, topics: Sequence[str], window: int) -> None:
        self._client = client
        count = lcm(window, len(topics))
        packets = [packet(topics[n % len(topics)], qos=1, packet_id=n % window + 1) for n in range(count)]
        self._size = len(packets[0])
        self._count = count
        self._bytes = memoryview(b"".join(packets + packets[:window]))
        self._next = 0
        self._rest = 0
        self.sent = 0
        self.acknowledged = 0

    def send(self, count: int) -> None:
        at = self._next * self._size
        self._client.sendall(self._bytes[at : at + count * self._size])
        self._next = (self._next + count) % self._count
        self.sent += count

    def take(self, sending: bool) -> None:
        """PUBACKs are four bytes each and come in order [MQTT-4.6.0-2]."""
        size = self._client.recv_into(_BUFFER)
        if not size:
            raise UsageError("the broker closed a publisher's connection during the bench")
        count, self._rest = divmod(self._rest + size, 4)
        self.acknowledged += count
        if sending and count:
            self.send(count)


class _Acker:
    """A subscriber that answers every PUBLISH with its PUBACK."""

    def __init__(self, client: socket.socket, topic: str) -> None:
        self._client = client
        self._size = len(packet(topic, qos=1, packet_id=1))
        self._at = self._size - PAYLOAD_BYTES - 2  # where the packet identifier stands
        self._rest = b""
        self.received = 0

    def take(self) -> None:
        kept, size, at = len(self._rest), self._size, self._at
        _BUFFER[:kept] = self._rest
        got = self._client.recv_into(_VIEW[kept:])
        if not got:
            raise UsageError("the broker closed a subscriber's connection during the bench")
        count = (kept + got) // size
        self._rest = bytes(_VIEW[count * size : kept + got])
        if count:
            acks = bytearray(b"\x40\x02\x00\x00" * count)
            acks[2::4] = _BUFFER[at : count * size : size]
            acks[3::4] = _BUFFER[at + 1 : count * size : size]
            self._client.sendall(acks)
            self.received += count


def fan_in(
    publishers: Sequence[socket.socket],
    packets: Sequence[bytes],
    subscriber: socket.socket,
    delivered: tuple[int, int],
    seconds: float,
) -> Count:
    """Every publisher has one message under way; it sends the next when the subscriber has it, until the time is over.

    The last four bytes of a payload are the publisher's index; `delivered`: the size of what arrives, and how much of
    it comes behind the payload.
    """
    size, tail = delivered
    again = [partial(client.send, data) for client, data in zip(publishers, packets, strict=True)]
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    kept = got = counted_from = counted_to = 0
    for send in again:
        send()
    sent = len(again)
    poll = select.poll()
    poll.register(subscriber, select.POLLIN)
    begin = time.monotonic() + min(0.3, seconds / 4)  # what comes before it warms up
    until = end = 0.0
    while got < sent and poll.poll(QUIET_S * 1000):
        kept += subscriber.recv_into(view[kept:])
        count = kept // size
        if not end:
            for (number,) in struct.iter_unpack(f">{size - tail - 2}xH{tail}x", view[: count * size]):
                again[number]()
            sent += count
        got += count
        buffer[: kept - count * size] = buffer[count * size : kept]
        kept -= count * size
        now = time.monotonic()
        if not until and now >= begin:
            begin, until, counted_from = now, now + seconds, got
        elif until and not end and now >= until:
            end, counted_to = now, got
    lost = sent - got
    if not end:  # it fell silent before its time
        end, counted_to = max(time.monotonic(), begin + 1e-9), max(got, counted_from)
    return Count(counted_to - counted_from, end - begin, lost)


def in_pairs(pairs: Sequence[tuple[socket.socket, socket.socket, bytes]], size: int, seconds: float) -> Count:
    """Every publisher has one message under way to its own subscriber, and sends the next when that has arrived.

    `size` is that of a message as it is delivered.
    """
    poll = select.epoll()
    ends = {}
    for publisher, subscriber, data in pairs:
        ends[subscriber.fileno()] = (partial(subscriber.recv_into, bytearray(size)), partial(publisher.send, data))
        poll.register(subscriber.fileno(), select.EPOLLIN)
    for _, again in ends.values():
        again()
    missing = dict.fromkeys(ends, size)
    under_way, got, counted_from, counted_to = len(ends), 0, 0, 0
    begin = end = time.monotonic() + min(0.3, seconds / 4)  # what comes before it warms up
    until = 0.0
    while under_way:
        events = poll.poll(QUIET_S, 4096)
        if not events:
            break
        for fd, _ in events:
            receive, again = ends[fd]
            missing[fd] -= receive()
            if not missing[fd]:
                got += 1
                missing[fd] = size
                if until and end >= until:
                    under_way -= 1
                else:
                    again()
        now = time.monotonic()
        if not until and now >= begin:
            begin, until, counted_from = now, now + seconds, got
        elif not until or end < until:
            end, counted_to = now, got
    poll.close()
    return Count(counted_to - counted_from, max(end - begin, 1e-9), under_way)


def fan_out(
    publisher: socket.socket, data: Sequence[bytes], subscribers: Sequence[socket.socket], size: int, seconds: float
) -> Count:
    """One message at a time: the next is published when every subscriber has its `size` bytes. Deliveries count."""
    poll = select.epoll()
    receive = {client.fileno(): client.recv_into for client in subscribers}
    for fd in receive:
        poll.register(fd, select.EPOLLIN)
    buffer = bytearray(65536)
    wanted = size * len(subscribers)
    rounds = lost = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds and not lost:
        publisher.send(data[rounds % len(data)])
        got = 0
        while got < wanted:
            events = poll.poll(QUIET_S, 4096)
            if not events:
                lost = (wanted - got) // size
                break
            for fd, _ in events:
                got += receive[fd](buffer)
        rounds += 1
    elapsed = time.monotonic() - start
    poll.close()
    return Count(rounds * len(subscribers), elapsed, lost)


def latencies(
    pairs: Sequence[tuple[socket.socket, socket.socket, bytes]], size: int, rate: float, seconds: float
) -> tuple[list[int], int]:
    """Sends at a steady rate, one message per call; returns each one's nanoseconds on the way and how many were lost.
    `size` is that of a message as it is delivered.

    The generator never sleeps, so that its own waking up is not measured. Nor is its own absence: what was to be sent
    or was under way while it was kept from its core is not counted, since nobody saw when it came.
    """
    poll = select.epoll()
    receivers = {subscriber.fileno(): (subscriber, []) for _, subscriber, _ in pairs}  # type: dict[int, tuple[socket.socket, list[int]]]
    queues = [receivers[subscriber.fileno()][1] for _, subscriber, _ in pairs]
    rests = dict.fromkeys(receivers, 0)
    for fd in receivers:
        poll.register(fd, select.EPOLLIN)
    buffer = bytearray(65536)
    results: list[int] = []
    step = int(1e9 / rate)
    clock = time.monotonic_ns
    heads = dict.fromkeys(receivers, 0)
    due = clock()
    end = due + int(seconds * 1e9)
    index = sent = got = 0
    before = now = heard = due
    back = -1  # when the generator was there again
    while now < end or (got < sent and now - heard < QUIET_S * 1e9):
        now = clock()
        if now - before > STOPPED_NS:
            back = now
        before = now
        if now >= due and now < end:
            publisher, _, data = pairs[index]
            queues[index].append(due)  # when it was to be sent: a pause counts for all that it delays
            publisher.send(data)
            index = (index + 1) % len(pairs)
            sent += 1
            due += step
        for fd, _ in poll.poll(0, 64):
            subscriber, queue = receivers[fd]
            count, rests[fd] = divmod(rests[fd] + subscriber.recv_into(buffer), size)
            heard = clock()
            if heard - now > STOPPED_NS:
                back = heard
            head = heads[fd]
            results.extend([heard - moment for moment in queue[head : head + count] if moment > back])
            heads[fd] = head + count
            got += count
    poll.close()
    return results, sent - got
