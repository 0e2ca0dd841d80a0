"""The HTTP door: what it answers, and to whom it does not."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from metromq.broker.http_listener import MAX_HEAD_BYTES, HttpAnswer, HttpListener
from metromq.broker.meter import Meter
from metromq.config import Config, Listener, Metrics
from metromq.federation.status import broker_from_json
from tests.peers import free_ports, metromq, play


def echo(query: Mapping[str, str]) -> HttpAnswer:
    return HttpAnswer(json.dumps(dict(query)).encode(), "application/json")


DOOR = HttpListener("127.0.0.1", 0, {"/echo": echo})


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        ("GET /echo?topic=1/%2B/%23&x= HTTP/1.1", 200, b'{"topic": "1/+/#", "x": ""}'),
        ("HEAD /echo HTTP/1.0", 200, b""),
        ("GET /other HTTP/1.1", 404, b"pages here:\n/echo\n"),
        ("POST /echo HTTP/1.1", 405, b"only GET is supported here\n"),
        ("GET //[ HTTP/1.1", 400, b"this is not an address: Invalid IPv6 URL\n"),
        ("GET /echo", 400, b"this is not an HTTP/1 request\n"),
        ("\x16\x03\x01 hello there", 400, b"this is not an HTTP/1 request\n"),
    ],
)
def test_answers(request_line: str, status: int, body: bytes) -> None:
    head, _, got = DOOR.answer(f"{request_line}\r\nHost: x\r\n\r\n".encode("latin-1")).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert got == body


def test_an_endless_request_is_cut_off() -> None:
    async def story() -> bytes:
        door = HttpListener("127.0.0.1", 0, {"/echo": echo})
        await door.open()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(b"GET /" + b"a" * (2 * MAX_HEAD_BYTES))
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()
        finally:
            await door.close()

    assert play(story()) == b""


def test_a_lone_broker_shows_itself(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = Config("lonely", tmp_path, "memory", (Listener(port=0),), metrics=Metrics(port=port))
    with metromq(config) as server:
        base = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{base}/status") as answer:
            status = broker_from_json(json.load(answer))
        assert (status.name, status.state, status.listen) == ("lonely", "up", f"127.0.0.1:{server.port}")
        assert (status.clients, status.links, status.areas) == (0, (), ())
        with urllib.request.urlopen(f"{base}/healthz") as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{base}/metrics") as answer:
            assert b"metromq_clients_connected 0.0" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/explain?topic=a")


def test_rates_are_of_the_last_seconds() -> None:
    meter = Meter()
    assert meter.rate("messages") == 0
    for second in range(20):
        meter.sample(float(second), {"messages": 0 if second < 10 else (second - 10) * 7})
    assert meter.rate("messages") == 7
    assert meter.rate("unknown") == 0
