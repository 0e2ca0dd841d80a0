"""The process that reads the journal for replays, so that the broker's own loop does not.

It answers requests for records, and makes whole replays: merges the journals of a city and writes the packets that a
client gets. It has a low priority and a rate, and does for each client only as much as that client takes.
"""

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from metromq.broker.auth.acl import Acl, load_acl
from metromq.broker.replaying import channel
from metromq.broker.replaying.asking import Peers
from metromq.broker.replaying.merging import CLOCKS_APART_US, Merge
from metromq.broker.replaying.packets import PacketWriter
from metromq.broker.replaying.reading import ReplayReader
from metromq.errors import ConfigError, MetroError, UsageError
from metromq.protocol.replay import (
    BAD,
    FetchAnswer,
    FetchRequest,
    decode_request,
    encode_answer,
    failed,
)

NICENESS = 10
CHUNK_BYTES = 1 << 16  # of packets, that are sent before the client must have taken the last ones
CREDITS = 2
SETTLE_S = 1.0  # far more than the lag after which the whole city knows of a subscription (docs/guarantees.md)
SHORT_S = 1.0  # a round that takes no longer leaves little to catch up with
PIPE_BYTES = 1 << 20  # the most that Linux gives to anyone: room for a whole answer, so that it is written at once
FLUSH_TRIES = 1000  # the broker hands what it has accepted to the system within milliseconds


class Pace:
    """Keeps a rate: whoever has read too much waits."""

    def __init__(self, bytes_per_s: int) -> None:
        self._rate = bytes_per_s
        self._free_at = time.monotonic()

    async def spent(self, size: int) -> None:
        if self._rate:
            self._free_at = max(self._free_at, time.monotonic() - 0.1) + size / self._rate
            await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
        else:
            await asyncio.sleep(0)


class Rights:
    """The access list, read again when its file has changed."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._read_at = 0
        self._acl: Acl | None = None

    def of(self, username: str, client_id: str) -> Callable[[str], bool]:
        changed = self._file.stat().st_mtime_ns
        if changed != self._read_at or self._acl is None:
            try:
                self._acl, self._read_at = load_acl(self._file), changed
            except ConfigError:
                if self._acl is None:
                    raise
        access = self._acl.for_client(username or None, client_id)
        return access.may_read


class Worker:
    """Runs until the broker closes the pipe."""

    def __init__(self, setup: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self._name: str = setup["name"]
        self._reader = ReplayReader(self._name, Path(setup["journal"]))
        self._pace = Pace(setup["max_bytes_per_s"])
        self._rights = Rights(setup["acl"]) if setup["acl"] else None
        self._peers = Peers(setup)
        self._peer_names: list[str] = list(setup["peers"])
        self._writer = writer
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[int, _StreamJob] = {}

    def heard(self, kind: int, job: int, body: bytes) -> None:
        if kind == channel.FETCH:
            self._begin(job, self._fetch(job, json.loads(body)))
        elif kind == channel.STREAM:
            self._streams[job] = stream = _StreamJob(self, job, json.loads(body))
            self._begin(job, stream.run())
        elif kind == channel.STOP:
            self._streams.pop(job, None)
            if job in self._jobs:
                self._jobs.pop(job).cancel()
        elif job in self._streams:
            self._streams[job].heard(kind, body)

    def _begin(self, job: int, work: Any) -> None:
        task = asyncio.create_task(work)
        self._jobs[job] = task
        task.add_done_callback(lambda _: (self._jobs.pop(job, None), self._streams.pop(job, None)))

    def say(self, kind: int, job: int, body: bytes = b"") -> None:
        self._writer.write(channel.note(kind, job, body))

    async def drained(self) -> None:
        await self._writer.drain()

    def may_read(self, job: dict[str, Any]) -> Callable[[str], bool] | None:
        if self._rights is None or job["is_peer"]:
            return None
        return self._rights.of(job["username"], job["client_id"])

    async def _fetch(self, number: int, job: dict[str, Any]) -> None:
        try:
            request = decode_request(job["request"].encode())
            request.max_bytes = min(request.max_bytes, job["max_bytes"])
            answer = await self.read(request, self.may_read(job))
        except (UsageError, OSError) as error:
            answer = failed(BAD, str(error))
        self.say(channel.ANSWER, number, encode_answer(answer))
        await self.drained()

    async def read(self, request: FetchRequest, may_read: Callable[[str], bool] | None) -> FetchAnswer:
        before = self._reader.read_bytes
        answer = self._reader.answer(request, may_read)
        await self._pace.spent(self._reader.read_bytes - before)
        return answer

    def merge(self, job: dict[str, Any]) -> Merge:
        """All brokers of the city; this one's rights apply to what the client gets."""

        async def own(request: FetchRequest) -> FetchAnswer:
            return await self.read(request, self.may_read(job))

        def of_peer(peer: str) -> Any:
            return lambda request: self._peers.ask(peer, request)

        brokers = {self._name: own} | {peer: of_peer(peer) for peer in self._peer_names}
        return Merge(self._name, brokers, job["filter"], job["since_us"], job["offset"])

    def has_peers(self) -> bool:
        return bool(self._peer_names)


class _StreamJob:
    """One replay for one client."""

    def __init__(self, worker: Worker, number: int, job: dict[str, Any]) -> None:
        self._worker = worker
        self._number = number
        self._job = job
        self._credits = CREDITS
        self._wake = asyncio.Event()
        self._switched = -1
        self._merge = worker.merge(job)
        self._packets = PacketWriter(job["version"], job["max_packet_bytes"], tuple(job["identifiers"]))
        self._loose: list[tuple[str, int, str, int]] = []  # of QoS 0, what may come live as well
        self._began = time.monotonic()
        self._began_us = time.time_ns() // 1000

    def heard(self, kind: int, body: bytes) -> None:
        if kind == channel.GO_ON:
            self._credits += 1
        elif kind == channel.SWITCHED:
            self._switched = json.loads(body)["offset"]
        self._wake.set()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:  # whatever it is: a client that hears of it can ask again
            if not isinstance(error, MetroError):
                traceback.print_exc()
            self._worker.say(channel.FAILED, self._number, str(error).encode())
            await self._worker.drained()

    async def _run(self) -> None:
        await self._merge.open()
        while True:
            await self._catch_up()
            await self._switch()

    async def _catch_up(self) -> None:
        """In rounds, until one is so short that hardly anything can have come meanwhile."""
        took = SHORT_S + 1
        while took > SHORT_S:
            began = time.monotonic()
            await self._send_all()
            await self._merge.reach({})
            took = time.monotonic() - began

    async def _switch(self) -> None:
        """Live messages wait while the last ones are sent; returns if too many came meanwhile."""
        self._switched = -1
        self._worker.say(channel.SWITCH, self._number)
        offset = await self._until_switched()
        if self._worker.has_peers() and self._merge.offset < 0:
            await asyncio.sleep(max(0.0, SETTLE_S - (time.monotonic() - self._began)))
        await self._until_written(offset)
        await self._merge.reach({self._merge.name: offset})
        await self._send_all()
        told = {
            "limits": self._merge.limits(),
            "seen": sorted(self._merge.seen),
            "loose": self._loose,
        }
        self._worker.say(channel.LIVE, self._number, json.dumps(told).encode())
        await self._worker.drained()
        self._switched = -1
        await self._until_switched()  # the broker says so only if the whole must be done again

    async def _until_switched(self) -> int:
        while self._switched < 0:
            self._wake.clear()
            await self._wake.wait()
        return self._switched

    async def _until_written(self, offset: int) -> None:
        for _ in range(FLUSH_TRIES):
            answer = await self._merge.brokers[self._merge.name](FetchRequest(max_bytes=0))
            if answer.end >= offset:
                return
            await asyncio.sleep(0.005)

    async def _send_all(self) -> None:
        pieces: list[bytes] = []
        size = 0
        may_read = self._worker.may_read(self._job)
        async for item in self._merge.messages():
            await self._tell()
            if may_read is not None and not may_read(item.message.topic):
                continue  # peers give what this broker asks for
            if item.message.qos == 0 and item.time_us >= self._began_us - CLOCKS_APART_US:
                message = item.message
                self._loose.append((item.origin, item.time_us, message.topic, zlib.crc32(message.payload)))
            data = self._packets.write(item.message, item.origin, item.offset, time.time_ns() // 1000)
            if data is not None:
                pieces.append(data)
                size += len(data)
            if size >= CHUNK_BYTES:
                await self._send(b"".join(pieces))
                pieces, size = [], 0
                may_read = self._worker.may_read(self._job)
        await self._tell()
        if pieces:
            await self._send(b"".join(pieces))

    async def _tell(self) -> None:
        for text in self._merge.notices:
            await self._send(self._packets.notice(text))
        self._merge.notices.clear()

    async def _send(self, data: bytes) -> None:
        while self._credits <= 0:
            self._wake.clear()
            await self._wake.wait()
        self._credits -= 1
        self._worker.say(channel.PACKETS, self._number, data)
        await self._worker.drained()


async def serve() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _widen(sys.stdout.fileno())
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    _, _, body = await channel.read_note(reader)
    worker = Worker(json.loads(body), writer)
    while True:
        try:
            kind, job, body = await channel.read_note(reader)
        except asyncio.IncompleteReadError:  # the broker is gone
            return
        worker.heard(kind, job, body)


def _widen(pipe: int) -> None:
    """Where the system can and may; 64 KiB do as well, with more turns of both loops."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which closes the pipe
    os.nice(NICENESS)
    asyncio.run(serve())


if __name__ == "__main__":
    main()
