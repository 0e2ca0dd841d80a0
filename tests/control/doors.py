"""A broker as far as control sees it: an HTTP door, and the file that says where it is."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from metromq.broker.door import Answer, HttpDoor, Page
from metromq.control.places import Place, keep_place


def fixed(answer: object, status: int = 200) -> Page:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda query: Answer(body, status=status)


@asynccontextmanager
async def door(pages: Mapping[str, Page]) -> AsyncIterator[str]:
    """The address of a door with these pages."""
    made = HttpDoor("127.0.0.1", 0, pages)
    await made.open()
    try:
        yield f"127.0.0.1:{made.port}"
    finally:
        await made.close()


def place(directory: Path, name: str, http: str, pid: int | None = None) -> Place:
    """Writes the file of a broker that runs in this process unless told otherwise."""
    made = Place(name, os.getpid() if pid is None else pid, "127.0.0.1:1883", http, 1.5)
    keep_place(directory / name, made)
    return made


def dead_pid() -> int:
    """The number of a process that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child
