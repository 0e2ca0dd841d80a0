"""An edge broker is killed behind a proxy, and comes back: its clients get everything, and at QoS 2 once.

Live brokers, a proxy and clients of paho; nothing is known but what clients sent and got.
"""

import asyncio
import itertools
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metromq.control import delegate
from tests.clients.paho_client import Paho, client, properties, unique
from tests.control.manager.live import CENTRAL, FIRST, SECOND, LiveCity, live_city, wait_for
from tests.gateway.test_proxy import gateway

pytestmark = pytest.mark.timeout(600)  # for a machine that is busy: it takes some seconds

EDGE, FILTER = FIRST, "near/#"
KEPT = properties("CONNECT", SessionExpiryInterval=3600)
NEVER, BEFORE, AFTER, TWICE = "never", "before it is back", "when it is back", "before and when it is back"


class Reader:
    """A client through the proxy with a topic of its own; `sent` are the payloads that were published to it."""

    def __init__(self, entrance: int, version: int, comes_again: str, clean: bool = False) -> None:
        self.comes_again = comes_again
        self.topic = f"near/{unique('t')}"
        self.sent = 0
        self.got: Counter[int] = Counter()
        self._entrance, self._is_kept5 = entrance, version == 5 and not clean
        self._paho = Paho(version, unique("reader"), clean=clean)
        self.enter()
        assert self._paho.subscribe(self.topic, 2) == [2]

    def __repr__(self) -> str:
        return f"{self._paho.version} {self.comes_again}"

    def enter(self) -> None:
        """The same client each time: it goes on with QoS 2 messages that it has confirmed and not shown."""
        options = {"properties": KEPT} if self._is_kept5 else {}
        assert self._paho.connect(self._entrance, **options)[0] == 0

    def leave(self) -> None:
        self._paho.kill()

    def take(self) -> None:
        while not self._paho.messages.empty():
            message = self._paho.messages.get()
            if message.topic == self.topic:
                self.got[int(message.payload)] += 1

    def has(self, number: int) -> bool:
        self.take()
        return number in self.got

    @property
    def missing(self) -> list[int]:
        self.take()
        return sorted(set(range(self.sent)) - set(self.got))

    def rest(self) -> None:
        """Until brokers have heard all that it has said: what it had not confirmed could come again."""
        self._paho.subscribe(f"near/{unique('rest')}", 1)
        self.take()

    def close(self) -> None:
        self._paho.close()


def hand_out(city: LiveCity) -> None:
    def is_handed() -> bool:
        found = asyncio.run(delegate(city.city, city.data, FILTER, EDGE, 10.0))
        return found is not None and found.broker == EDGE

    wait_for(is_handed, f"{EDGE} has {FILTER}")


def publish(city: LiveCity, readers: list[Reader], count: int) -> None:
    with client(city.port(SECOND)) as writer:
        for _, reader in itertools.product(range(count), readers):
            writer.publish(reader.topic, str(reader.sent).encode(), 2)
            reader.sent += 1


def await_links(city: LiveCity) -> None:
    """Until the broker hears the others: who comes earlier goes on with the session that it has."""
    topic = unique("back")
    with client(city.port(EDGE)) as listener, client(city.port(SECOND)) as writer, client(city.port(CENTRAL)) as other:
        listener.subscribe(topic, 1)

        def is_heard() -> bool:
            writer.publish(topic, b"second", 1)
            other.publish(topic, b"central", 1)
            heard.update(message.payload for message in drained(listener))
            return len(heard) == 2

        heard: set[bytes] = set()
        wait_for(is_heard, f"{EDGE} hears the others")


def drained(listener: Paho) -> list[Any]:
    return [listener.messages.get() for _ in range(listener.messages.qsize())]


def come_again(city: LiveCity, readers: list[Reader]) -> None:
    for reader in readers:
        reader.leave()
    publish(city, readers, 3)
    for reader in readers:
        reader.enter()
    publish(city, readers, 3)


def test_clients_of_an_edge_broker_that_is_killed_get_everything_and_at_qos_2_once(tmp_path: Path) -> None:
    with live_city(tmp_path, CENTRAL, EDGE, SECOND) as city, gateway() as made:
        entrance = made.open(city.port(CENTRAL), {EDGE: city.port(EDGE)}, {FILTER: EDGE})
        hand_out(city)
        kept = [Reader(entrance, *how) for how in itertools.product((4, 5), (NEVER, BEFORE, AFTER, TWICE))]
        clean = [Reader(entrance, version, NEVER, clean=True) for version in (4, 5)]
        publish(city, kept + clean, 5)
        for reader in kept + clean:
            wait_for(partial(reader.has, 4), "what is published comes")
            reader.rest()

        city.kill(EDGE)
        publish(city, kept, 3)  # while nobody may have noticed
        for reader in kept + clean:

            def is_served(reader: Reader = reader) -> bool:
                publish(city, [reader], 1)
                return reader.has(reader.sent - 2)

            wait_for(is_served, f"the topics of {reader} come by the central broker")
            reader.rest()
        come_again(city, [reader for reader in kept if reader.comes_again in (BEFORE, TWICE)])
        city.start_broker(EDGE)
        await_links(city)
        come_again(city, [reader for reader in kept if reader.comes_again in (AFTER, TWICE)])

        wait_for(lambda: not any(reader.missing for reader in kept), "every acknowledged message comes")
        publish(city, kept + clean, 1)
        for reader in kept + clean:
            wait_for(partial(reader.has, reader.sent - 1), "the last message comes")
            reader.rest()
            twice = [number for number, times in reader.got.items() if times > 1]
            assert not twice, f"{reader} got twice: {twice}"
            reader.close()
