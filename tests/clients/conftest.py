"""One broker process for all real clients, with every kind of door."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from metromq.broker.auth.passwords import hash_password
from tests.certificates import Certificates, make_certificates

DEADLINE_S = 60.0

CONFIG = """
data_dir = "{directory}/data"
durability = "{durability}"
[auth]
password_file = "{directory}/passwords"
acl_file = "{directory}/acl"
[limits]
max_connects_per_s = 0
max_outgoing_bytes = 262144
[[listeners]]
port = 0
allow_anonymous = true
[[listeners]]
kind = "ws"
port = 0
allow_anonymous = true
[[listeners]]
kind = "tls"
port = 0
cert_file = "{server.cert}"
key_file = "{server.key}"
[[listeners]]
kind = "tls"
port = 0
cert_file = "{server.cert}"
key_file = "{server.key}"
ca_file = "{ca}"
require_certificate = true
use_identity_as_username = true
[[listeners]]
port = 0
"""

ACL = """
topic readwrite #
topic read $SYS/#
topic deny secret/#
user ann
topic readwrite #
user sensor
topic readwrite #
"""


class Served:
    """`metromq serve` as a user runs it; its ports are known from its log."""

    def __init__(self, directory: Path, certificates: Certificates, durability: str = "os") -> None:
        self.directory = directory
        self.certificates = certificates
        self.log: list[str] = []
        self._lines: Queue[str] = Queue()
        text = CONFIG.format(directory=directory, durability=durability, server=certificates.server, ca=certificates.ca)
        (directory / "metromq.toml").write_text(text)
        self.write_passwords(ann="wonderland")
        (directory / "acl").write_text(ACL)
        self.start()

    def write_passwords(self, **users: str) -> None:
        lines = [f"{name}:{hash_password(password.encode(), name.encode())}\n" for name, password in users.items()]
        (self.directory / "passwords").write_text("".join(lines))

    def start(self, *options: str) -> None:
        program = "from metromq.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--config", str(self.directory / "metromq.toml"), *options],
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("METROMQ_")},
        )
        self._lines = Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.ports = [int(self.wait_for(r"listening .*port=(\d+)").group(1)) for _ in range(5)]
        self.tcp, self.ws, self.tls, self.mutual, self.guarded = self.ports
        self.wait_for("ready")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            self._lines.put(line)
        self._lines.put("")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The next line of the log that matches."""
        while True:
            line = self._lines.get(timeout=DEADLINE_S)
            assert line, "the broker ended:\n" + "".join(self.log[-30:])
            found = re.search(pattern, line)
            if found:
                return found

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return code


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("broker"), certificates)
    try:
        yield served
    finally:
        assert served.end() == 0, "".join(served.log[-30:])
        assert not [line for line in served.log if "Traceback" in line or " error " in line], "".join(served.log[-60:])


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Served]:
    """A broker that a test may stop, kill or reload, with certificates of its own."""
    served = Served(tmp_path, make_certificates(tmp_path))
    try:
        yield served
    finally:
        served.end(signal.SIGKILL)
