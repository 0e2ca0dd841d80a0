"""The servers that pub and sub are tested against."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metromq.broker.auth.passwords import hash_password
from metromq.config import Auth, Config, Limits, Listener
from tests.peers import Server, metromq, mosquitto


@pytest.fixture(scope="session", params=["mosquitto", "metromq"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one listener for everybody and one for the user alice with the password secret."""
    directory: Path = tmp_path_factory.mktemp(f"cli-{request.param}")
    passwords = directory / "passwords"
    passwords.write_text(f"alice:{hash_password(b'secret', b'salt of 12 b', 101)}\n")
    if request.param == "mosquitto":
        lines = (
            "per_listener_settings true",
            "listener {0} 127.0.0.1",
            "allow_anonymous true",
            "listener {1} 127.0.0.1",
            f"password_file {passwords}",
        )
        with mosquitto(directory, 2, *lines) as running:
            yield running
    else:
        listeners = (Listener(port=0, allow_anonymous=True), Listener(port=0))
        auth = Auth(password_file=passwords)
        limits = Limits(max_connects_per_s=0)
        config = Config(data_dir=directory / "data", durability="memory", listeners=listeners, auth=auth, limits=limits)
        with metromq(config) as running:
            yield running
