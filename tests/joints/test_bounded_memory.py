"""One client tries to fill a live broker's memory: topics as long as they may be, values as large as they may be.

What is measured are bytes: the process's largest size, and what it writes after it was told to end.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metromq.config import JournalConfig
from metromq.federation.city import grid_city
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, Connect, Publish, Subscribe, Subscription
from tests.clients.paho_client import DEADLINE_S, V5, Paho, client
from tests.peers import free_ports
from tests.scenarios.city import live_city

MIB = 1 << 20
TOPICS, TOPIC_BYTES = 8_190, 65_000
RETAINED_BYTES = 32 * MIB
VALUES = 300  # of a MiB each


def largest_bytes(pid: int) -> int:
    """The most memory that the process has had so far."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def written_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/io").read_text().partition("wchar:")[2].split()[0])


@contextmanager
def served(directory: Path, settings: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    (port,) = free_ports(1)
    config = directory / "metromq.toml"
    config.write_text(f'data_dir = "{directory}/data"\n[[listeners]]\nport = {port}\n{settings}')
    program = "from metromq.cli.main import main; main()"
    process = subprocess.Popen([sys.executable, "-c", program, "serve", "--config", str(config)])
    try:
        for _ in range(int(DEADLINE_S * 20)):
            try:
                socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
                break
            except OSError:
                threading.Event().wait(0.05)
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def flood(port: int, qos: int) -> None:
    """Every topic once; at QoS 1 the answers are read, so that all of them have been taken in the end."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as line:
        line.settimeout(DEADLINE_S)
        line.sendall(encode(Connect("flood", MQTT5, True), MQTT5))
        line.recv(100)
        answers = 0
        for number in range(TOPICS):
            topic = f"1/{number}/".ljust(TOPIC_BYTES, "x")
            line.sendall(encode(Publish(topic, b"", qos, False, False, 1 + number if qos else 0), MQTT5))
            if qos and number % 500 == 499:
                answers += len(line.recv(MIB))
        line.sendall(encode(Subscribe(1, [Subscription("end", 0)]), MQTT5))
        tail = b""
        while b"\x90" not in tail:  # SUBACK comes behind all the rest
            data = line.recv(MIB)
            assert data, "the broker hung up"
            tail = data


@pytest.mark.parametrize("qos", [0, 1])
def test_many_long_topics_at_one_broker(tmp_path: Path, qos: int) -> None:
    """8,190 of 65 kB each took 1.5 GB once."""
    with served(tmp_path, "[journal]\nkeep_bytes = 33554432\n") as (process, port), client(port) as reader:
        reader.subscribe("1/+/#", 0)
        before = largest_bytes(process.pid)
        flood(port, qos)
        grown = largest_bytes(process.pid) - before
    assert grown < 150 * MIB, f"{grown >> 20} MiB for {TOPICS * TOPIC_BYTES >> 20} MiB of topics"


@pytest.mark.parametrize("qos", [0, 1])
def test_many_long_topics_in_a_city(tmp_path: Path, qos: int) -> None:
    """Routes between brokers are remembered by topic too; and what waits for a link that is slower than its publishers
    (this one goes through a relay in Python) counts with its topics: at QoS 0 they took 300 MiB once."""
    settings = {"journal": JournalConfig(keep_bytes=32 * MIB)}
    with live_city(grid_city("geographic", l_b=1, l_c=0, count=2), tmp_path, settings) as live:
        first, second = live.city.names
        with client(live.ports[second]) as reader:
            reader.subscribe("1/+/#", 0)
            live.settle()
            pids = [live._processes[name].pid or 0 for name in (first, second)]
            before = [largest_bytes(pid) for pid in pids]
            flood(live.ports[first], qos)
            live.settle()
            grown = [largest_bytes(pid) - size for pid, size in zip(pids, before, strict=True)]
    # Remembered are some 10 MiB, up to 16 MiB may wait for a link; the C library holds some more.
    assert max(grown) < 100 * MIB, f"{[one >> 20 for one in grown]} MiB for {TOPICS * TOPIC_BYTES >> 20} MiB of topics"


def test_retained_values_are_bounded_and_a_broker_that_is_told_to_end_does(tmp_path: Path) -> None:
    """1,500 values of a MiB took 1.8 GB once, and each one's snapshot was written at the end, one after the other."""
    settings = f"[limits]\nmax_packet_size_bytes = 2097152\nmax_retained_bytes = {RETAINED_BYTES}\n"
    settings += "[journal]\nsnapshot_bytes = 1048576\nkeep_bytes = 67108864\n"
    with served(tmp_path, settings) as (process, port):
        before = largest_bytes(process.pid)
        codes: list[int] = []
        sender = Paho(V5)
        sender.connect(port)
        sender.paho.on_publish = lambda client, data, mid, code, properties: codes.append(code.value)
        for number in range(VALUES):
            sender.paho.publish(f"value/{number}", bytes(MIB), 1, retain=True).wait_for_publish(DEADLINE_S)
        sender.close()
        assert codes.count(0x97) >= VALUES - RETAINED_BYTES // MIB, "who finds no room is refused"
        grown = largest_bytes(process.pid) - before
        assert grown < 6 * RETAINED_BYTES, f"{grown >> 20} MiB"
        written = written_bytes(process.pid)
        process.send_signal(signal.SIGTERM)
        last = written
        while process.poll() is None:
            try:
                last = max(last, written_bytes(process.pid))
            except (OSError, IndexError):
                break
        assert process.wait(DEADLINE_S) == 0
        assert last - written < 4 * RETAINED_BYTES, "the snapshot that is being written, and a last one"
    assert len(list((tmp_path / "data" / "journal").glob("*.snap"))) <= 2
    assert os.path.getsize(max((tmp_path / "data" / "journal").glob("*.snap"))) < 2 * RETAINED_BYTES
