"""`metromq proxy`: clients connect to it, and each packet goes to the broker that is responsible for its topic."""

import asyncio
import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import click
import uvloop

from metromq.cli.addresses import address
from metromq.control import DEFAULT_DATA, ManagerDoor, NoAnswer, delegations_at, find_manager
from metromq.errors import MetroError, UsageError
from metromq.gateway import Proxy, ProxyOptions
from metromq.protocol.topics import validate_filter

EPILOG = """\b
Examples:
  metromq proxy --central 10.0.0.1:1883 --edge b12=10.0.7.2:7000 --table 10.0.0.1:9001
        the table of delegations comes from the central broker's HTTP listener, and is asked for every second
  metromq proxy --manager http://10.0.0.1:8800 --token-file token --name gate3
        it registers with the manager, which tells it everything, and again whenever that changes
  metromq proxy --central test.example:1883 --foreign --edge e1=127.0.0.1:7000 --filter 'parking/#=e1'
        the central broker is any MQTT broker, and the table is given here

\b
An edge broker needs the other end of the tunnel beside it: metromq tunnel --listen :7000 --broker 127.0.0.1:1883
"""
ASK_S = 1.0
NEWS_S = 5.0


@click.command("proxy", epilog=EPILOG)
@click.option("--listen", default="127.0.0.1:1883", show_default=True, help="Where clients connect.")
@click.option("--central", metavar="HOST:PORT", help="The central broker. Default: the manager says it.")
@click.option("--manager", "manager", metavar="URL", help="The manager to register with.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The manager's token. Default: in ./metromq-data.")
@click.option("--name", default="proxy", show_default=True, help="What the manager calls this proxy.")
@click.option("--edge", "edges", multiple=True, metavar="NAME=HOST:PORT", help="An edge broker's end of the tunnel.")
@click.option("--filter", "filters", multiple=True, metavar="FILTER=NAME", help="A filter that an edge broker has.")
@click.option("--table", metavar="HOST:PORT", help="The central broker's HTTP listener, which has the table.")
@click.option("--foreign", is_flag=True, help="The central broker does not belong to the edge brokers' city.")
def command(
    listen: str,
    central: str | None,
    manager: str | None,
    token_file: Path | None,
    name: str,
    edges: tuple[str, ...],
    filters: tuple[str, ...],
    table: str | None,
    foreign: bool,
) -> None:
    """Stand between clients and the brokers of a city with delegation; clients do not notice."""
    places = {name: address(text) for name, text in map(_pair, edges)}
    given = dict(map(_pair, filters))
    for one in given:
        validate_filter(one)
    unknown = sorted({name for name in given.values() if name not in places})
    if unknown:
        raise UsageError(f"--filter names {', '.join(unknown)}, for which there is no --edge")
    door = find_manager(DEFAULT_DATA, manager, token_file) if manager is not None else None
    if door is not None:
        door = dataclasses.replace(door, author=f"proxy {name}")
    if door is not None and central is None:
        body = {"listen": _reached(listen), "wait_s": 0}
        central = str(door.ask("PUT", f"/proxies/{name}", body)["central"])
    if central is None:
        raise UsageError("name the central broker with --central, or a --manager that knows it")
    options = ProxyOptions(address(listen), address(central), places, foreign)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(Proxy(options, given, click.echo), table, door, name))


def _reached(listen: str) -> str:
    """What the manager shows people; port 0 is not known yet."""
    host, port = address(listen)
    return f"{host}:{port or 1}"


def _pair(text: str) -> tuple[str, str]:
    first, equals, second = text.rpartition("=")
    if not equals or not first:
        raise UsageError(f"{text!r} should look like NAME=HOST:PORT, or FILTER=NAME")
    return first, second


async def _run(proxy: Proxy, table: str | None, door: ManagerDoor | None, name: str) -> None:
    await proxy.open()
    click.echo(f"listening on {proxy.options.listen[0]}:{proxy.port}")
    try:
        if door is not None:
            await _follow_manager(proxy, door, name)
        while True:
            if table is not None:
                try:
                    found = await delegations_at(table)
                    proxy.told({item.filter: item.broker for item in found if item.broker in proxy.tunnels})
                    proxy.reached(f"the table at {table}")
                except NoAnswer as error:  # what was known last stays true enough: brokers pass on
                    proxy.missed(f"the table at {table}", str(error))
            await asyncio.sleep(ASK_S)
    finally:
        await proxy.close()


async def _follow_manager(proxy: Proxy, door: ManagerDoor, name: str) -> None:
    """Asks again and again, each question waits for news; without a manager the last table stays."""
    version = ""
    listen = f"{proxy.options.listen[0]}:{proxy.port}"
    while True:
        body = {"listen": listen, "version": version, "clients": proxy.clients, "wait_s": NEWS_S}
        try:
            found: dict[str, Any] = await asyncio.to_thread(door.ask, "PUT", f"/proxies/{name}", body, 2 * NEWS_S)
        except MetroError as error:
            proxy.missed("the manager", str(error))
            await asyncio.sleep(ASK_S)
            continue
        proxy.reached("the manager")
        version = str(found["version"])
        proxy.told(found["filters"], {edge: address(text) for edge, text in found["edges"].items()})
