"""A session that moved is delivered once: city of three, paho, and nothing known but what clients sent and got."""

import threading
from pathlib import Path

import pytest

from metromq.federation.city import grid_city
from tests.clients.paho_client import Paho, client, properties, unique
from tests.scenarios.city import LiveCity, live_city

HELLO_MS = 200
GHOST_S = 12 * HELLO_MS / 1000  # beyond the eight hello intervals for which an old broker keeps collecting
KEPT = properties("CONNECT", SessionExpiryInterval=3600)


def resumed(live: LiveCity, broker: str, name: str) -> Paho:
    """The client, connected at the broker with the session that it has anywhere in the city."""
    made = Paho(5, name, clean=False)
    code, _, _ = made.connect(live.ports[broker], properties=KEPT)
    assert code == 0
    return made


def payloads(received: Paho, count: int) -> list[str]:
    return [message.payload.decode() for message in received.take(count)]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_moved_session_has_delivered_stays_delivered(tmp_path: Path, qos: int) -> None:
    first, second, third = grid_city("geographic", count=3, hello_interval_ms=HELLO_MS).names
    with live_city(grid_city("geographic", count=3, hello_interval_ms=HELLO_MS), tmp_path) as live:
        name, topic = unique("mover"), "3/3/0/0/moved"  # at home at the third broker
        at_first = resumed(live, first, name)
        at_first.subscribe("3/3/#", qos)
        at_first.close()
        wanted = [f"m{number}" for number in range(5)]
        with client(live.ports[third]) as publisher:
            for payload in wanted:
                publisher.publish(topic, payload.encode(), qos)
            live.settle()
            at_second = resumed(live, second, name)
            assert payloads(at_second, 5) == wanted
            assert at_second.nothing_more()
            threading.Event().wait(GHOST_S)  # the old broker has ended its copy by now
            at_second.close()
            back = resumed(live, first, name)
            publisher.publish(topic, b"new", qos)
            assert payloads(back, 1) == ["new"]
            assert back.nothing_more()
            back.close()
