"""Mutual TLS of links: the door through which peers enter, and how this broker dials theirs."""

import ssl
from pathlib import Path

from metromq.broker.tls import load_certificates
from metromq.config import Listener
from metromq.constraints import ReadableFile
from metromq.errors import ConfigError
from metromq.federation import City, split_address


def link_door(city: City, name: str) -> Listener | None:
    """The listener for peers alone; None: the city has no certificates, and peers use the doors of clients."""
    links = city.links
    if not links.certified:
        return None
    host, port = split_address(city.broker(name).link_listen)
    return Listener(
        kind="tls",
        host=host,
        port=port,
        cert_file=_file(links.cert_file, "cert_file", name),
        key_file=_file(links.key_file, "key_file", name),
        ca_file=links.ca_file,
        require_certificate=True,
        use_identity_as_username=True,
        allow_anonymous=False,
    )


def dialling_context(door: Listener) -> ssl.SSLContext:
    """The peer's certificate must come from the city's authority; the link itself compares the name in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # names in certificates are those of brokers, whatever the address
    load_certificates(context, door)
    return context


def _file(path: Path | None, field: str, name: str) -> Path:
    assert path is not None
    found = Path(str(path).replace("{name}", name))
    problem = ReadableFile().problem(found)
    if problem:
        raise ConfigError(f"links.{field}", problem)
    return found
