"""A broker as far as control sees it: an HTTP listener, and the file that says where it is."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from metromq.broker.http_listener import HttpAnswer, HttpListener, Page
from metromq.control.data_directory import RunningBroker, keep_place


def fixed(answer: object, status: int = 200) -> Page:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda query: HttpAnswer(body, status=status)


@asynccontextmanager
async def pages_at(pages: Mapping[str, Page]) -> AsyncIterator[str]:
    """The address of a listener with these pages."""
    made = HttpListener("127.0.0.1", 0, pages)
    await made.open()
    try:
        yield f"127.0.0.1:{made.port}"
    finally:
        await made.close()


def place(directory: Path, name: str, http: str, pid: int | None = None) -> RunningBroker:
    """Writes the file of a broker that runs in this process unless told otherwise."""
    made = RunningBroker(name, os.getpid() if pid is None else pid, "127.0.0.1:1883", http, 1.5)
    keep_place(directory / name, made)
    return made


def dead_pid() -> int:
    """The number of a process that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child
