"""The connection options that pub and sub share: what they mean and what is refused."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from metromq.cli.connecting import ConnectionOptions, MosquittoCommand, connection_options, open_connection
from metromq.client import MQTT5, MQTT31, MQTT311, ConnectionLost, ConnectRefused, MqttError, Properties
from metromq.errors import UsageError


def parse(*arguments: str) -> ConnectionOptions:
    """The connection for a command line."""
    made: list[ConnectionOptions] = []

    @click.command("probe", cls=MosquittoCommand)
    @connection_options
    def probe(**given: Any) -> None:
        made.append(open_connection(given))

    result = CliRunner().invoke(probe, list(arguments))
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return made[0]


def options(connection: ConnectionOptions) -> Any:
    return connection.client._core.options


def test_defaults() -> None:
    connection = parse()
    assert (connection.client.hostname, connection.client.port, connection.version) == ("localhost", 1883, MQTT311)
    assert options(connection).identifier.startswith("metromq-")
    assert options(connection).clean_start
    assert (options(connection).keepalive_s, options(connection).max_inflight) == (60, 20)


@pytest.mark.parametrize(
    ("arguments", "version", "identifier", "expiry"),
    [
        (["-V", "5"], MQTT5, "", None),
        (["-V", "mqttv31", "-i", "me"], MQTT31, "me", None),
        (["-c", "-i", "me"], MQTT311, "me", None),
        (["-c", "-i", "me", "-V", "mqttv5"], MQTT5, "me", 0xFFFFFFFF),
        (["-x", "60", "-i", "me"], MQTT5, "me", 60),
        (["-x", "-1", "-i", "me"], MQTT5, "me", 0xFFFFFFFF),
        (["-x", "∞", "-i", "me"], MQTT5, "me", 0xFFFFFFFF),
        (["-D", "connect", "session-expiry-interval", "7", "-i", "me"], MQTT5, "me", 7),
        (["-D", "publish", "content-type", "x"], MQTT5, "", None),
    ],
)
def test_version_session_identifier(arguments: list[str], version: int, identifier: str, expiry: int | None) -> None:
    connection = parse(*arguments)
    found = options(connection)
    assert (connection.version, found.identifier, found.session_expiry_s) == (version, identifier, expiry)
    assert found.clean_start is ("-c" not in arguments)


def test_properties_by_command() -> None:
    connection = parse(
        *("-D", "publish", "user-property", "a", "b", "-D", "PUBLISH", "user-property", "c", "d"),
        *("--property", "publish", "message-expiry-interval", "5", "-D", "publish", "correlation-data", "é"),
        *("-D", "connect", "receive-maximum", "3", "-D", "connect", "topic-alias-maximum", "4"),
        *("-D", "connect", "maximum-packet-size", "500", "-D", "connect", "request-problem-information", "0"),
        *("-D", "will", "will-delay-interval", "9", "--will-topic", "w", "--will-payload", "p", "--will-qos", "1"),
        *("-D", "subscribe", "subscription-identifier", "8", "-D", "disconnect", "session-expiry-interval", "0"),
    )
    assert connection.of("publish") == Properties(
        user=(("a", "b"), ("c", "d")), message_expiry_s=5, correlation_data="é".encode()
    )
    found = options(connection)
    assert (found.receive_maximum, found.topic_alias_maximum, found.max_packet_size_bytes) == (3, 4, 500)
    assert found.properties.request_problem_information is False
    assert (found.will.topic, found.will.payload, found.will.qos, found.will.properties) == (
        "w",
        "p",
        1,
        Properties(will_delay_s=9),
    )
    assert connection.of("subscribe") == Properties(subscription_identifiers=(8,))
    assert connection.of("disconnect") == Properties(session_expiry_s=0)
    assert connection.of("unsubscribe") is None


@pytest.mark.parametrize(
    ("arguments", "host", "port", "topic", "kind", "secure"),
    [
        (["-L", "mqtt://h/a/b"], "h", 1883, "a/b", "tcp", False),
        (["-L", "mqtt://u:p%40@h:99/#"], "h", 99, "#", "tcp", False),
        (["-L", "mqtts://h/t?x"], "h", 8883, "t?x", "tcp", True),
        (["-L", "ws://h:8080/t"], "h", 8080, "t", "websocket", False),
        (["-h", "x", "--ws", "-p", "80"], "x", 80, None, "websocket", False),
        (["-p", "8883"], "localhost", 8883, None, "tcp", True),
        (["--tls-use-os-certs"], "localhost", 8883, None, "tcp", True),
    ],
)
def test_places(arguments: list[str], host: str, port: int, topic: str | None, kind: str, secure: bool) -> None:
    connection = parse(*arguments)
    client = connection.client
    assert (client.hostname, client.port, connection.topic) == (host, port, topic)
    assert (client._transport_kind, client._tls is not None) == (kind, secure)
    if "u:p" in arguments[-1]:
        assert (options(connection).username, options(connection).password) == ("u", b"p@")


def test_tls_options() -> None:
    context = parse("--tls-use-os-certs", "--insecure", "--tls-version", "tlsv1.3").client._tls
    assert context is not None
    assert not context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.minimum_version == context.maximum_version


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-c"], "need -i"),
        (["-x", "5"], "need -i"),
        (["-x", "soon", "-i", "a"], "must be seconds"),
        (["-i", "a", "-I", "b"], "cannot be given together"),
        (["-L", "http://x/y"], "must look like mqtt"),
        (["-L", "mqtt://h:99999/t"], "the port must be a number up to 65535"),
        (["-D", "puback", "reason-string", "x"], "unknown command; use one of connect"),
        (["-D", "publish", "content", "x"], "unknown property; use one of user-property"),
        (["-D", "publish", "topic-alias", "x"], "the value must be a number"),
        (["-V", "311", "-D", "publish", "content-type", "x"], "-D needs -V mqttv5"),
        (["--will-payload", "x"], "a will needs --will-topic"),
        (["--cafile", "/nonexistent"], "cannot set up TLS with /nonexistent"),
    ],
)
def test_wrong_usage(arguments: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse(*arguments)


def test_exit_codes() -> None:
    new, old = parse("-V", "5"), parse("-V", "311")
    assert (new.exit_code(ConnectRefused("", 0x87)), old.exit_code(ConnectRefused("", 0x87))) == (135, 5)
    assert (new.exit_code(ConnectRefused("", 0x86)), old.exit_code(ConnectRefused("", 0x86))) == (134, 4)
    assert new.exit_code(MqttError("", 0x97)) == 0x97
    assert new.exit_code(ConnectionLost("", 0x8B)) == 7
    assert new.exit_code(MqttError("nobody there")) == 1
    assert new.exit_code(UsageError("")) == 1
