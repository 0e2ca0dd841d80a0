"""TLS contexts of the doors, and how they read their files again."""

import ssl

from metromq.config import Listener
from metromq.errors import ConfigError


def tls_context(listener: Listener) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificates(context, listener)
    return context


def load_certificates(context: ssl.SSLContext, listener: Listener) -> None:
    assert listener.cert_file is not None
    try:
        context.load_cert_chain(listener.cert_file, listener.key_file)
        if listener.ca_file is not None:
            context.load_verify_locations(listener.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED if listener.require_certificate else ssl.CERT_OPTIONAL
    except ssl.SSLError as error:
        raise ConfigError(f"listener {listener.host}:{listener.port}", f"bad certificate or key: {error}") from error
