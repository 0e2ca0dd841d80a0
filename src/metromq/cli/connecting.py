"""What `metromq pub` and `metromq sub` share: mosquitto's connection options, -D properties, exit codes."""

import json
import os
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import click

from metromq.client import MQTT5, MQTT31, MQTT311, Client, ConnectionLost, ConnectRefused, MqttError, Properties, Will
from metromq.errors import MetroError, UsageError
from metromq.protocol import reasons

VERSIONS = {"mqttv31": MQTT31, "31": MQTT31, "mqttv311": MQTT311, "311": MQTT311, "mqttv5": MQTT5, "5": MQTT5}
NEVER_EXPIRES = 0xFFFF_FFFF
# libmosquitto's error numbers, which mosquitto_pub and mosquitto_sub exit with.
EXIT_FAILURE, EXIT_CONNECTION_LOST, EXIT_TIMEOUT = 1, 7, 27

COMMANDS = ("connect", "publish", "subscribe", "unsubscribe", "disconnect", "will")
# MQTT's property names as mosquitto spells them -> attribute of Properties and how to read the value.
PROPERTIES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "payload-format-indicator": ("payload_format", int),
    "message-expiry-interval": ("message_expiry_s", int),
    "content-type": ("content_type", str),
    "response-topic": ("response_topic", str),
    "correlation-data": ("correlation_data", str.encode),
    "subscription-identifier": ("subscription_identifiers", lambda text: (int(text),)),
    "session-expiry-interval": ("session_expiry_s", int),
    "authentication-method": ("auth_method", str),
    "authentication-data": ("auth_data", str.encode),
    "request-problem-information": ("request_problem_information", lambda text: bool(int(text))),
    "request-response-information": ("request_response_information", lambda text: bool(int(text))),
    "will-delay-interval": ("will_delay_s", int),
    "receive-maximum": ("receive_maximum", int),
    "topic-alias-maximum": ("topic_alias_maximum", int),
    "topic-alias": ("topic_alias", int),
    "maximum-packet-size": ("maximum_packet_size", int),
}


class BadUsage(click.UsageError):
    """A usage error that exits as mosquitto's clients do."""

    exit_code = EXIT_FAILURE


class MosquittoCommand(click.Command):
    """A command with mosquitto's habits: -D takes three words or, for a user property, four; bad usage exits with 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, _fold_properties(args))
        except click.UsageError as error:
            raise BadUsage(error.format_message(), ctx) from None


def _fold_properties(args: list[str]) -> list[str]:
    """`-D publish user-property a b` as one argument, since click's options have a fixed number of words."""
    folded: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word not in ("-D", "--property"):
            folded.append(word)
            continue
        size = 4 if rest[1:2] == ["user-property"] else 3
        if len(rest) < size:
            raise click.UsageError("-D needs COMMAND IDENTIFIER VALUE, or COMMAND user-property NAME VALUE.")
        folded += ["--property", json.dumps(rest[:size])]
        del rest[:size]
    return folded


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say where the server is and who we are."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = [
    click.option("-h", "--host", default="localhost", show_default=True, help="Server to connect to."),
    click.option("-p", "--port", type=click.IntRange(1, 65535), help="Port. Default: 1883, or 8883 with TLS."),
    click.option(
        "-L", "--url", help="mqtt[s]:// or ws[s]://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC, instead of -h -p -u -P -t."
    ),
    click.option("-i", "--id", "identifier", help="Client identifier. Default: a random one."),
    click.option("-I", "--id-prefix", help="Client identifier: this prefix and the process ID."),
    click.option("-u", "--username", help="User name."),
    click.option("-P", "--pw", "password", help="Password."),
    click.option(
        "-V",
        "--protocol-version",
        type=click.Choice(list(VERSIONS)),
        help="MQTT version. Default: mqttv311, or mqttv5 with -D or -x.",
    ),
    click.option(
        "-k", "--keepalive", type=click.IntRange(0, 65535), default=60, show_default=True, help="Keepalive in seconds."
    ),
    click.option("-c", "--disable-clean-session", is_flag=True, help="Keep the session on the server; needs -i."),
    click.option(
        "-x", "session_expiry", help="Seconds the server keeps the session after we disconnect; -1: forever (MQTT 5)."
    ),
    click.option("-A", "bind_address", help="Local address to connect from."),
    click.option(
        "-M", "max_inflight", type=click.IntRange(1, 65535), default=20, help="Most unacknowledged messages at a time."
    ),
    click.option(
        "-D",
        "--property",
        "properties",
        multiple=True,
        metavar="COMMAND IDENTIFIER VALUE",
        help="An MQTT 5 property of CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT or WILL.",
    ),
    click.option("--will-topic", help="Topic of the will."),
    click.option("--will-payload", default="", help="Payload of the will."),
    click.option("--will-qos", type=click.IntRange(0, 2), default=0, help="Quality of service of the will."),
    click.option("--will-retain", is_flag=True, help="Retain the will."),
    click.option("--cafile", type=click.Path(path_type=Path), help="Trusted CA certificates (PEM); turns TLS on."),
    click.option("--capath", type=click.Path(path_type=Path), help="Directory of trusted CA files; turns TLS on."),
    click.option("--cert", type=click.Path(path_type=Path), help="Client certificate (PEM)."),
    click.option("--key", type=click.Path(path_type=Path), help="Key of the client certificate (PEM)."),
    click.option("--ciphers", help="TLS ciphers, as an OpenSSL cipher list."),
    click.option("--tls-alpn", help="ALPN protocol to offer."),
    click.option("--tls-version", type=click.Choice(["tlsv1.2", "tlsv1.3"]), help="Use only this TLS version."),
    click.option("--tls-use-os-certs", is_flag=True, help="Trust the system's CA certificates; turns TLS on."),
    click.option(
        "--insecure", is_flag=True, help="Do not check that the certificate matches the host. For testing only."
    ),
    click.option("--ws", is_flag=True, help="Use MQTT over WebSocket."),
    click.option("--nodelay", is_flag=True, help="Accepted for compatibility with Mosquitto; always on."),
    click.option("-d", "--debug", is_flag=True, help="Report progress on standard error."),
    click.option("--quiet", is_flag=True, help="Print no errors."),
]


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Everything the connection options say."""

    client: Client
    topic: str | None
    version: int
    debug: bool
    quiet: bool
    properties: dict[str, Properties] = field(default_factory=dict)

    def note(self, text: str) -> None:
        if self.debug:
            click.echo(text, err=True)

    def complain(self, error: object) -> None:
        if not self.quiet:
            click.echo(f"Error: {error}", err=True)

    def of(self, command: str) -> Properties | None:
        return self.properties.get(command)

    def exit_code(self, error: MetroError) -> int:
        """The server's CONNACK code as the version has it, or libmosquitto's number for what happened."""
        if isinstance(error, MqttError) and error.reason_code is not None and not isinstance(error, ConnectionLost):
            refused_by_old = isinstance(error, ConnectRefused) and self.version != MQTT5
            return reasons.connack_code_311(error.reason_code) if refused_by_old else error.reason_code
        return EXIT_CONNECTION_LOST if isinstance(error, ConnectionLost) else EXIT_FAILURE


def open_connection(given: dict[str, Any]) -> ConnectionOptions:
    """The client for the options that `connection_options` added."""
    properties = parse_properties(given["properties"])
    place = _place(given)
    version = VERSIONS.get(given["protocol_version"], MQTT311)
    if given["protocol_version"] is None and (properties or given["session_expiry"] is not None):
        version = MQTT5
    if properties and version != MQTT5:
        raise UsageError("-D needs -V mqttv5")
    connect = properties.pop("connect", Properties())
    expiry = _expiry(given, connect)
    identifier = _identifier(given, version, bool(expiry) or given["disable_clean_session"])
    client = Client(
        place.host,
        place.port,
        identifier=identifier,
        username=place.username,
        password=place.password,
        version=version,
        clean_start=not given["disable_clean_session"],
        session_expiry_s=expiry if version == MQTT5 else None,
        keepalive_s=given["keepalive"],
        will=_will(given, properties),
        tls=_tls(given) if place.secure else None,
        transport=place.transport,
        bind_address=given["bind_address"],
        max_inflight=given["max_inflight"],
        receive_maximum=connect.receive_maximum,
        topic_alias_maximum=connect.topic_alias_maximum or 0,
        max_packet_size_bytes=connect.maximum_packet_size or 268_435_460,
        properties=connect,
    )
    return ConnectionOptions(client, place.topic, version, given["debug"], given["quiet"], properties)


def parse_properties(given: tuple[str, ...]) -> dict[str, Properties]:
    """The -D options by command."""
    found: dict[str, Properties] = {}
    for folded in given:
        command, name, *values = json.loads(folded)
        if command.lower() not in COMMANDS:
            raise UsageError(f"-D {command}: unknown command; use one of {', '.join(COMMANDS)}")
        properties = found.setdefault(command.lower(), Properties())
        if name == "user-property":
            properties.user = (*properties.user, (values[0], values[1]))
        elif name not in PROPERTIES:
            known = ", ".join(("user-property", *PROPERTIES))
            raise UsageError(f"-D {command} {name}: unknown property; use one of {known}")
        else:
            attribute, read = PROPERTIES[name]
            try:
                setattr(properties, attribute, read(values[0]))
            except ValueError:
                raise UsageError(f"-D {command} {name} {values[0]}: the value must be a number") from None
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    port: int
    secure: bool
    transport: Literal["tcp", "websocket"]
    username: str | None
    password: str | None
    topic: str | None


def _place(given: dict[str, Any]) -> _Place:
    secure = bool(given["cafile"] or given["capath"] or given["tls_use_os_certs"] or given["cert"])
    transport: Literal["tcp", "websocket"] = "websocket" if given["ws"] else "tcp"
    if not given["url"]:
        secure = secure or given["port"] == 8883
        port = given["port"] or (8883 if secure else 1883)
        return _Place(given["host"], port, secure, transport, given["username"], given["password"], None)
    url = urlsplit(given["url"])
    if url.scheme not in ("mqtt", "mqtts", "ws", "wss") or not url.hostname:
        raise UsageError(f"{given['url']} must look like mqtt[s]://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC")
    secure = url.scheme in ("mqtts", "wss")
    try:
        port = url.port or (8883 if secure else 1883)
    except ValueError:
        raise UsageError(f"{given['url']}: the port must be a number up to 65535") from None
    if url.scheme in ("ws", "wss"):
        transport = "websocket"
    username = unquote(url.username) if url.username else given["username"]
    password = unquote(url.password) if url.password else given["password"]
    topic = given["url"].split("://", 1)[1].partition("/")[2]  # a topic may hold # and ?, which no URL path does
    return _Place(url.hostname, port, secure, transport, username, password, unquote(topic) or None)


def _identifier(given: dict[str, Any], version: int, persistent: bool) -> str:
    if given["identifier"] is not None and given["id_prefix"] is not None:
        raise UsageError("-i and -I cannot be given together")
    if given["id_prefix"] is not None:
        return f"{given['id_prefix']}{os.getpid()}"
    if given["identifier"] is None and persistent:
        raise UsageError("-c and -x need -i: without a client identifier the session cannot be resumed")
    if given["identifier"] is None and version != MQTT5:
        return f"metromq-{secrets.token_hex(6)}"
    return given["identifier"] or ""


def _expiry(given: dict[str, Any], connect: Properties) -> int | None:
    text = given["session_expiry"]
    if text is None:
        if connect.session_expiry_s is not None:
            return connect.session_expiry_s
        return NEVER_EXPIRES if given["disable_clean_session"] else None
    if text in ("-1", "∞"):
        return NEVER_EXPIRES
    if not (text.isascii() and text.isdigit() and int(text) <= NEVER_EXPIRES):
        raise UsageError(f"-x {text}: must be seconds from 0 to {NEVER_EXPIRES}, or -1")
    return int(text)


def _will(given: dict[str, Any], properties: dict[str, Properties]) -> Will | None:
    said = properties.pop("will", None)
    if given["will_topic"] is None:
        if given["will_payload"] or given["will_retain"] or given["will_qos"] or said:
            raise UsageError("a will needs --will-topic")
        return None
    return Will(given["will_topic"], given["will_payload"], given["will_qos"], given["will_retain"], said)


def _tls(given: dict[str, Any]) -> ssl.SSLContext:
    own = given["cafile"] or given["capath"]
    try:
        if own:
            context = ssl.create_default_context(cafile=given["cafile"], capath=given["capath"])
            if given["tls_use_os_certs"]:
                context.load_default_certs()
        else:
            context = ssl.create_default_context()
        if given["cert"]:
            context.load_cert_chain(given["cert"], given["key"])
        if given["ciphers"]:
            context.set_ciphers(given["ciphers"])
    except OSError as error:  # ssl.SSLError is one, and neither names the file
        files = ", ".join(str(given[name]) for name in ("cafile", "capath", "cert", "key") if given[name])
        raise UsageError(f"cannot set up TLS with {files or 'these ciphers'}: {error}") from error
    if given["tls_version"]:
        version = ssl.TLSVersion.TLSv1_3 if given["tls_version"] == "tlsv1.3" else ssl.TLSVersion.TLSv1_2
        context.minimum_version = context.maximum_version = version
    if given["tls_alpn"]:
        context.set_alpn_protocols([given["tls_alpn"]])
    context.check_hostname = not given["insecure"]
    return context
