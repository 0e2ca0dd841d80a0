"""Kill the recorder, the broker and the Spark driver under load: every acknowledged message is in the lake, once.

Five kills, of which one is the driver's, which takes longest to come back; METROMQ_KILLS=20 makes it twenty.
"""

import asyncio
import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from metromq.client import Client
from metromq.control.data_directory import hold_port
from metromq.errors import MetroError
from metromq.journal import JournalReader
from metromq.journal.identity import read_id
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.protocol.session.records import decode_message
from tests.pipeline.processes import COMMAND, Program, until
from tests.pipeline.settings import LIGHT

KILLS = int(os.environ.get("METROMQ_KILLS", "5"))
pytestmark = pytest.mark.timeout(1800 + 300 * KILLS)
VICTIMS = ("recorder", "broker", "driver", "recorder", "broker")
SPARK = ["--master", "local[2]", "--memory", "512m"]
SPARK += [word for name, value in LIGHT.items() for word in ("--conf", f"{name}={value}")]


class Load:
    """A client that publishes numbers at QoS 1 and 2 and knows which were acknowledged, whatever its broker does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._number = 0
        self.acknowledged: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        while not self._stop.is_set():
            try:
                async with Client("127.0.0.1", self._port) as client:
                    while not self._stop.is_set():
                        await asyncio.gather(*(self._publish(client) for _ in range(20)))
                        await asyncio.sleep(0.04)  # a city's pace, not the machine's: the lake is compared row by row
            except (MetroError, OSError):
                await asyncio.sleep(0.05)

    async def _publish(self, client: Client) -> None:
        self._number += 1
        payload = str(self._number).encode()
        await client.publish(f"{self._number % 4}/sensor", payload, qos=1 + self._number % 2)
        self.acknowledged.add(payload)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Stage:
    """The programs of the story, and what it takes to start each again."""

    def __init__(self, folder: Path, lake: str) -> None:
        self.folder = folder
        self.lake = lake
        with hold_port("127.0.0.1") as free:
            self.port: int = free.getsockname()[1]
        self._started = 0
        self.programs: list[Program] = []
        self.broker = self.start_broker()
        self.driver = self.start_driver()

    def program(self, *arguments: str, environment: dict[str, str] | None = None) -> Program:
        self._started += 1
        program = Program([*COMMAND, *arguments], self.folder / f"{self._started:02d}-{arguments[0]}.log", environment)
        self.programs.append(program)
        return program

    def start_broker(self) -> Program:
        settings = {"METROMQ_RECORDER__LAKE": self.lake, "METROMQ_NAME": "b1"}
        data = ["--data", str(self.folder / "b1"), "--listen", f"127.0.0.1:{self.port}"]
        broker = self.program("serve", *data, environment=settings)
        until(lambda: broker.says("ready"), "the broker's start")
        return broker

    def start_driver(self) -> Program:
        return self.program("pipeline", "run", "--json", "--refresh", "0", "--lake", self.lake, *SPARK)

    def recorder(self) -> psutil.Process | None:
        family = [child for child in self.broker.family() if "record" in child.cmdline()]
        return family[0] if family else None

    def took_something(self) -> bool:
        return self.driver.says('"messages": ')

    def kill(self, victim: str) -> None:
        if victim == "recorder":
            until(lambda: self.recorder() is not None, "the recorder's start")
            recorder = self.recorder()
            assert recorder is not None
            recorder.kill()
        elif victim == "broker":
            self.broker.kill()
            self.broker = self.start_broker()
        else:
            self.driver.kill()
            self.driver = self.start_driver()


@pytest.fixture(params=["path", "s3"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, str(tmp_path / "lake") if request.param == "path" else request.getfixturevalue("s3"))
    yield made
    for program in made.programs:
        program.clean_up()


def test_every_acknowledged_message_arrives_once(stage: Stage) -> None:
    dice = random.Random(KILLS)
    load = Load(stage.port)
    try:
        for number in range(KILLS):
            until(stage.took_something, "the first batch")
            enough = len(load.acknowledged) + dice.randrange(1000)
            until(lambda enough=enough: len(load.acknowledged) > enough, "more messages")  # type: ignore[misc]
            stage.kill(VICTIMS[number % len(VICTIMS)])
        until(stage.took_something, "the first batch")
        second = stage.program("pipeline", "run", "--once", "--lake", stage.lake, *SPARK)
        assert second.wait() == 2, second.text()
        assert f"another `metromq pipeline run` is working on {stage.lake}" in second.text()
    finally:
        load.stop()
    assert stage.broker.stop() == 0  # the recorder ships the rest
    lake = Lake(stage.lake)
    key = JournalKey("b1", read_id(stage.folder / "b1" / "journal"))
    recorded = len(journalled(stage.folder / "b1" / "journal"))
    until(lambda: stage.driver.says("") and list(lake.coverage().get(key, ())) == [(0, recorded - 1)], "the last batch")
    assert stage.driver.stop() == 0
    table = lake.arrow("messages", columns=("offset", "payload"))
    rows = sorted(zip(table["offset"].to_pylist(), table["payload"].to_pylist(), strict=True))
    assert rows == journalled(stage.folder / "b1" / "journal")
    payloads = {payload for _, payload in rows}
    assert len(payloads) == len(rows)  # the client never repeats one
    assert load.acknowledged <= payloads
    assert len(load.acknowledged) > 100
    checker = stage.program("pipeline", "check", "--json", "--lake", stage.lake)
    assert checker.wait() == 0, checker.text()
    (found,) = json.loads(checker.text())
    assert (found["whole"], found["gaps"], found["repeated"], found["rows"]) == (True, [], 0, len(rows))


def journalled(journal: Path) -> list[tuple[int, bytes]]:
    reader = JournalReader(journal)
    found: list[tuple[int, bytes]] = []
    while records := reader.read(len(found), 100_000):
        found += [(offset, decode_message(body).message.payload) for offset, body in records]
    reader.close()
    return found
