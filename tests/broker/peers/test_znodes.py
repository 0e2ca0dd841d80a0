"""How brokers and workers reach the servers of an ensemble: soon again, however long these were away."""

import socket
import threading
import time
from contextlib import closing

import pytest

pytest.importorskip("kazoo")
from metromq.broker.peers.znodes import RETRY_S, Servers
from tests.broker.peers.test_ensemble import PATIENCE_S, city_on

TRIES = 10  # by then kazoo's own delays would be of half a minute


def test_servers_that_were_away_for_long_are_tried_every_second() -> None:
    tries: list[float] = []
    has_all = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as door:

        def refuse() -> None:
            while len(tries) < TRIES:
                door.accept()[0].close()
                tries.append(time.monotonic())
            has_all.set()

        threading.Thread(target=refuse, daemon=True).start()
        servers = Servers(city_on((f"127.0.0.1:{door.getsockname()[1]}",), "overlay"))
        try:
            servers.connect()
            assert has_all.wait(TRIES * RETRY_S * 3), f"{len(tries)} tries"
        finally:
            servers.close()


def test_a_client_whose_thread_has_died_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = threading.Semaphore(0)
    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        servers = Servers(city_on((f"127.0.0.1:{door.getsockname()[1]}",), "overlay"))
        connection = servers.client._connection

        def dies(retry: object) -> None:
            tries.release()
            raise RuntimeError("something that kazoo has not thought of")

        monkeypatch.setattr(connection, "_connect_loop", dies)
        monkeypatch.setattr(threading, "excepthook", lambda args: None)
        try:
            for _ in range(2):
                assert not servers.connect()
                assert tries.acquire(timeout=PATIENCE_S)
        finally:
            servers.close()
