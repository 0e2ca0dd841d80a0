"""The HTTP door: answers GET for a few pages, with so little code that sixteen brokers on one machine can afford it.

Orders are POSTs by whoever knows the broker's key, which is in a file that only its user can read.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from metromq.broker.doorstep import Knock
from metromq.errors import ConfigError
from metromq.protocol.session import Newcomers

MAX_HEAD_BYTES = 16 * 1024
PATIENCE_S = 10.0  # for a whole request
MOST_ASKERS = 100  # at a time; beyond that the oldest, who is the slowest, gives way
MAX_BODY_BYTES = 16 << 20
KEY_HEADER = "x-metromq-key"
REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    body: bytes
    kind: str = TEXT
    status: int = 200


Order = Callable[[bytes], HttpAnswer]  # gets the body
Page = Callable[[Mapping[str, str]], HttpAnswer]  # gets the query's parameters


class HttpListener:
    """One answer per connection; every page is quick, so it answers on the event loop."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Page], orders: Mapping[str, Order] | None = None, key: str = ""
    ) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._orders = orders or {}
        self._key = key
        self._askers = Newcomers(MOST_ASKERS)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise ConfigError(f"metrics {self._host}:{self._port}", f"cannot listen: {error.strerror}") from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        knock = Knock(writer.transport)
        self._askers.came(knock)
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                length = self.body_bytes(head)
                if length is None:
                    writer.write(self.answer(head))
                else:
                    writer.write(self.obey(head, await reader.readexactly(length)))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks badly, or leaves, gets nothing
        finally:
            self._askers.gone(knock)
            writer.close()

    def body_bytes(self, head: bytes) -> int | None:
        """How much follows the head of an order that may be given; None: it is none."""
        headers = _headers(head)
        length = headers.get("content-length", "0")
        is_order = head.startswith(b"POST ") and _path(head) in self._orders
        if not is_order or not self._key or not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return None
        return int(length) if hmac.compare_digest(headers.get(KEY_HEADER, "").encode(), self._key.encode()) else None

    def obey(self, head: bytes, body: bytes) -> bytes:
        return _response(self._orders[_path(head)](body), True)

    def answer(self, head: bytes) -> bytes:
        """The response to a request's head."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(HttpAnswer(b"this is not an HTTP/1 request\n", status=400), True)
        method, target, _ = words
        if method == "POST" and target in self._orders:
            return _response(HttpAnswer(b"orders need the broker's key\n", status=403), True)
        if method not in ("GET", "HEAD"):
            return _response(HttpAnswer(b"only GET is supported here\n", status=405), True)
        try:
            url = urlsplit(target)
        except ValueError as error:  # such as //[
            return _response(HttpAnswer(f"this is not an address: {error}\n".encode(), status=400), True)
        page = self._pages.get(url.path)
        if page is None:
            known = "\n".join(sorted(self._pages))
            return _response(HttpAnswer(f"pages here:\n{known}\n".encode(), status=404), method == "GET")
        return _response(page(dict(parse_qsl(url.query, keep_blank_values=True))), method == "GET")


def _path(head: bytes) -> str:
    return (head.split(b" ", 2)[1:2] or [b""])[0].decode("latin-1")


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def _response(answer: HttpAnswer, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {REASONS[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
