"""`metromq serve`: one broker, alone or of a city, until it is told to stop."""

import asyncio
import dataclasses
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import click
import uvloop

from metromq.broker import Broker, Garbage, exposed, keep_buffers, logs, set_aside_journal, take_short_turns
from metromq.cli.joining import Application, joined_city
from metromq.config import Config, Listener, load_config, parse_listener, validate
from metromq.control import (
    CITY_FILE,
    DEFAULT_DATA,
    RunningBroker,
    city_named,
    forget_place,
    keep_city,
    keep_place,
    new_key,
    secret_places,
)
from metromq.errors import ConfigError, JournalUnusable, UsageError
from metromq.federation import BrokerSpec, City, Description, Site

EPILOG = """\b
Examples:
  metromq serve                                   listen on 127.0.0.1:1883, data in ./metromq-data
  metromq serve --listen 127.0.0.1:1884 --data /var/lib/metromq --durability fsync
  metromq serve --config metromq.toml             see docs/metromq.example.toml
  METROMQ_DURABILITY=memory metromq serve         every setting has an environment variable
\b
One broker of a city, on a machine of its own:
  metromq serve --city city.toml --name harbour --data /var/lib/metromq
  metromq serve --city city.toml --name harbour --listen 0.0.0.0:1883 --peer airport=10.0.3.7:1883
\b
A new broker of a running city, with a token that `metromq city token` printed there:
  metromq serve --join 10.0.3.7:1883 --token TOKEN --name dock --listen 10.0.3.9:1883 --site harbour --area 1/2
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """A broker's part in a city."""

    city: City
    city_name: str  # its file, or a preset
    peer_addresses: dict[str, tuple[str, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """What to do with a journal that cannot be used: neither is to refuse to start."""

    accepted: bool
    set_aside: bool


WHAT_TO_DO = (
    "Restore a backup, or start with --accept-damage (keeps all that is whole) or, if that is refused too, with "
    "--set-aside-damaged (moves the journal to journal.damaged-1 and starts empty)."
)
LOST = "sessions, subscriptions, queued and retained messages, wills, what peers had not received"


@click.command("serve", epilog=EPILOG)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with the settings.")
@click.option(
    "--listen", multiple=True, metavar="HOST:PORT", help="Replaces the listeners of the file; may be repeated."
)
@click.option("--data", type=click.Path(path_type=Path), help="Data directory; in a city, a subdirectory NAME.")
@click.option("--durability", type=click.Choice(["memory", "os", "fsync"]), help="When a message counts as stored.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /healthz and /status at this address.")
@click.option("--record", metavar="LAKE", help="Record QoS 1 and 2 messages, and telemetry, into this lake.")
@click.option("--accept-damage", is_flag=True, help="Start even if part of the journal is damaged and lost.")
@click.option("--set-aside-damaged", is_flag=True, help="Move a journal that cannot be used aside and start empty.")
@click.option("--city", "city_name", metavar="CITY", help="Join a city: a TOML file or the name of a preset.")
@click.option("--name", help="This broker's name in the city.")
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="Where to reach a peer, if not at the address in the city's file; may be repeated.",
)
@click.option("--join", "join_at", metavar="HOST:PORT", help="Join a running city, at one of its brokers.")
@click.option("--token", help="Needed once to join; `metromq city token` prints it.")
@click.option("--site", default="", help="When joining: the site where this broker stands.")
@click.option("--area", default="", help="When joining: the areas that this broker takes over.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop when standard input ends: `up` holds its other end.")
def command(
    config_file: Path | None,
    listen: tuple[str, ...],
    data: Path | None,
    durability: str | None,
    metrics: str | None,
    record: str | None,
    accept_damage: bool,
    set_aside_damaged: bool,
    city_name: str | None,
    name: str | None,
    peers: tuple[str, ...],
    join_at: str | None,
    token: str | None,
    site: str,
    area: str,
    until_eof: bool,
) -> None:
    """Run one broker. SIGHUP reloads passwords, ACL and certificates; SIGTERM stops it cleanly."""
    config, role = load_config(config_file, os.environ), None
    city = None
    if join_at is not None:
        city = join(join_at, token, name, listen, area, site, data or DEFAULT_DATA)
        city_name = str((data or DEFAULT_DATA) / CITY_FILE)
    if city_name is not None:
        city = city or city_named(city_name, os.environ)
        config = in_city(config, city, name, data or DEFAULT_DATA)
        where = str(Path(city_name).absolute()) if Path(city_name).is_file() else city_name
        role = Role(city, where, peer_addresses(city, config.name, peers))
        data = None
    elif name is not None or peers:
        raise UsageError("--name and --peer only work with --city or --join")
    config = with_options(config, listen, data, durability, metrics, record)
    logs.set_up(config.log)
    keep_buffers()
    take_short_turns()
    uvloop.run(run(config, Damage(accept_damage, set_aside_damaged), role, until_eof))


def join(
    address: str, token: str | None, name: str | None, listen: tuple[str, ...], area: str, site: str, data: Path
) -> City:
    if name is None or not listen:
        raise UsageError("--join needs --name and --listen: who joins, and where clients and peers reach it")
    spec = BrokerSpec(name, listen[0], area, site)
    return joined_city(Application(address, token, spec, Site(site) if site else None), data)


def with_options(
    config: Config,
    listen: tuple[str, ...],
    data: Path | None,
    durability: str | None,
    metrics: str | None,
    record: str | None = None,
) -> Config:
    changes: dict[str, object] = {}
    if listen:
        changes["listeners"] = tuple(parse_listener(text) for text in listen)
    if data is not None:
        changes["data_dir"] = data
    if durability is not None:
        changes["durability"] = durability
    if metrics is not None:
        door = parse_listener(metrics)
        changes["metrics"] = dataclasses.replace(config.metrics, host=door.host, port=door.port)
    if record is not None:
        lake = record if "://" in record else str(Path(record).absolute())
        changes["recorder"] = dataclasses.replace(config.recorder, lake=lake)
    config = dataclasses.replace(config, **changes)  # type: ignore[arg-type]
    validate(config)
    return config


def in_city(config: Config, city: City, name: str | None, data: Path) -> Config:
    """The city says name, first listener and directory; the configuration says everything else."""
    if name is None:
        raise UsageError(f"--city needs --name: one of {', '.join(city.names)}")
    spec = city.broker(name)
    beside = () if config.listeners == Config().listeners else config.listeners
    return dataclasses.replace(
        config,
        name=name,
        data_dir=data / name,
        listeners=(Listener(host=spec.host, port=spec.port), *beside),
        # Status needs a door; on loopback, and with a port that broker.json tells, it disturbs nobody.
        metrics=dataclasses.replace(config.metrics, port=config.metrics.port or 0),
    )


def peer_addresses(city: City, name: str, given: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """Where peers are dialled when not where the city's file says."""
    found: dict[str, tuple[str, int]] = {}
    for text in given:
        peer, equals, address = text.partition("=")
        if not equals:
            raise ConfigError(f"--peer {text}", "must look like harbour=10.0.3.7:1883")
        city.broker(peer)
        place = parse_listener(address)
        found[peer] = (place.host, place.port)
    for peer in city.names:
        if peer not in found and peer != name and city.link_address(peer)[1] == 0:
            raise ConfigError(
                f"broker {peer}", f"has port 0 in the city's file: set a port there, or add --peer {peer}=HOST:PORT"
            )
    return found


async def run(config: Config, damage: Damage, role: Role | None = None, until_eof: bool = False) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), _read_until_eof, loop, stop)
    garbage = Garbage()
    garbage.collect(0, 0)  # before anybody waits: the first look, at all that was imported, takes some 15 ms
    async with AsyncExitStack() as stack:
        broker = await start(stack, config, damage, role)
        if broker.host is not None:
            broker.on_city = lambda description: _city_changed(config, description, stop)
            broker.host.leaving.on_gone = stop.set
        loop.add_signal_handler(signal.SIGHUP, broker.reload)
        broker.on_tick = lambda: garbage.collect(broker.hub.sessions.connected(), broker.hub.counters.disconnects)
        if role is not None:
            http = f"{config.metrics.host}:{broker.metrics_port}"
            listen = f"{config.listeners[0].host}:{broker.port}"
            place = RunningBroker(config.name, os.getpid(), listen, http, time.time(), role.city_name)
            keep_place(config.data_dir, place)
        logs.info("ready", name=config.name, durability=config.durability, pid=os.getpid())
        await stop.wait()
        logs.info("stopping")
    if role is not None:
        forget_place(config.data_dir, os.getpid())
    logs.info("stopped")


def _city_changed(config: Config, description: Description, stop: asyncio.Event) -> None:
    """Other commands, and the next start, find the city as it is now."""
    try:
        keep_city(config.data_dir.parent, description.city)
    except OSError as error:
        logs.error("the city's file cannot be written", problem=error)
    if config.name not in description.city.by_name and description.at != config.name:
        stop.set()


async def start(stack: AsyncExitStack, config: Config, damage: Damage, role: Role | None) -> Broker:
    """The broker; if its journal cannot be used, with an empty one where that was asked for."""

    def made() -> Broker:
        city, peers = (role.city, role.peer_addresses) if role is not None else (None, None)
        key = new_key(config.data_dir) if role is not None else ""
        return Broker(config, accept_damage=damage.accepted, city=city, peer_addresses=peers, control_key=key)

    for found in exposed(
        config, secret_places(role.city, Path(role.city_name), config.name) if role is not None else ()
    ):
        logs.warning(f"other users of this machine can read {found.what}", path=found.path, to_do=found.remedy)
    try:
        return await stack.enter_async_context(made())
    except JournalUnusable as error:
        if not damage.set_aside:
            raise JournalUnusable(f"{error}\n{WHAT_TO_DO}") from error
        aside = set_aside_journal(config)
        logs.error("the journal was set aside, and the broker starts empty", journal=aside, lost=LOST, problem=error)
    return await stack.enter_async_context(made())


def _read_until_eof(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()
