"""Replays in a live city of three: old messages of all brokers, then live ones, without gap and without double.

Brokers are processes, clients are paho and mosquitto_sub; the observer knows only what clients sent and got.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cli.cities import CityProcess, city_process, environment, wait_for, write_city
from tests.clients.paho_client import V5, V311, Paho, client, properties, unique

pytestmark = pytest.mark.timeout(240)
HOMES = ("b00", "b11", "b22")
AREAS = ("0/1/2/3", "1/2/0/0", "3/3/1/0")
END = b"the end"
KEPT = properties("CONNECT", SessionExpiryInterval=3600)


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CityProcess]:
    directory = tmp_path_factory.mktemp("replay")
    config = directory / "metromq.toml"
    config.write_text("[replay]\nenabled = true\n")
    words = ("up", str(write_city(directory, 3)), "--durability", "os", "--config", str(config))
    with city_process(directory, *words) as running:
        running.says("Ctrl-C stops the city")
        yield running


class Publishers:
    """One client at every broker, each in a thread: publishes to topics of all areas until told to stop."""

    def __init__(self, city: CityProcess, word: str, homes: tuple[str, ...] = HOMES) -> None:
        self.sent: list[bytes] = []
        self._city = city
        self._word = word
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(home,)) for home in homes]

    def _run(self, home: str) -> None:
        with client(self._city.place(home)[1], V5) as who:
            number = 0
            while not self._stop.is_set():
                number += 1
                text = f"{self._word}-{home}-{number}".encode()
                who.publish(f"{AREAS[number % 3]}/{self._word}", text, 1 + number % 2)
                self.sent.append(text)

    def __enter__(self) -> "Publishers":
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop()


def publish_some(city: CityProcess, word: str, count: int = 40) -> list[bytes]:
    """In turn at every broker, so that their order in time is known."""
    sent: list[bytes] = []
    with ExitStack() as stack:
        clients = [stack.enter_context(client(city.place(home)[1], V5)) for home in HOMES]
        for number in range(count):
            text = f"{word}-old-{number}".encode()
            clients[number % 3].publish(f"{AREAS[number % 3]}/{word}", text, 1 + number % 2)
            sent.append(text)
    return sent


def end_of(city: CityProcess, word: str) -> None:
    """A last message from every broker to every area, behind all that went the same way."""
    for home in HOMES:
        with client(city.place(home)[1], V5) as who:
            for area in AREAS:
                who.publish(f"{area}/{word}", END + f"{home} {area}".encode(), 1)


def take_to_the_end(who: Paho) -> list[bytes]:
    got: list[bytes] = []
    missing = {END + f"{home} {area}".encode() for home in HOMES for area in AREAS}
    while missing:
        payload = who.messages.get(timeout=60).payload
        missing.discard(payload)
        got.append(payload)
    return [payload for payload in got if not payload.startswith(END)]


@pytest.mark.parametrize("version", [V5, V311])
def test_a_retained_value_of_another_broker_comes_once(city: CityProcess, version: int) -> None:
    """The first who wants it here makes the broker ask for it: it must not come beside the replay as well."""
    topics = [f"state{version}/{number}" for number in range(5)]
    with client(city.place("b00")[1], V5) as who:
        for topic in topics:
            who.publish(topic, topic.encode(), 1, retain=True)
        with client(city.place("b22")[1], version) as reader:
            assert reader.subscribe(f"$replay/since/10m/state{version}/#", 0) == [0]
            wait_for(lambda: reader.messages.qsize() >= len(topics), "the values")
            who.publish(f"state{version}/9", b"live", 1, retain=True)
            wait_for(lambda: reader.messages.qsize() > len(topics), "a live message")
            assert [reader.messages.get().payload for _ in topics] == [topic.encode() for topic in topics]
            assert reader.messages.get().payload == b"live"
            assert reader.nothing_more()


@pytest.mark.parametrize("version", [V5, V311])
def test_no_gap_and_no_double_at_the_switch(city: CityProcess, version: int) -> None:
    word = f"switch{version}"
    old = publish_some(city, word)
    with Publishers(city, word) as publishers:
        wait_for(lambda: len(publishers.sent) > 200, "messages before the replay")
        with client(city.place("b11")[1], version) as reader:
            assert reader.subscribe(f"$replay/since/10m/+/+/+/+/{word}", 1) == [0]  # whatever is asked for
            before = len(publishers.sent)
            wait_for(lambda: len(publishers.sent) > before + 1000, "messages during and after the replay")
            time.sleep(2)  # the switch takes one second: some come before it, some after
            publishers.stop()
            end_of(city, word)
            got = take_to_the_end(reader)
            assert reader.nothing_more()
    assert got[: len(old)] == old  # by time over all brokers
    assert Counter(got) == Counter(old) + Counter(publishers.sent)


def test_a_broker_is_killed_meanwhile(city: CityProcess) -> None:
    """What it had accepted comes in the end: from its own journal, or from those to whom it had gone."""
    word = "killed"
    old = publish_some(city, word)
    with Publishers(city, word, ("b00", "b11")) as publishers, client(city.place("b11")[1], V5) as reader:
        reader.subscribe(f"$replay/since/10m/+/+/+/+/{word}")
        os.kill(city.place("b22")[0], signal.SIGKILL)
        before = len(publishers.sent)
        wait_for(lambda: len(publishers.sent) > before + 500, "messages while a broker is away")
        time.sleep(2)
        publishers.stop()
        wait_for(lambda: city.broker("b22")["state"] == "up", "the broker being started again")
        end_of(city, word)
        got = take_to_the_end(reader)
    missing = Counter(old) + Counter(publishers.sent) - Counter(got)
    assert all(payload in old for payload in missing)  # only b22 had them: said, see the next line
    notices = [payload for payload in got if payload not in old and payload not in publishers.sent]
    assert all(b"b22 cannot be reached" in notice for notice in notices)
    assert notices or not missing
    assert max(Counter(got).values()) == 1


def test_the_own_broker_is_killed_and_the_command_goes_on(city: CityProcess) -> None:
    word = "again"
    old = publish_some(city, word)
    pid, port = city.place("b11")
    words = ["sub", "-p", str(port), "-t", f"+/+/+/+/{word}", "--since", "10m"]
    reader = subprocess.Popen(
        [sys.executable, "-m", "metromq.cli.main", *words], stdout=subprocess.PIPE, env=environment()
    )
    try:
        assert reader.stdout is not None
        got = [reader.stdout.readline().strip() for _ in old]
        assert got == old
        with Publishers(city, word, ("b00", "b22")) as publishers:
            wait_for(lambda: len(publishers.sent) > 100, "messages before the kill")
            os.kill(pid, signal.SIGKILL)
            before = len(publishers.sent)
            wait_for(lambda: len(publishers.sent) > before + 300, "messages while the broker is away")
            publishers.stop()
        wait_for(lambda: city.broker("b11")["state"] == "up", "the broker being started again")
        assert city.place("b11")[1] == port
        with client(port, V5) as who:
            who.publish(f"{AREAS[0]}/{word}", END, 1)
        line = b""
        rest: list[bytes] = []
        wanted = set(publishers.sent) | {END}
        while wanted - set(rest):
            line = reader.stdout.readline().strip()
            assert line, "the command ended"
            rest.append(line)
    finally:
        reader.terminate()
        reader.wait(timeout=30)
    assert Counter(rest) == Counter(publishers.sent) + Counter([END])


def test_those_who_leave_do_not_disturb_those_who_come(city: CityProcess) -> None:
    """A replay may end while a peer is asked for it: the answer must not be taken for that to another replay."""
    word = "leave"
    old = publish_some(city, word)
    port = city.place("b11")[1]
    with client(port, V5) as reader:
        reader.subscribe(f"$replay/since/10m/+/+/+/+/{word}")  # from here on the process that reads is there
        assert [reader.messages.get(timeout=60).payload for _ in old] == old
        for number in range(100):
            topic = f"$replay/since/10m/{word}/{number}"
            reader.subscribe(topic)
            time.sleep(number % 10 / 2000)  # some leave before peers are asked, some meanwhile, some later
            reader.paho.unsubscribe(topic)
    with client(port, V5) as reader:
        assert reader.subscribe(f"$replay/since/10m/+/+/+/+/{word}") == [0]
        end_of(city, word)
        assert take_to_the_end(reader) == old


def test_other_peoples_client(city: CityProcess) -> None:
    mosquitto = shutil.which("mosquitto_sub")
    assert mosquitto, "apt install mosquitto-clients"
    word = "others"
    old = publish_some(city, word)
    topic = f"$replay/since/10m/+/+/+/+/{word}"
    reader = subprocess.Popen(
        [mosquitto, "-V", "5", "-p", str(city.place("b00")[1]), "-t", topic, "-C", str(len(old) + 1)],
        stdout=subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        got = [reader.stdout.readline().strip() for _ in old]
        with client(city.place("b22")[1], V5) as who:
            who.publish(f"{AREAS[1]}/{word}", b"live", 1)
        assert (got, reader.stdout.readline().strip()) == (old, b"live")
    finally:
        reader.kill()  # it ends by itself just now, and SIGTERM in that moment may leave it waiting
        reader.wait(timeout=30)


@pytest.mark.parametrize("version", [V5, V311])
def test_a_session_keeps_what_it_has(city: CityProcess, version: int) -> None:
    """Plain first: the replay is refused. Replay first: the plain subscription holds, also when the replay ends."""
    word = f"keeps{version}"
    topic, topic_filter = f"{AREAS[1]}/{word}", f"+/+/+/+/{word}"
    replay = f"$replay/since/1s/{topic_filter}"
    refused = [0x83] if version == V5 else [0x80]
    with client(city.place("b00")[1], version) as reader, client(city.place("b22")[1], V5) as who:
        assert reader.subscribe(topic_filter, 1) == [1]
        assert reader.subscribe(replay) == refused
        reader.paho.unsubscribe(replay)
        who.publish(topic, b"by its own", 1)
        message = reader.messages.get(timeout=30)
        assert (message.payload, message.qos) == (b"by its own", 1)
    with client(city.place("b00")[1], version) as reader, client(city.place("b22")[1], V5) as who:
        assert reader.subscribe(replay) == [0]
        assert reader.subscribe(topic_filter, 1) == [1]
        reader.paho.unsubscribe(replay)
        reader.subscribe("behind it")
        who.publish(topic, b"after the replay", 1)
        while message.payload != b"after the replay":  # the replay may have sent what is one second old
            message = reader.messages.get(timeout=30)
        assert message.qos == 1
        assert reader.nothing_more()


def test_a_session_that_moves_leaves_its_replay_behind(city: CityProcess) -> None:
    word, name = "moves", unique("mover")
    own, other = f"{AREAS[2]}/{word}/own", f"{AREAS[2]}/{word}/other"
    there, here = Paho(V5, name, clean=False), Paho(V5, name, clean=False)
    assert there.connect(city.place("b00")[1], properties=KEPT)[0] == 0
    try:
        there.subscribe(own, 1)
        there.subscribe(f"$replay/since/10m/{other}")
        with client(city.place("b22")[1], V5) as who:
            who.publish(other, b"live", 1)
            assert there.messages.get(timeout=30).payload == b"live"
            there.paho.on_disconnect = lambda *_: there.paho.disconnect()  # it does not come back
            assert here.connect(city.place("b11")[1], properties=KEPT)[0] == 0
            who.publish(other, b"for nobody", 1)
            who.publish(own, b"own", 1)
            assert here.messages.get(timeout=30).payload == b"own"
            assert here.nothing_more()
    finally:
        there.close()
        here.close()
