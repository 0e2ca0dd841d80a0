"""The certificates of links, and their authority, change under load: no broker restarts for it, nothing is lost.

Live brokers and clients of paho. The observer knows only what clients sent and what they got.
"""

import dataclasses
import shutil
import threading
from pathlib import Path

import pytest

from metromq.city_file import city_text
from metromq.federation import grid_city
from metromq.federation.city import LinkSecurity
from tests.certificates import Authority
from tests.cli.cities import city_process, wait_for
from tests.clients.paho_client import Paho, properties, unique
from tests.joints.guarded import Town

KEPT = properties("CONNECT", SessionExpiryInterval=3600)


def write_city(directory: Path) -> tuple[Path, list[str]]:
    """Links by certificates alone, whose paths name the broker."""
    city = grid_city("geographic", count=3, hello_interval_ms=1000)
    links = LinkSecurity(
        ca_file=directory / "ca.crt", cert_file=directory / "{name}.crt", key_file=directory / "{name}.key"
    )
    brokers = tuple(dataclasses.replace(one, link_listen="127.0.0.1:0") for one in city.brokers)
    file = directory / "city.toml"
    file.write_text(city_text(dataclasses.replace(city, name="test", brokers=brokers, links=links)))
    return file, list(city.names)


def install(authority: Authority, name: str, directory: Path) -> None:
    made = authority.pair(name, name)
    shutil.copy(made.key, directory / f"{name}.key")
    shutil.copy(made.cert, directory / f"{name}.crt")


class Publisher(threading.Thread):
    """One message after the other, each when the one before is acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.sent: list[bytes] = []
        self.over = threading.Event()
        self._client = Paho(5, unique("pub"))
        assert self._client.connect(port)[0] == 0

    def run(self) -> None:
        while not self.over.wait(0.01):
            payload = b"%06d" % len(self.sent)
            self._client.publish("2/0/a", payload, 2)
            self.sent.append(payload)

    def some_more(self) -> None:
        wanted = len(self.sent) + 30
        wait_for(lambda: len(self.sent) >= wanted, "more messages being acknowledged")


@pytest.mark.timeout(300)
def test_certificates_and_their_authority_change_while_messages_flow(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old", "Old CA"), Authority(tmp_path / "new", "New CA")
    file, names = write_city(tmp_path)
    first, second, third = names
    shutil.copy(old.file, tmp_path / "ca.crt")
    for name in names:
        install(old, name, tmp_path)
    with city_process(tmp_path, "up", str(file)) as up:
        up.says("Ctrl-C stops the city")
        town = Town(up, tmp_path, names)
        sub = Paho(5, unique("sub"), clean=False)
        assert sub.connect(town.port(third), properties=KEPT)[0] == 0
        sub.subscribe("2/#", 2)
        publisher = Publisher(town.port(first))
        publisher.start()
        publisher.some_more()
        (tmp_path / "ca.crt").write_bytes(old.file.read_bytes() + new.file.read_bytes())
        town.reload()
        publisher.some_more()
        install(new, first, tmp_path)
        install(new, third, tmp_path)
        town.reload()
        town.kill(second)  # where no client is: it has the old certificate, and must be let in by those with new ones
        publisher.some_more()
        install(new, second, tmp_path)
        shutil.copy(new.file, tmp_path / "ca.crt")
        town.reload()
        town.kill(second)
        publisher.some_more()
        publisher.over.set()
        publisher.join()
        got = [message.payload for message in sub.take(len(publisher.sent))]
        assert sorted(got) == publisher.sent
        sub.close()
