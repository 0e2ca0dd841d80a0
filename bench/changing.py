"""A live city changes under load: a broker joins and leaves, areas move, the routing and the secret change.

Publishers are sockets of this bench, which number their messages and time each acknowledgement; observers are
mosquitto_sub, which write down what comes. Nothing that was acknowledged may be missing, nothing of QoS 2 may come
twice, and no publisher may wait longer than `LONGEST_S`.
"""

import argparse
import multiprocessing
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

from bench.cities import PATIENCE_S, BenchCity, bench_city, wait_until
from bench.generator import connect
from bench.peers import free_port
from metromq.errors import UsageError
from metromq.federation.city import City, LinkSecurity, grid_city

LONGEST_S = 0.5
TURN_S = 0.005
MOST_UNDER_WAY = 5000  # of one publisher
TOPICS = ("1/2/0/0/a", "0/0/1/1/b", "bus/7", "3/3/1/0/c", "2/1/0/2/d")
GUEST = "b40"
SETTINGS = {"METROMQ_LIMITS__MAX_QUEUED_MESSAGES": "10000000", "METROMQ_LIMITS__MAX_QUEUED_BYTES": "4000000000"}
PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7


class Publisher:
    """One connection: so many messages a second, never waiting for an answer before the next."""

    def __init__(self, name: str, port: int, topic: str, qos: int, per_s: float) -> None:
        self.name, self.topic, self.qos, self.per_s = name, topic, qos, per_s
        self.socket = connect(port, name)
        self.socket.setblocking(False)
        self.sent = self.acknowledged = 0
        self.under_way: dict[int, tuple[int, float]] = {}  # packet identifier: number of the message, when it was sent
        self._out = b""
        self._in = b""

    def send(self, seconds: float, now: float) -> None:
        """What is due `seconds` after the start."""
        packets = [self._out]
        while self.sent < seconds * self.per_s and len(self.under_way) < MOST_UNDER_WAY:
            identifier = self.sent % 65535 + 1
            if identifier in self.under_way:
                break
            body = len(self.topic).to_bytes(2, "big") + self.topic.encode() + identifier.to_bytes(2, "big")
            body += f"{self.name} {self.sent}".encode()
            packets.append(bytes((0x30 | self.qos << 1, len(body))) + body)
            self.under_way[identifier] = self.sent, now
            self.sent += 1
        self._out = b"".join(packets)
        self._write()

    def _write(self) -> None:
        if self._out:
            try:
                self._out = self._out[self.socket.send(self._out) :]
            except BlockingIOError:
                pass

    def read(self, now: float) -> float:
        """Takes acknowledgements; the longest time that one took."""
        try:
            data = self._in + self.socket.recv(1 << 16)
        except BlockingIOError:
            return 0.0
        if not data:
            raise UsageError(f"{self.name} was disconnected")
        longest_s, whole = 0.0, len(data) // 4 * 4
        for place in range(0, whole, 4):
            kind, identifier = data[place] >> 4, int.from_bytes(data[place + 2 : place + 4], "big")
            if kind in (PUBACK, PUBCOMP):
                self.acknowledged += 1
                longest_s = max(longest_s, now - self.under_way.pop(identifier)[1])
            elif kind == PUBREC:
                self._out += bytes((PUBREL << 4 | 2, 2)) + data[place + 2 : place + 4]
        self._in = data[whole:]
        self._write()
        return longest_s


@dataclass(slots=True)
class Sent:
    """What publishers found."""

    messages: dict[str, int] = field(default_factory=dict)  # by publisher, all acknowledged
    seconds: float = 0.0
    waits_s: dict[str, float] = field(default_factory=dict)  # the longest, by what was changing then


def publish(plan: Sequence[tuple[str, int, str, int, float]], pipe: Connection) -> None:
    """A process of its own: publishes until it hears an empty text; other texts say what changes from now on."""
    publishers = [Publisher(*one) for one in plan]
    start, found, phase = time.monotonic(), Sent(), "calm"
    pipe.send(None)
    while phase or any(one.under_way for one in publishers):
        if phase and pipe.poll():
            phase = pipe.recv()
            found.seconds = time.monotonic() - start
        now = time.monotonic()
        for one in publishers if phase else ():
            one.send(now - start, now)
        ready, _, _ = select.select([one.socket for one in publishers], [], [], TURN_S)
        now = time.monotonic()
        longest_s = max((one.read(now) for one in publishers if one.socket in ready), default=0.0)
        oldest_s = max((now - next(iter(one.under_way.values()))[1] for one in publishers if one.under_way), default=0)
        found.waits_s[phase] = max(found.waits_s.get(phase, 0.0), longest_s, oldest_s)
        if now - start > found.seconds + PATIENCE_S and not phase:
            break
    found.messages = {one.name: one.acknowledged for one in publishers}
    found.waits_s.pop("", None)
    pipe.send(found)


class Changes:
    """What an operator does, with the commands of docs/changing-a-city.md."""

    def __init__(self, city: BenchCity, secret: Path, elsewhere: Path) -> None:
        self._city = city
        self._secret = secret
        self._elsewhere = elsewhere  # the newcomer's data directory
        self._guest: subprocess.Popen[bytes] | None = None
        self._file = elsewhere / "wanted.toml"

    def steps(self) -> dict[str, Callable[[], None]]:
        return {
            "join": self.join,
            "area move": lambda: self._area_to(self._city.city.names[2]),
            "area back": lambda: self._area_to(GUEST),
            "leave": self.leave,
            "routing": lambda: self._route("flood-subscriptions"),
            "routing back": lambda: self._route("geographic"),
            "secret": self.rotate,
        }

    def _do(self, *words: str, data: Path | None = None) -> str:
        return self._run(*words, data=data).stdout

    def _run(self, *words: str, data: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "metromq.cli.main", *words, "--data", str(data or self._city.data)]
        done = subprocess.run(command, env=self._city.environment, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise UsageError(f"metromq {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def join(self) -> None:
        said = self._run("city", "token")
        token, at = said.stdout.strip(), said.stderr.partition("--join ")[2].split()[0]  # it is good at that broker
        command = [sys.executable, "-m", "metromq.cli.main", "serve", "--join", at, "--token", token, "--name", GUEST]
        command += ["--listen", f"127.0.0.1:{free_port()}", "--area", "0/0 1/2", "--data", str(self._elsewhere)]
        with open(self._elsewhere / "log.txt", "ab") as log:
            self._guest = subprocess.Popen(command, env=self._city.environment, stdout=log, stderr=log)
        wait_until(f"{GUEST} joins", lambda: GUEST in self._do("city", "show"))

    def _area_to(self, broker: str) -> None:
        self._do("area", "move", "1/2", broker)

    def leave(self) -> None:
        self._do("leave", GUEST, data=self._elsewhere)
        assert self._guest is not None
        self._guest.wait(PATIENCE_S)

    def _route(self, routing: str) -> None:
        text = self._do("city", "show")
        self._file.write_text(re.sub(r'(?m)^routing = ".*"', f'routing = "{routing}"', text))
        self._do("city", "apply", str(self._file))

    def rotate(self) -> None:
        """Both secrets are good until every broker has the new one."""
        old = self._secret.with_name(self._secret.name + ".old")
        shutil.copy(self._secret, old)
        self._secret.write_text(secrets.token_hex(32))
        self._tell_all()
        old.unlink()
        self._tell_all()

    def _tell_all(self) -> None:
        for name in self._city.city.names:
            os.kill(self._city.pid(name), signal.SIGHUP)
            time.sleep(0.5)

    def close(self) -> None:
        if self._guest is not None and self._guest.poll() is None:
            self._guest.kill()
            self._guest.wait()


def measured_city(brokers: int, large: bool) -> City:
    return grid_city("geographic", count=brokers, mesh_up_to=0 if large else max(16, brokers + 1))


def measure(city: City, rate: float, rate2: float, pause_s: float, durability: str, only: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        secret = folder / "city.secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        (folder / GUEST).mkdir()
        guarded = replace(city, links=LinkSecurity(secret_file=secret))
        with bench_city(guarded, durability, SETTINGS) as running:
            changes = Changes(running, secret, folder / GUEST)
            try:
                sent, seen = _play(running, changes, folder, (rate, rate2, pause_s), only)
            finally:
                changes.close()
    return _judge(sent, seen)


def _play(
    city: BenchCity, changes: Changes, folder: Path, load: tuple[float, float, float], only: Sequence[str]
) -> tuple[Sent, dict[str, Counter[str]]]:
    rate, rate2, pause_s = load
    names = city.city.names
    observers = {name: _observe(city.port(name), f"at {name}", folder) for name in (names[0], names[3])}
    time.sleep(2.0)
    plan = [(f"one{i}", city.port(names[i % 4]), topic, 1, rate / len(TOPICS)) for i, topic in enumerate(TOPICS)]
    plan += [(f"two{i}", city.port(names[(i + 1) % 4]), topic, 2, rate2 / 2) for i, topic in enumerate(TOPICS[:2])]
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=publish, args=(plan, theirs))
    process.start()
    try:
        ours.recv()
        time.sleep(pause_s)
        for what, change in changes.steps().items():
            if only and what not in only:
                continue
            ours.send(what)
            began = time.monotonic()
            change()
            time.sleep(pause_s)
            print(f"  {what}: {time.monotonic() - began - pause_s:.1f} s", flush=True)
        ours.send("")
        sent: Sent = ours.recv()
        wanted = sum(sent.messages.values())
        _until_quiet([log for _, log in observers.values()], wanted)
    finally:
        process.terminate()
        process.join()
        for observer, _ in observers.values():
            observer.terminate()
            observer.wait()
    return sent, {name: Counter(log.read_text().split("\n")[:-1]) for name, (_, log) in observers.items()}


def _observe(port: int, name: str, folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    log = folder / name
    words = ["-V", "5", "-D", "CONNECT", "receive-maximum", "60000", "-i", name, "-q", "2", "-t", "#", "-F", "%p"]
    with open(log, "wb") as out:
        return subprocess.Popen(["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), *words], stdout=out), log


def _until_quiet(logs: Sequence[Path], wanted: int) -> None:
    """Until all has come, or nothing more does for a while."""
    sizes: list[int] = []
    while True:
        before, sizes = sizes, [log.stat().st_size for log in logs]
        if before == sizes:
            return
        time.sleep(5.0)


def _judge(sent: Sent, seen: dict[str, Counter[str]]) -> int:
    by_qos = {qos: sum(n for name, n in sent.messages.items() if name.startswith(word)) for qos, word in WORDS.items()}
    print(
        f"{by_qos[1]} messages at QoS 1 ({by_qos[1] / sent.seconds:.0f}/s) and {by_qos[2]} at QoS 2 "
        f"({by_qos[2] / sent.seconds:.0f}/s), all acknowledged, in {sent.seconds:.0f} s"
    )
    problems = 0
    for name, got in seen.items():
        lost = sum(f"{one} {number}" not in got for one, count in sent.messages.items() for number in range(count))
        twice = {qos: sum(n - 1 for text, n in got.items() if text.startswith(word)) for qos, word in WORDS.items()}
        print(f"observer at {name}: {lost} lost; came again: {twice[1]} at QoS 1, {twice[2]} at QoS 2")
        problems += lost + twice[2]
    for what, wait_s in sent.waits_s.items():
        print(f"the longest that a publisher waited, {what}: {1000 * wait_s:.0f} ms")
    return 1 if problems or max(sent.waits_s.values()) > LONGEST_S else 0


WORDS = {1: "one", 2: "two"}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench changing", description=__doc__)
    parser.add_argument("--brokers", type=int, default=4, choices=range(4, 17), metavar="4..16")
    parser.add_argument("--large", action="store_true", help="brokers speak as in a large city: links on demand")
    parser.add_argument("--rate", type=float, default=5000, help="messages a second at QoS 1, of all publishers")
    parser.add_argument("--rate2", type=float, default=200, help="and at QoS 2")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds before, between and after changes")
    parser.add_argument("--durability", default="os", choices=["memory", "os", "fsync"])
    parser.add_argument("--only", nargs="*", default=[], help="only these changes")
    options = parser.parse_args(argv)
    city = measured_city(options.brokers, options.large)
    return measure(city, options.rate, options.rate2, options.pause, options.durability, options.only)
