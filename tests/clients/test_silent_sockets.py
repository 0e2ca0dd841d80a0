"""Sockets that say nothing, in every stage before CONNECT, keep nobody out: paho enters at once beside hundreds."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.clients.conftest import Served
from tests.clients.paho_client import V5, Paho

SILENT = 200
UPGRADE = b"GET / HTTP/1.1\r\nHost: localhost\r\n"  # of a WebSocket, and not to its end


@contextmanager
def silent_sockets(port: int, count: int, words: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            one.sendall(words)
            made.append(one)
        yield made


def _limit(broker: Served, lines: str) -> None:
    broker.end()
    config = broker.directory / "metromq.toml"
    config.write_text(config.read_text().replace("[limits]\n", f"[limits]\n{lines}\n"))
    broker.start()


def _enters(broker: Served) -> None:
    """A client on each of the doors that it can open."""
    plain, secured, web = Paho(V5), Paho(V5).tls(broker.certificates), Paho(V5, transport="websockets")
    secured.paho.username_pw_set("ann", "wonderland")
    for one, port in ((plain, broker.tcp), (secured, broker.tls), (web, broker.ws)):
        assert one.connect(port)[0] == 0
        one.close()


def _still_open(sockets: list[socket.socket]) -> int:
    def is_open(one: socket.socket) -> bool:
        one.settimeout(0)
        try:
            return one.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    return sum(map(is_open, sockets))


def _until_open(sockets: list[socket.socket], wanted: int) -> None:
    """The test's own deadline ends what never comes true."""
    deadline = time.monotonic() + 30
    while (count := _still_open(sockets)) > wanted:
        assert time.monotonic() < deadline, f"{count} are open, {wanted} should be"
        time.sleep(0.05)


@pytest.mark.parametrize(("door", "words"), [("tcp", b""), ("tls", b""), ("ws", UPGRADE), ("tcp", b"\x10")])
def test_silent_sockets_do_not_count_as_clients(own_broker: Served, door: str, words: bytes) -> None:
    _limit(own_broker, "max_connections = 20\nconnect_timeout_s = 600")
    with silent_sockets(getattr(own_broker, door), SILENT, words):
        _enters(own_broker)


@pytest.mark.parametrize(("door", "words"), [("tcp", b""), ("tls", b""), ("ws", UPGRADE)])
def test_the_oldest_silent_socket_gives_way(own_broker: Served, door: str, words: bytes) -> None:
    _limit(own_broker, "max_unconnected = 50\nconnect_timeout_s = 600")
    with silent_sockets(getattr(own_broker, door), SILENT, words) as sockets:
        _enters(own_broker)
        _until_open(sockets, 50)
        assert _still_open(sockets[: SILENT - 50]) == 0


@pytest.mark.parametrize(("door", "words"), [("tcp", b""), ("tls", b""), ("tls", b"\x16"), ("ws", UPGRADE)])
def test_silence_ends_with_the_connect_time_out(own_broker: Served, door: str, words: bytes) -> None:
    _limit(own_broker, "connect_timeout_s = 0.5")
    with silent_sockets(getattr(own_broker, door), 5, words) as sockets:
        _until_open(sockets, 0)
    assert not [line for line in own_broker.log if "Traceback" in line], "".join(own_broker.log)


def test_handshakes_that_fail_leave_nothing_behind(own_broker: Served) -> None:
    """Each of them counted as a connection for ever."""
    _limit(own_broker, "max_connections = 20")
    hello = ssl.create_default_context()  # which does not know the authority
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", own_broker.tls), 30) as one, pytest.raises(ssl.SSLError):
            hello.wrap_socket(one, server_hostname="localhost")
    _enters(own_broker)
