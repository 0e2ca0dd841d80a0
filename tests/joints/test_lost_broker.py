"""A broker is killed: what its clients are told at another, what they get when it is back, and whose wills fire.

A city of three live brokers with paho clients; nothing is known but what clients sent and got.
"""

import socket
import threading
import time
from pathlib import Path

from metromq.federation.city import grid_city
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Connect, Subscribe, Subscription
from tests.clients.paho_client import Paho, client, properties, unique
from tests.scenarios.city import live_city

CITY = grid_city("geographic", count=3, hello_interval_ms=500)
KEPT = properties("CONNECT", SessionExpiryInterval=3600)
QUEUED = 100


def payloads(received: Paho, count: int) -> list[str]:
    return [message.payload.decode() for message in received.take(count)]


def with_will(name: str, topic: str, delay_s: int = 0) -> Paho:
    made = Paho(5, name, clean=False)
    made.paho.will_set(topic, name, 1, False, properties("WILLMESSAGE", WillDelayInterval=delay_s))
    return made


def received_but_not_released(port: int, name: str, topic: str, publisher: Paho) -> None:
    """A client of MQTT 3.1.1 that says PUBREC, and vanishes before it sees PUBREL; many show a message only then."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(encode(Connect(name, MQTT311, clean_start=False), MQTT311))
        assert sock.recv(4) == b"\x20\x02\x00\x00"
        sock.sendall(encode(Subscribe(1, [Subscription(topic, 2)]), MQTT311))
        assert sock.recv(5) == b"\x90\x03\x00\x01\x02"
        publisher.publish(topic, b"half", 2)
        length = 2 + 2 + len(topic) + 2 + len("half")
        packet = sock.recv(length, socket.MSG_WAITALL)
        packet_id = packet[-6:-4]
        sock.sendall(b"\x50\x02" + packet_id)
        assert sock.recv(4, socket.MSG_WAITALL) == b"\x62\x02" + packet_id


def test_a_session_of_a_killed_broker_is_added_when_the_broker_is_back_and_its_will_stays_silent(
    tmp_path: Path,
) -> None:
    first, second, third = CITY.names
    with live_city(CITY, tmp_path) as live, client(live.ports[third]) as watch:
        watch.subscribe("alarm/#", 1)
        name, topic = unique("mover"), "3/3/0/0/queued"  # at home at the third broker
        mover = with_will(name, f"alarm/{name}", delay_s=8)
        assert mover.connect(live.ports[first], properties=KEPT)[0] == 0
        mover.subscribe("3/3/#", 2)
        mover.kill()
        wanted = [f"m{number}" for number in range(QUEUED)]
        with client(live.ports[third]) as publisher:
            for payload in wanted:
                publisher.publish(topic, payload.encode(), 2)
        with client(live.ports[first]) as publisher:  # where the subscription is known at once
            half = unique("half")
            received_but_not_released(live.ports[first], half, "half/taken", publisher)
        live.settle()
        live.kill(first)
        returned = Paho(4, half, clean=False)
        assert returned.connect(live.ports[second])[0] == 0
        again = Paho(5, name, clean=False)
        code, session_present, _ = again.connect(live.ports[second], properties=KEPT)
        assert code == 0
        assert not session_present, "its broker is away: a new session, and the client is told so"
        again.subscribe("3/3/#", 2)
        threading.Event().wait(12.0)  # longer than the delay of the will
        live.start(first)
        assert sorted(payloads(again, QUEUED)) == sorted(wanted)
        assert again.nothing_more()
        assert payloads(returned, 1) == ["half"], "it may have shown it or not: rather twice than never"
        returned.close()
        assert watch.nothing_more(), "the client was alive elsewhere"
        again.close()


def test_wills_of_a_killed_brokers_clients_fire_once_and_soon(tmp_path: Path) -> None:
    _, second, third = CITY.names
    with live_city(CITY, tmp_path) as live, client(live.ports[second]) as watch:
        watch.subscribe("1/2/alarm/#", 1)
        names = [unique("lost") for _ in range(10)]
        lost = [with_will(name, f"1/2/alarm/{name}") for name in names]
        for one in lost:
            assert one.connect(live.ports[third], properties=KEPT)[0] == 0
        live.settle()
        live.kill(third)
        killed_at = time.monotonic()
        messages = watch.take(len(lost))
        assert time.monotonic() - killed_at > 5.0, "clients have five seconds to come back elsewhere"
        assert sorted(message.payload.decode() for message in messages) == sorted(names)
        for one in lost:
            one.kill()
        live.start(third)
        live.settle()
        threading.Event().wait(5.0)  # longer than a broker that is back listens
        assert watch.nothing_more()
