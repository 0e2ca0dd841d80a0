"""The disk of a live broker is full, and then it is not: what was acknowledged is not lost, and nothing else is.

paho clients, real brokers, a real file system of a few megabytes; nothing is known but what clients sent and got.
"""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from metromq.config import JournalConfig
from metromq.federation.city import grid_city
from tests.clients.paho_client import DEADLINE_S, V5, V311, Paho, client, properties, unique
from tests.peers import free_ports
from tests.scenarios.city import live_city
from tests.small_disk import SmallDisk, small_disk

KEPT = properties("CONNECT", SessionExpiryInterval=3600)
DISK_BYTES = 32 << 20
RESERVE_BYTES = 4 << 20
QUOTA_EXCEEDED = 0x97
PACKET_IDENTIFIER_NOT_FOUND = 0x92
# With a reserve, messages are refused before the disk is full; without one, when a write finds no room.
RESERVES = {"reserve": RESERVE_BYTES, "none": 0}

CONFIG = """
data_dir = "{directory}/data"
durability = "{durability}"
[[listeners]]
port = 0
[metrics]
port = {http}
[journal]
segment_bytes = 1048576
snapshot_bytes = 1048576
min_free_bytes = {reserve}
"""


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Served:
    """`metromq serve`; its log, and its ports, which are in there."""

    def __init__(self, config: Path, http: int) -> None:
        self.http = http
        program = "from metromq.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.port = self._port(r"listening .*port=(\d+)")

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))

    def _port(self, pattern: str) -> int:
        wait_until(lambda: self.logged(pattern) > 0, f"{pattern} in\n" + "".join(self.log))
        return int(next(found.group(1) for line in self.log if (found := re.search(pattern, line))))

    def logged(self, pattern: str) -> int:
        return sum(re.search(pattern, line) is not None for line in list(self.log))

    def problem(self) -> str:
        with urlopen(f"http://127.0.0.1:{self.http}/status", timeout=DEADLINE_S) as page:
            return str(json.load(page)["problem"])

    def health(self) -> int:
        with urlopen(f"http://127.0.0.1:{self.http}/healthz", timeout=DEADLINE_S) as page:
            return int(page.status)

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(DEADLINE_S)


@contextmanager
def served(config: Path, http: int) -> Iterator[Served]:
    made = Served(config, http)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end(signal.SIGKILL)


def keeper(port: int, name: str) -> Paho:
    made = Paho(V5, name, clean=False)
    code, _, _ = made.connect(port, properties=KEPT)
    assert code == 0
    return made


def code_of(sender: Paho, payload: str, qos: int) -> int:
    """The reason code with which a broker answers a PUBLISH of MQTT 5."""
    codes: list[int] = []
    done = threading.Event()

    def answered(client: object, data: object, mid: int, code: object, properties: object) -> None:
        codes.append(int(getattr(code, "value", 0)))
        done.set()

    sender.paho.on_publish = answered
    sender.paho.publish("1/2/disk", payload, qos)
    assert done.wait(DEADLINE_S)
    return codes[0]


def until_refused(sender: Paho, acknowledged: list[str]) -> None:
    """The broker asks the file system only now and then."""
    for number in range(5_000):
        payload = f"filling {number} at 1"
        if code_of(sender, payload, 1) == QUOTA_EXCEEDED:
            return
        acknowledged.append(payload)
    raise AssertionError("a full disk was never noticed")


def received(asked: Paho, acknowledged: list[str]) -> "Counter[str]":
    """Until all have come; paho shows QoS 2 messages when they are released, behind others."""
    got: Counter[str] = Counter()
    missing = set(acknowledged)
    while missing:
        payload = asked.messages.get(timeout=DEADLINE_S).payload.decode()
        got[payload] += 1
        missing.discard(payload)
    return got


def check(got: "Counter[str]", acknowledged: list[str], tried: list[str]) -> None:
    assert [payload for payload in acknowledged if not got[payload]] == [], "acknowledged and lost"
    assert [payload for payload, count in got.items() if payload.endswith("at 2") and count > 1] == []
    assert set(got) <= {*acknowledged, *tried}


@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("reserve", sorted(RESERVES))
@pytest.mark.parametrize("killed", [False, True])
def test_one_broker(tmp_path: Path, durability: str, reserve: str, killed: bool) -> None:
    config = tmp_path / "metromq.toml"
    (http,) = free_ports(1)
    text = CONFIG.format(directory=tmp_path, durability=durability, reserve=RESERVES[reserve], http=http)
    config.write_text(text)
    name, acknowledged = unique("keeper"), []
    with small_disk(tmp_path / "data", DISK_BYTES) as disk:
        with served(config, http) as broker:
            asked = keeper(broker.port, name)
            asked.subscribe("1/2/disk", 2)
            asked.close()
            with client(broker.port) as sender:
                for number in range(20):
                    acknowledged.append(f"before {number} at {1 + number % 2}")
                    assert code_of(sender, acknowledged[-1], 1 + number % 2) == 0
                disk.fill()
                until_refused(sender, acknowledged)
                assert code_of(sender, "refused at 1", 1) == QUOTA_EXCEEDED
                # paho answers PUBREC with PUBREL also where it refuses, and hears that nothing is known of that.
                assert code_of(sender, "refused at 2", 2) in (QUOTA_EXCEEDED, PACKET_IDENTIFIER_NOT_FOUND)
                older = Paho(V311)
                older.connect(broker.port)
                older.paho.reconnect_delay_set(1, 1)
                older.paho.publish("1/2/disk", "older at 1", 1)
                older.disconnects.get(timeout=DEADLINE_S)  # which has no refusal
                wait_until(lambda: broker.logged("disk is full") > 0, "the log says so")
                wait_until(lambda: "disk is full" in broker.problem(), "the status says so")
                assert broker.health() == 200, "a restart would not help"
                assert broker.logged("disk is full") < 5, "but not all the time"
                if killed:
                    older.kill()
                    broker.end(signal.SIGKILL)
                    disk.empty()
                else:
                    disk.empty()
                    wait_until(lambda: not broker.problem(), "the status is well again")
                    wait_until(lambda: broker.logged("has room again") > 0, "the log says so")
                    acknowledged.append("after at 2")
                    assert code_of(sender, "after at 2", 2) == 0
                    older.close()
                    broker.end(signal.SIGTERM)
        with served(config, http) as broker:
            asked = keeper(broker.port, name)
            with client(broker.port) as sender:
                assert code_of(sender, "last at 1", 1) == 0
            acknowledged.append("last at 1")
            check(received(asked, acknowledged), acknowledged, ["older at 1"])
            assert asked.nothing_more()
            asked.close()


@pytest.mark.parametrize("reserve", sorted(RESERVES))
@pytest.mark.parametrize("killed", [False, True])
def test_one_broker_of_a_city(tmp_path: Path, reserve: str, killed: bool) -> None:
    """Its peers keep what it has no room for, however often it refuses that, and however it ends."""
    city = grid_city("geographic", l_b=1, l_c=0, count=3)
    first, second, _ = city.names
    journal = JournalConfig(min_free_bytes=RESERVES[reserve], segment_bytes=1 << 20, snapshot_bytes=1 << 20)
    name, acknowledged = unique("keeper"), []
    with (
        small_disk(tmp_path / second, DISK_BYTES) as disk,
        live_city(city, tmp_path, {"journal": journal}) as live,
        client(live.ports[first]) as sender,
    ):
        asked = keeper(live.ports[second], name)
        asked.subscribe("+/2/disk", 2)
        asked.close()
        live.settle()

        def publish(text: str, count: int) -> None:
            for number in range(count):
                for area in ("0", "1", "2", "3"):  # each broker is at home in one of them
                    acknowledged.append(f"{text} {number} in {area} at {1 + number % 2}")
                    sender.publish(f"{area}/2/disk", acknowledged[-1].encode(), 1 + number % 2)

        publish("before", 5)
        live.settle()
        disk.fill()
        publish("meanwhile", 40)
        _wait_for_attempts(disk)
        with client(live.ports[second]) as refused:  # who asks there hears it, whatever else waits for room
            assert code_of(refused, "refused at 1", 1) == QUOTA_EXCEEDED
        publish("later", 10)
        if killed:
            live.kill(second)
        disk.empty()
        if killed:
            live.start(second)
        publish("after", 5)
        live.settle()
        asked = keeper(live.ports[second], name)
        publish("last", 1)
        check(received(asked, acknowledged), acknowledged, [])
        assert asked.nothing_more()
        asked.close()


def _wait_for_attempts(disk: SmallDisk) -> None:
    """Peers have tried a few times; no assertion depends on it."""
    assert disk.free_bytes < RESERVE_BYTES
    threading.Event().wait(3.0)
