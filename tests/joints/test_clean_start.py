"""A client begins anew while the broker of its session is away: that session is void when the broker is back.

A city of three live brokers with paho clients; nothing is known but what clients sent and got.
"""

from pathlib import Path

from metromq.federation.city import grid_city
from tests.clients.paho_client import Paho, client, properties, unique
from tests.scenarios.city import live_city

CITY = grid_city("geographic", count=3, hello_interval_ms=500)
KEPT = properties("CONNECT", SessionExpiryInterval=3600)
EACH = 4  # clients of a kind: each has another directory, one of them the broker that is away


def connected(name: str, port: int, clean: bool = False) -> tuple[Paho, bool]:
    made = Paho(5, name, clean=clean)
    code, session_present, _ = made.connect(port, properties=None if clean else KEPT)
    assert code == 0
    return made, session_present


def test_what_was_left_before_a_clean_start_does_not_come_back(tmp_path: Path) -> None:
    first, second, third = CITY.names
    gone, going_on = [unique("gone") for _ in range(EACH)], [unique("on") for _ in range(EACH)]
    with live_city(CITY, tmp_path) as live, client(live.ports[second]) as publisher:
        for name in gone + going_on:
            old, _ = connected(name, live.ports[first])
            old.subscribe("plain/old", 1)
            old.close()
        live.settle()
        live.kill(first)
        for name in gone + going_on:
            anew, _ = connected(name, live.ports[second], clean=True)
            anew.close()  # its session ends with it
        newer = []
        for name in going_on:
            one, session_present = connected(name, live.ports[third])
            assert not session_present
            one.subscribe("plain/new", 1)
            newer.append(one)
        live.start(first)
        live.settle()
        for topic in ("plain/old", "plain/new"):
            publisher.publish(topic, topic.encode(), 1)
        for one in newer:
            assert [message.payload for message in one.take(1)] == [b"plain/new"]
            assert one.nothing_more(), "what it had asked for before it began anew is void"
            one.close()
        for name in gone:
            back, session_present = connected(name, live.ports[first])
            assert not session_present, "it has begun anew since"
            assert back.nothing_more()
            back.close()
        for name in going_on:
            back, session_present = connected(name, live.ports[first])
            assert session_present, "its newer session is in the city, once"
            back.close()
