"""A filter with a thousand subscribers changes hands under load: how long that takes, and how long publishers wait."""

import multiprocessing
import os
import select
import threading
import time
from multiprocessing.connection import Connection
from statistics import median

from bench import generator
from bench.cities import bench_city
from bench.proxied import Values, hand
from metromq.federation.city import grid_city

FILTER = "hand/#"
TOPIC = "hand/7"
CALM_S = 1.0  # before, between and after
PUBACK_BYTES = 4


def _publish(ports: list[int], rate: float, pipe: Connection) -> None:
    """A QoS 1 publisher at each broker until it is told to stop; from when each was due to its acknowledgement."""
    clients = [generator.connect(port, f"pub-{port}") for port in ports]
    poll = select.epoll()
    waiting: dict[int, list[float]] = {}
    for client in clients:
        poll.register(client.fileno(), select.EPOLLIN)
        waiting[client.fileno()] = []
    by_fd = {client.fileno(): client for client in clients}
    rests = dict.fromkeys(by_fd, 0)
    found: list[tuple[float, float]] = []
    sent = 0
    due = time.monotonic()
    pipe.send(None)  # ready
    is_over = False
    while not is_over or any(waiting.values()):
        is_over = is_over or pipe.poll()
        now = time.monotonic()
        if not is_over and now >= due:
            client = clients[sent % len(clients)]
            sent += 1
            waiting[client.fileno()].append(due)
            client.sendall(generator.packet(TOPIC, qos=1, packet_id=sent % 60_000 + 1))
            due += 1 / rate
        for fd, _ in poll.poll(max(0.0, min(due - time.monotonic(), 0.01)), 64):
            count, rests[fd] = divmod(rests[fd] + len(by_fd[fd].recv(4096)), PUBACK_BYTES)
            now = time.monotonic()
            found += [(moment, now - moment) for moment in waiting[fd][:count]]
            del waiting[fd][:count]
    pipe.send((sent, found))


class _Readers:
    """A thousand subscribers of one process, read by one thread."""

    def __init__(self, ports: list[int], count: int) -> None:
        self.got = 0
        self._size = len(generator.packet(TOPIC))
        self._clients = [generator.connect(ports[n % len(ports)], f"sub-{n}", filter=FILTER) for n in range(count)]
        self._poll = select.epoll()
        for client in self._clients:
            self._poll.register(client.fileno(), select.EPOLLIN)
        self._by_fd = {client.fileno(): client for client in self._clients}
        self._bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        buffer = bytearray(1 << 16)
        while not self._end.is_set():
            for fd, _ in self._poll.poll(0.05, 4096):
                self._bytes += self._by_fd[fd].recv_into(buffer)
            self.got = self._bytes // self._size

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        for client in self._clients:
            client.close()


def hand_over(subscribers: int = 1000, rate: float = 20.0, times: int = 6) -> Values:
    """`rate`: messages a second, of three publishers together; each goes to every subscriber."""
    with bench_city(grid_city("delegation", count=3)) as running:
        _, first, second = running.city.names
        ports = [running.port(name) for name in running.city.names]
        readers = _Readers(ports, subscribers)
        hand(running, FILTER, first)
        running.settle()
        context = multiprocessing.get_context("spawn")
        pipe, far = context.Pipe()
        process = context.Process(target=_publish, args=(ports, rate, far), daemon=True)
        process.start()
        pipe.recv()
        load = os.getloadavg()[0]
        time.sleep(CALM_S)
        took, moments = [], []
        for number in range(times):
            begin = time.monotonic()
            took.append(hand(running, FILTER, (second, first)[number % 2]))
            moments.append((begin, time.monotonic()))
            time.sleep(CALM_S)
        pipe.send(None)
        sent, found = pipe.recv()
        process.join()
        end = time.monotonic() + 10
        while readers.got < sent * subscribers and time.monotonic() < end:
            time.sleep(0.1)
        readers.close()
    meanwhile = [wait for at, wait in found if any(begin - wait <= at <= end for begin, end in moments)]
    otherwise = [wait for at, wait in found if not any(begin - wait <= at <= end for begin, end in moments)]
    return {
        "hand-over s, median": median(took),
        "hand-over s, longest": max(took),
        "publishers meanwhile, max ms": max(meanwhile, default=0.0) * 1000,
        "publishers otherwise, max ms": max(otherwise, default=0.0) * 1000,
        "deliveries/s": rate * subscribers,
        "missing": float(sent * subscribers - readers.got),
        "load of the machine before": load,
    }
