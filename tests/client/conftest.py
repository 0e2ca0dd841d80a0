"""The servers that the client is tested against: Mosquitto and MetroMQ, over TCP and WebSocket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metromq.config import Config, Limits, Listener
from tests.certificates import Certificates, make_certificates
from tests.peers import Server, metromq, mosquitto

TCP, WEBSOCKET, TLS = range(3)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    return make_certificates(directory)


@pytest.fixture(scope="session", params=["mosquitto", "metromq"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Server]:
    """A server with a TCP, a WebSocket and a TLS listener, the last one for clients with certificates only."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "mosquitto":
        with mosquitto(directory, 3, *mosquitto_lines(certificates)) as running:
            yield running
    else:
        with metromq(metromq_config(directory, certificates)) as running:
            yield running


def mosquitto_lines(certificates: Certificates) -> tuple[str, ...]:
    return (
        "allow_anonymous true",
        "listener {0} 127.0.0.1",
        "listener {1} 127.0.0.1",
        "protocol websockets",
        "listener {2} 127.0.0.1",
        f"cafile {certificates.ca}",
        f"certfile {certificates.server.cert}",
        f"keyfile {certificates.server.key}",
        "require_certificate true",
        "use_identity_as_username true",
    )


def metromq_config(directory: Path, certificates: Certificates) -> Config:
    tls = Listener(
        "tls",
        port=0,
        cert_file=certificates.server.cert,
        key_file=certificates.server.key,
        ca_file=certificates.ca,
        require_certificate=True,
        use_identity_as_username=True,
    )
    return Config(
        data_dir=directory / "data",
        durability="memory",
        listeners=(Listener(port=0), Listener("ws", port=0), tls),
        limits=Limits(max_connects_per_s=0),
    )
