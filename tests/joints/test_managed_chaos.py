"""Manager, proxy, edge broker and central broker are killed in turn under load: every acknowledged message arrives."""

import itertools
import os
import signal
import threading
from pathlib import Path

import pytest
from paho.mqtt.client import MQTT_ERR_SUCCESS

from metromq.control import ManagerDoor
from tests.clients.paho_client import Paho, properties, unique
from tests.control.manager.live import (
    CENTRAL,
    FIRST,
    SECOND,
    LiveCity,
    example,
    live_city,
    service,
    wait_for,
)
from tests.joints.test_manager import owners
from tests.peers import free_port

pytestmark = pytest.mark.timeout(600)  # for a machine that is busy: each takes some seconds

KEPT = {"SessionExpiryInterval": 3600}


class Stream:
    """A publisher through the proxy that comes back by itself; `sent` was acknowledged."""

    def __init__(self, port: int, topic: str) -> None:
        self.sent: list[int] = []
        self._topic = topic
        self._paho = Paho(5, unique("stream"), clean=False)
        self._paho.paho.reconnect_delay_set(1, 1)
        assert self._paho.connect(port, properties=properties("CONNECT", **KEPT))[0] == 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        for number in itertools.count():
            info = self._paho.paho.publish(self._topic, str(number).encode(), 1)
            info.rc = MQTT_ERR_SUCCESS  # where there is no connection it waits for one, and is_published() would raise
            while not info.is_published():
                if self._end.wait(0.005):
                    return
            self.sent.append(number)
            if self._end.wait(0.005):
                return

    def more(self, count: int) -> None:
        wanted = len(self.sent) + count
        wait_for(lambda: len(self.sent) >= wanted, f"{count} more messages on {self._topic} are acknowledged")

    def stop(self) -> list[int]:
        self._end.set()
        self._thread.join(60)
        self._paho.close()
        return self.sent


def kill_edge(city: LiveCity) -> None:
    """The manager started it."""
    os.kill(int((city.data / "manager" / "run" / f"broker-{FIRST}.pid").read_text()), signal.SIGKILL)


def clients_at(door: ManagerDoor, name: str) -> int:
    """The service is one of them; who publishes through a proxy is one if the proxy was told."""
    return int(next(one["clients"] for one in door.ask("GET", "/status")["brokers"] if one["name"] == name))


def test_everything_is_killed_in_turn_and_every_acknowledged_message_arrives(tmp_path: Path) -> None:
    with live_city(tmp_path, CENTRAL, SECOND) as city:
        door = city.start_manager()
        gate = free_port()
        city.start_proxy(door, "gate", gate)
        body = service("parking", "near/#", command=example("parking"), device=FIRST)
        done = door.ask("POST", "/services", body, wait_s=90)
        assert done["phase"] == "done", done
        assert any(step["result"] == "1 of 1 proxies know" for step in done["steps"]), done
        reader = Paho(5, unique("reader"), clean=False)
        assert reader.connect(city.port(SECOND), properties=properties("CONNECT", **KEPT))[0] == 0
        reader.subscribe("near/#", 1)
        reader.subscribe("far/#", 1)
        streams = {topic: Stream(gate, topic) for topic in ("near/1", "far/1")}

        def more() -> None:
            for stream in streams.values():
                stream.more(15)

        more()
        wait_for(lambda: clients_at(door, FIRST) >= 2, "the stream near it has reached the edge broker by the tunnel")
        city.kill("manager")
        more()
        door = city.start_manager()
        city.kill("gate")
        city.start_proxy(door, "gate", gate)
        more()
        kill_edge(city)
        more()
        wait_for(lambda: owners(door).get("near/#") == FIRST, "the edge broker is back and has its topics again")
        more()
        city.kill(CENTRAL)
        city.start_broker(CENTRAL)
        more()
        sent = {topic: stream.stop() for topic, stream in streams.items()}
        missing = {(topic, number) for topic, numbers in sent.items() for number in numbers}

        def all_there() -> bool:
            while not reader.messages.empty():
                message = reader.messages.get()
                missing.discard((message.topic, int(message.payload)))
            return not missing

        wait_for(all_there, "every acknowledged message arrives")
        reader.close()
