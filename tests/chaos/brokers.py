"""Broker processes of a live storm: `metromq serve` as a user runs it, links through relays, and a clock that waits."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from metromq.city_file import city_text
from metromq.control import delegate
from metromq.control.city_status import NoAnswer, get, get_json
from metromq.control.data_directory import LOG_FILE, read_place
from metromq.errors import UsageError
from metromq.federation import BrokerStatus, City, broker_from_json, split_address
from metromq.journal.codec import HEAD_BYTES, HEADER_BYTES
from metromq.lab.storm.stage import revised
from tests.chaos.ensemble import LiveEnsemble, StandsStill
from tests.chaos.relay import Relay, Way

T = TypeVar("T")
DEADLINE_S = 120.0  # far beyond what any machine needs; only a hang reaches it
TICK_S = 0.1
LEAST_S = 1e-6  # between two moments that were told
STALL_S = 0.5  # who takes longer to answer may miss hellos, as if it had been frozen
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


class BrokerProcess:
    """One broker: its process, when it has one, and its relays."""

    def __init__(
        self, city: City, name: str, data: Path, skew_s: float, peers: dict[str, Relay], durability: str
    ) -> None:
        self.name = name
        self._durability = durability
        self.directory = data / name
        self.is_paused = False
        self.http = ""
        self.address = ("127.0.0.1", 0)
        self._city = city
        self._data = data
        self._skew_s = skew_s
        self._peers = peers
        self._process: subprocess.Popen[bytes] | None = None
        self._file = self._written("first")

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_awake(self) -> bool:
        return self._process is not None and not self.is_paused

    def _written(self, version: str) -> Path:
        file = self._data / f"{self.name}-{version}.toml"
        file.write_text(city_text(revised(self._city, version)), encoding="utf-8")
        file.chmod(0o600)
        return file

    def launch(self, version: str = "") -> None:
        self._file = self._written(version) if version else self._file
        options = ["--city", str(self._file), "--name", self.name, "--data", str(self._data)]
        options += ["--durability", self._durability]
        for peer, relay in self._peers.items():
            options += ["--peer", f"{peer}=127.0.0.1:{relay.port}"]
        self.directory.mkdir(parents=True, exist_ok=True)
        self.http = ""
        with open(self.directory / LOG_FILE, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "metromq.cli.main", "serve", "--until-eof", *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | self._clock_environment(),
                start_new_session=True,
            )

    def _clock_environment(self) -> dict[str, str]:
        if not self._skew_s or FAKETIME is None:
            return {}
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": f"{self._skew_s:+g}s",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def check_life(self) -> None:
        process = self._process  # another thread may end it meanwhile
        if process is not None and process.poll() is not None:
            log = (self.directory / LOG_FILE).read_text(errors="replace").splitlines()[-15:]
            raise StandsStill(f"{self.name} ended by itself ({process.returncode}):\n" + "\n".join(log))

    def find_place(self) -> bool:
        """Whether the process says where it listens."""
        self.check_life()
        place = read_place(self.directory)
        if self._process is None or place is None or place.pid != self._process.pid:
            return False
        self.http, self.address = place.http, split_address(place.listen)
        return True

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.is_paused = self._process is not None

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        process, self._process, self.is_paused = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def tear(self) -> None:
        """Killed, and the journal ends with half a record, as a power cut in the middle of a write leaves it."""
        self.kill()
        segments = sorted((self.directory / "journal").glob("*.seg"))
        if segments:
            records = segments[-1].read_bytes()[HEADER_BYTES:]
            size = HEAD_BYTES + int.from_bytes(records[:4], "little")  # of the first one
            with open(segments[-1], "ab") as journal:
                journal.write(records[: size // 2])

    async def status(self) -> BrokerStatus:
        return broker_from_json(await get_json(self.http, "/status"))


class CityTime:
    """Goes on by ticks, and stands still until the next one is given. It is never the same twice: what happens
    while it stands still has an order, too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ticked = 0.0
        self._clock = clock
        self._since = clock()
        self._told = 0.0
        self._telling = threading.Lock()  # clients have threads of their own

    def tick(self) -> None:
        with self._telling:
            self.ticked += TICK_S
            self._since = self._clock()

    def held_s(self) -> float:
        """How long ago the last tick was."""
        return self._clock() - self._since

    def now(self) -> float:
        with self._telling:
            self._told = max(self._told + LEAST_S, self.ticked + min(self.held_s(), TICK_S))
            return self._told


class Brokers:
    """All of them, on an event loop of their own that carries their links and keeps the city's time.

    The city's time goes on only while every broker that should run answers: on a slow machine everything that is timed
    by it, the steps of the history and the margins of the judge, takes longer, and means the same.
    """

    def __init__(
        self, city: City, data: Path, skews_s: tuple[float, ...], durability: str = "os", on: str = "embedded"
    ) -> None:
        """`on`: what they coordinate on, in the words of a history."""
        self.city = city
        self.data = data
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()
        self._time = CityTime(time.monotonic)
        self.problem = ""
        self.unanswered = ""  # why the last broker that did not answer did not
        self.stalls: list[tuple[float, float]] = []  # from when to when the machine was too slow
        self.ways = {(one, other): Way() for one in city.names for other in city.names if one != other}
        self.relays = {(one, other): Relay(way, self.ways[other, one]) for (one, other), way in self.ways.items()}
        self.doors: dict[str, Relay] = {}
        for relay in self.relays.values():
            self.run(relay.open())
        self.ensemble = LiveEnsemble(city, data, on == "workers", self.run) if on != "embedded" else None
        if self.ensemble is not None:
            self.ensemble.open()
        self.by_name = {
            name: BrokerProcess(
                self.ensemble.city_of(name) if self.ensemble is not None else city,
                name,
                data,
                skew_s,
                {o: relay for (n, o), relay in self.relays.items() if n == name},
                durability,
            )
            for name, skew_s in zip(city.names, skews_s, strict=True)
        }
        self._clock: asyncio.Task[None] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def delegate(self, topic_filter: str, broker: str) -> None:
        """Asks the central broker, which may be away or refuse."""
        with contextlib.suppress(NoAnswer, UsageError):
            self.run(delegate(self.city, self.data, topic_filter, broker, 0.0))

    def open(self) -> None:
        for broker in self.by_name.values():
            broker.launch()
        for broker in self.by_name.values():
            self.await_start(broker)

        async def begin() -> None:
            self._clock = asyncio.create_task(self._keep_time())

        self.run(begin())

    def close(self) -> None:
        for broker in self.by_name.values():
            broker.kill()
        if self.ensemble is not None:
            self.ensemble.close()

        async def end() -> None:
            for relay in (*self.relays.values(), *self.doors.values()):
                await relay.close()
            if self._clock is not None:
                self._clock.cancel()
            for way in self.ways.values():
                way.mend()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def await_start(self, broker: BrokerProcess) -> None:
        end = time.monotonic() + DEADLINE_S
        while not broker.find_place():
            if time.monotonic() > end:
                raise StandsStill(f"{broker.name} did not start; see {broker.directory / LOG_FILE}")
            time.sleep(0.02)
        for (_, other), relay in self.relays.items():
            if other == broker.name:
                relay.target = broker.address

    def door(self, client: str) -> Relay:
        """The relay between a client and whatever broker it talks to."""
        if client not in self.doors:
            door = self.doors[client] = self.run(_made(Way, Way))
            self.run(door.open())
        return self.doors[client]

    # Time.

    @property
    def now(self) -> float:
        return self._time.now()

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            is_slow = self._time.held_s() > STALL_S
            try:
                slow = await asyncio.gather(*(self._pulse(broker) for broker in self.by_name.values()))
            except Exception as error:  # whatever it is, a clock that stops must say why
                self.problem = str(error) if isinstance(error, StandsStill) else repr(error)
                return
            if is_slow or any(slow):
                self.stalls.append((self._time.ticked, self._time.ticked + TICK_S))
            self._time.tick()

    async def _pulse(self, broker: BrokerProcess) -> bool:
        """Waits for an answer, if there should be one; whether that took long."""
        begun = time.monotonic()
        is_slow = False
        while broker.is_awake:
            http = broker.http
            try:
                if http:  # otherwise it starts
                    await get(http, "/healthz", timeout_s=STALL_S)
                    return is_slow
            except NoAnswer as error:
                is_slow, self.unanswered = True, f"{broker.name}: {error}"
                broker.check_life()
            await asyncio.sleep(TICK_S)
            if http and time.monotonic() - begun > DEADLINE_S:
                raise StandsStill(self.unanswered)
        return False

    # Rest.

    async def unrest(self) -> str:
        """What is not at rest: a link, what waits for a peer, or a broker that knows something else than the others."""
        try:
            statuses = [await broker.status() for broker in self.by_name.values()]
        except NoAnswer as problem:
            return str(problem)
        for status in statuses:
            for link in status.links:
                if link.backlog or link.state != "up":
                    return f"{status.name}: {link.backlog} wait for {link.peer}, which is {link.state} {link.problem}"
            if set(status.alive) != self.by_name.keys():
                return f"{status.name} takes only {', '.join(status.alive)} for alive"
        return "" if len({status.table for status in statuses}) == 1 else "brokers have different facts"


async def _made(there: type[Way], back: type[Way]) -> Relay:
    return Relay(there(), back())
