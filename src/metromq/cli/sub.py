"""`metromq sub`: prints messages, with the options of mosquitto_sub."""

import asyncio
import contextlib
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import click

from metromq.cli.connecting import (
    EXIT_FAILURE,
    EXIT_TIMEOUT,
    ConnectionOptions,
    MosquittoCommand,
    connection_options,
    open_connection,
)
from metromq.cli.formats import OutputFormat
from metromq.client import ConnectionLost, Message, MqttError, Subscription
from metromq.errors import MetroError, PeerViolation, UsageError
from metromq.protocol.topics import matches, validate_filter

RECONNECT_S = 1.0
EPILOG = """\b
Examples:
  metromq sub -t 'city/+/air'
  metromq sub -v -t '$SYS/#'                            print topic and payload
  metromq sub -t a -C 1 -W 5                            one message, or exit status 27 after 5 seconds
  metromq sub -t '#' -F '%I %t %q %x'                   your own format
  metromq sub -t '#' -F %j --pretty                     JSON
  metromq sub -t jobs -q 1 -c -i worker -E              create a persistent session and exit
  metromq sub -t '#' --remove-retained --retained-only  delete all retained messages

\b
Formats (-F): %t topic, %p payload, %x %X payload in hexadecimal, %l its length, %q QoS, %r retain flag, %m packet
identifier, %j %J JSON, %I ISO time, %U Unix time, %C content type, %R response topic, %D correlation data, %E expiry,
%F payload format, %P user properties, %S subscription identifiers, @X strftime's %X, @N nanoseconds; \\n \\t \\0.
Widths as in printf: %10t, %-10t, %05l, %10.10t.

\b
Exit status: 0 on success; the server's reason code if it refuses the connection or every subscription; 27 if -W
ran out; 1 for any other error.
"""


@dataclass(frozen=True, slots=True)
class View:
    """Which messages are wanted and how they are shown."""

    topics: tuple[str, ...]
    unsubscribe: tuple[str, ...]
    filter_out: tuple[str, ...]
    qos: int
    count: int | None
    timeout_s: float | None
    leave_when_subscribed: bool
    fresh_only: bool
    retained_only: bool
    remove_retained: bool
    retain_as_published: bool
    retain_handling: int
    random_share: float
    format: OutputFormat
    end: bytes


@click.command("sub", cls=MosquittoCommand, epilog=EPILOG)
@click.option("-t", "--topic", "topics", multiple=True, help="Topic filter; may be repeated.")
@click.option("-T", "--filter-out", multiple=True, help="Do not print topics that match this filter; may be repeated.")
@click.option("-U", "--unsubscribe", multiple=True, help="Unsubscribe from this filter; may be repeated.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Quality of service.")
@click.option("-C", "count", type=click.IntRange(1), help="Exit after this many messages.")
@click.option("-W", "timeout_s", type=click.FloatRange(0, min_open=True), help="Exit after this many seconds.")
@click.option("-E", "leave_when_subscribed", is_flag=True, help="Exit once the subscriptions are acknowledged.")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the payload.")
@click.option("-F", "format_text", help="Output format, see below; overrides -v.")
@click.option("--pretty", is_flag=True, help="Print %j and %J over several lines.")
@click.option("-N", "no_newline", is_flag=True, help="Print no newline after a message.")
@click.option("-R", "fresh_only", is_flag=True, help="Do not print retained messages.")
@click.option("--retained-only", is_flag=True, help="Print only retained messages; exit at the first other one.")
@click.option("--remove-retained", is_flag=True, help="Delete each retained message received from the server.")
@click.option("--retain-as-published", is_flag=True, help="Keep the publisher's retain flag (MQTT 5).")
@click.option(
    "--retain-handling",
    type=click.Choice(["always", "new", "never"]),
    default="always",
    help="When the server sends retained messages: for every subscription, only for a new one, or never (MQTT 5).",
)
@click.option(
    "--random-filter", type=click.FloatRange(0.1, 100), default=100.0, help="Print only this percentage of messages."
)
@connection_options
def command(**given: Any) -> None:
    """Subscribe and print messages. Takes the options of mosquitto_sub."""
    try:
        connection = open_connection(given)
        view = read_view(given, connection)
    except UsageError as error:
        click.echo(f"Error: {error}\n\nUse 'metromq sub --help' to see usage.", err=True)
        sys.exit(EXIT_FAILURE)
    sys.exit(asyncio.run(run(connection, view)))


def read_view(given: dict[str, Any], connection: ConnectionOptions) -> View:
    topics = given["topics"] or ((connection.topic,) if connection.topic else ())
    if not topics and not given["unsubscribe"]:
        raise UsageError("a topic to subscribe to (-t) must be given")
    for name in (*topics, *given["unsubscribe"], *given["filter_out"]):
        try:
            validate_filter(name)
        except PeerViolation as error:
            raise UsageError(str(error)) from None
    if given["retained_only"] and given["fresh_only"]:
        raise UsageError("--retained-only and -R together leave nothing to print")
    text = given["format_text"] or ("%t %p" if given["verbose"] else "%p")
    return View(
        tuple(topics),
        given["unsubscribe"],
        given["filter_out"],
        given["qos"],
        given["count"],
        given["timeout_s"],
        given["leave_when_subscribed"],
        given["fresh_only"],
        given["retained_only"],
        given["remove_retained"],
        given["retain_as_published"],
        ["always", "new", "never"].index(given["retain_handling"]),
        given["random_filter"],
        OutputFormat(text, given["pretty"]),
        b"" if given["no_newline"] else b"\n",
    )


async def run(connection: ConnectionOptions, view: View) -> int:
    """Connects, and connects again when the connection is lost, until done; returns the exit status."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await connection.client.connect()
        async with asyncio.timeout(view.timeout_s):
            await Subscriber(connection, view).run()
    except TimeoutError:
        connection.complain("Timed out")
        return EXIT_TIMEOUT
    except asyncio.CancelledError:
        return 0
    except BrokenPipeError:
        return 0
    except MetroError as error:
        connection.complain(error)
        return connection.exit_code(error)
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        await connection.client.disconnect(properties=connection.of("disconnect"))
    return 0


class Subscriber:
    """One run of the command on a connected client."""

    def __init__(self, connection: ConnectionOptions, view: View) -> None:
        self._connection = connection
        self._view = view
        self._shown = 0

    async def run(self) -> None:
        client = self._connection.client
        while True:
            try:
                self._connection.note(f"Client {client.identifier} connected to {client.hostname}:{client.port}")
                await self._subscribe()
                if not self._view.leave_when_subscribed:
                    await self._show_all()
                return
            except ConnectionLost as error:
                self._connection.complain(f"{error}; reconnecting")
            await self._reconnect()

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(RECONNECT_S)
            try:
                await self._connection.client.connect()
                return
            except MqttError as error:
                if error.reason_code is not None:
                    raise
                self._connection.note(str(error))

    async def _subscribe(self) -> None:
        view, client = self._view, self._connection.client
        properties = self._connection.of("subscribe")
        identifiers = properties.subscription_identifiers if properties else ()
        if properties:
            properties.subscription_identifiers = ()
        refused: MqttError | None = None
        granted = 0
        for name in view.topics:
            wanted = Subscription(
                name, view.qos, retain_as_published=view.retain_as_published, retain_handling=view.retain_handling
            )
            try:
                [qos] = await client.subscribe(wanted, identifier=sum(identifiers), properties=properties)
                granted += 1
                self._connection.note(f"Subscribed to {name} (QoS {qos})")
            except ConnectionLost:
                raise
            except MqttError as error:
                refused = error
                self._connection.complain(error)
        if properties:
            properties.subscription_identifiers = identifiers
        if view.unsubscribe:
            await client.unsubscribe(view.unsubscribe, self._connection.of("unsubscribe"))
        if refused is not None and not granted:
            raise MqttError("all subscriptions were refused", refused.reason_code)

    async def _show_all(self) -> None:
        client = self._connection.client
        out = sys.stdout.buffer
        async for message in client.messages:
            if any(matches(name, message.topic) for name in self._view.filter_out):
                continue
            if self._view.retained_only and not message.retain:
                return
            if self._view.remove_retained and message.retain:
                await client.publish(message.topic, b"", 1, True)
            if self._view.fresh_only and message.retain:
                continue
            if self._view.random_share < 100 and random.uniform(0, 100) >= self._view.random_share:
                continue
            out.write(self._line(message))
            if not len(client.messages):
                out.flush()  # one system call for what came together
            self._shown += 1
            if self._shown == self._view.count:
                out.flush()
                return

    def _line(self, message: Message) -> bytes:
        line = self._view.format.render(message, time.time_ns()) + self._view.end
        if self._view.format.problem:
            self._connection.complain(self._view.format.problem)
        return line
