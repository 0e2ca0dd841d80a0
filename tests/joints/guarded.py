"""Real broker processes with password and ACL files: a city of one or of three, restarted and told to reload."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from metromq.broker.auth.passwords import hash_password
from metromq.control.data_directory import lives
from tests.cli.cities import CityProcess, city_process, wait_for, write_city
from tests.clients.paho_client import V5, Paho, properties

PASSWORDS = {"ann": "a-secret", "bob": "b-secret", "pub": "p-secret", "watch": "w-secret"}
OPEN = "topic readwrite #\n" + "".join(f"user {name}\ntopic readwrite #\n" for name in PASSWORDS)

CONFIG = """
[limits]
max_connects_per_s = 0
[auth]
password_file = "{directory}/passwords"
acl_file = "{directory}/acl"
allow_anonymous = true
"""


class Town:
    """The brokers of one test; `names` are theirs."""

    def __init__(self, city: CityProcess, directory: Path, names: Sequence[str]) -> None:
        self.city = city
        self.directory = directory
        self.names = list(names)

    def port(self, name: str) -> int:
        return self.city.place(name)[1]

    def kill(self, name: str) -> None:
        """As kill -9; `metromq up` starts it again."""
        pid = self.city.place(name)[0]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not lives(pid), "the end of a broker")
        wait_for(lambda: self._is_back(name, pid), "its start")
        self.city.note_pids()
        self.joined()

    def _is_back(self, name: str, before: int) -> bool:
        try:
            return self.city.place(name)[0] != before
        except AssertionError:
            return False

    def joined(self) -> None:
        """Until every broker has its links to all others."""

        def is_joined(name: str) -> bool:
            try:
                links = self.city.ask(name)["links"]
            except OSError:
                return False
            return all(link["state"] == "up" for link in links)

        wait_for(lambda: all(is_joined(name) for name in self.names), "links between all")

    def reload(self) -> None:
        """SIGHUP to all, and until all have said that they did it."""
        logs = {name: self.city.data / name / "broker.log" for name in self.names}
        said = {name: log.read_text().count("reloaded") for name, log in logs.items()}
        for name in self.names:
            os.kill(self.city.place(name)[0], signal.SIGHUP)
        wait_for(lambda: all(log.read_text().count("reloaded") > said[name] for name, log in logs.items()), "a reload")


def write_passwords(directory: Path, users: dict[str, str]) -> None:
    lines = [f"{name}:{hash_password(password.encode(), name.encode(), 101)}\n" for name, password in users.items()]
    (directory / "passwords").write_text("".join(lines))


@contextlib.contextmanager
def town(directory: Path, brokers: int, foreign: str = "") -> Iterator[Town]:
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "metromq.toml"
    said = f'foreign_client_id = "{foreign}"\n' if foreign else ""
    config.write_text(CONFIG.format(directory=directory) + said)
    (directory / "acl").write_text(OPEN)
    write_passwords(directory, PASSWORDS)
    file = write_city(directory, brokers)
    with city_process(directory, "up", str(file), "--durability", "os", "--config", str(config)) as running:
        running.says("Ctrl-C stops the city")
        names = [broker["name"] for broker in running.status()["brokers"]]
        made = Town(running, directory, names)
        made.joined()
        yield made


class Visitor:
    """One paho client: what it was told and what it got is all that a test knows."""

    def __init__(self, version: int, client_id: str, user: str | None, clean: bool = False) -> None:
        self.version = version
        self.paho = Paho(version, client_id, clean)
        self.paho.paho.reconnect_delay_set(60, 60)
        if user is not None:
            self.paho.paho.username_pw_set(user, PASSWORDS[user])
        self.code = -1
        self.present = False

    def enter(self, port: int, will: str = "") -> "Visitor":
        options: dict[str, Any] = {}
        if self.version == V5:
            options["properties"] = properties("CONNECT", SessionExpiryInterval=600)
        if will:
            self.paho.paho.will_set(will, b"gone", 1)
        self.code, self.present, _ = self.paho.connect(port, **options)
        return self

    def got(self, count: int) -> list[str]:
        return [message.payload.decode() for message in self.paho.take(count)]

    def waiting(self) -> list[str]:
        """What has come and nobody asked for."""
        found: list[str] = []
        while not self.paho.messages.empty():
            found.append(self.paho.messages.get().payload.decode())
        return found

    def is_connected(self) -> bool:
        return self.paho.disconnects.empty()

    def leave(self) -> None:
        self.paho.close()
