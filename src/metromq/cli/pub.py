"""`metromq pub`: publishes messages, with the options of mosquitto_pub."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from metromq.cli.connecting import (
    EXIT_FAILURE,
    ConnectionOptions,
    MosquittoCommand,
    connection_options,
    open_connection,
)
from metromq.errors import MetroError, UsageError

EPILOG = """\b
Examples:
  metromq pub -t city/7/air -m 21.5
  metromq pub -t city/7/air -m 21.5 -q 1 -r             retained and acknowledged
  tail -f log.txt | metromq pub -t log -l               one message per line
  metromq pub -t job -m x --repeat 10 --repeat-delay 0.5
  metromq pub -t a -m x -D publish user-property place north -D publish message-expiry-interval 60
  metromq pub -h broker.example -p 8883 --cafile ca.crt -u me -P secret -t a -m x

\b
Exit status: 0 on success; the server's reason code if it refuses the connection or a message; 7 if the connection
is lost; 1 for any other error.
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to publish."""

    topic: str
    payload: bytes | None
    """None: a message per line of standard input."""
    qos: int
    retain: bool
    repeat: int
    repeat_delay_s: float


@click.command("pub", cls=MosquittoCommand, epilog=EPILOG)
@click.option("-t", "--topic", help="Topic to publish to.")
@click.option("-m", "--message", help="Message to send.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Send the contents of this file.")
@click.option("-l", "--stdin-line", is_flag=True, help="Send each line of standard input as a message.")
@click.option("-n", "--null-message", is_flag=True, help="Send an empty payload.")
@click.option("-s", "--stdin-file", is_flag=True, help="Send all of standard input as one message.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="Quality of service.")
@click.option("-r", "--retain", is_flag=True, help="Ask the server to keep the message for later subscribers.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Publish this many times (with -m, -f, -n, -s).")
@click.option("--repeat-delay", type=click.FloatRange(0), default=0.0, help="Seconds between repetitions.")
@connection_options
def command(**given: Any) -> None:
    """Publish messages to a topic. Takes the options of mosquitto_pub."""
    try:
        connection = open_connection(given)
        wish = read_wish(given, connection)
    except UsageError as error:
        click.echo(f"Error: {error}\n\nUse 'metromq pub --help' to see usage.", err=True)
        sys.exit(EXIT_FAILURE)
    try:
        code = asyncio.run(publish(connection, wish))
    except KeyboardInterrupt:
        code = 0
    sys.exit(code)


def read_wish(given: dict[str, Any], connection: ConnectionOptions) -> Wish:
    topic = given["topic"] or connection.topic
    modes = [given["message"] is not None, given["file"] is not None]
    modes += [given["stdin_line"], given["null_message"], given["stdin_file"]]
    if topic is None or not any(modes):
        raise UsageError("both a topic (-t) and a message (-m, -f, -l, -n or -s) must be given")
    if sum(modes) > 1:
        raise UsageError("only one of -m, -f, -l, -n and -s can be given")
    if given["stdin_line"] and given["repeat"] > 1:
        raise UsageError("--repeat needs -m, -f, -n or -s")
    payload: bytes | None = b""
    if given["message"] is not None:
        payload = given["message"].encode("utf-8", "surrogateescape")
    elif given["file"] is not None:
        try:
            payload = given["file"].read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read the file {given['file']}: {error.strerror}") from error
    elif given["stdin_file"]:
        payload = sys.stdin.buffer.read()
    elif given["stdin_line"]:
        payload = None
    return Wish(topic, payload, given["qos"], given["retain"], given["repeat"], given["repeat_delay"])


async def publish(connection: ConnectionOptions, wish: Wish) -> int:
    """Publishes all that is wished; returns the exit status."""
    client = connection.client
    try:
        await client.connect()
        connection.note(f"Client {client.identifier} connected to {client.hostname}:{client.port}")
        try:
            if wish.payload is None:
                await _publish_lines(connection, wish)
            else:
                await _publish_repeatedly(connection, wish, wish.payload)
        finally:
            await client.disconnect(properties=connection.of("disconnect"))
    except MetroError as error:
        connection.complain(error)
        return connection.exit_code(error)
    return 0


async def _publish_repeatedly(connection: ConnectionOptions, wish: Wish, payload: bytes) -> None:
    for number in range(wish.repeat):
        if number and wish.repeat_delay_s:
            await asyncio.sleep(wish.repeat_delay_s)
        await _publish_one(connection, wish, payload)


async def _publish_lines(connection: ConnectionOptions, wish: Wish) -> None:
    """Keeps reading while earlier lines wait for their acknowledgements; the client's window bounds how many do."""
    tasks: set[asyncio.Task[None]] = set()
    async for line in stdin_lines():
        if wish.qos == 0:
            await _publish_one(connection, wish, line)
            continue
        tasks.add(asyncio.create_task(_publish_one(connection, wish, line)))
        if len(tasks) >= 1000:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    await asyncio.gather(*tasks)


async def _publish_one(connection: ConnectionOptions, wish: Wish, payload: bytes) -> None:
    properties = connection.of("publish")
    code = await connection.client.publish(wish.topic, payload, wish.qos, wish.retain, properties)
    connection.note(f"Published {len(payload)} bytes to {wish.topic} (QoS {wish.qos}, reason 0x{code:02X})")


async def stdin_lines() -> AsyncIterator[bytes]:
    """Lines of standard input without their ends, read in a thread that may be left waiting when we stop."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    def read() -> None:
        chunk = b"first"
        while chunk:
            chunk = os.read(sys.stdin.fileno(), 1 << 16)
            putting = chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):  # the event loop has ended
                putting.close()
                return

    threading.Thread(target=read, daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest
