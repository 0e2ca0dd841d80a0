"""`metromq serve`: one broker until it is told to stop."""

import asyncio
import dataclasses
import gc
import os
import signal
from pathlib import Path

import click
import uvloop

from metromq.broker import Broker, logs
from metromq.config import Config, load_config, parse_listener, validate

EPILOG = """\b
Examples:
  metromq serve                                   127.0.0.1:1883, data in ./metromq-data
  metromq serve --listen 127.0.0.1:1884 --data /var/lib/metromq --durability fsync
  metromq serve --config metromq.toml             see docs/metromq.example.toml
  METROMQ_DURABILITY=memory metromq serve         every setting has an environment variable
"""


@click.command("serve", epilog=EPILOG)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file.")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Instead of the file's listeners; may be repeated.")
@click.option("--data", type=click.Path(path_type=Path), help="Directory of the journal.")
@click.option("--durability", type=click.Choice(["memory", "os", "fsync"]), help="When a message counts as stored.")
@click.option("--metrics", metavar="HOST:PORT", help="Opens /metrics and /healthz there.")
@click.option("--accept-damage", is_flag=True, help="Start although part of the journal is damaged and lost.")
def command(
    config_file: Path | None,
    listen: tuple[str, ...],
    data: Path | None,
    durability: str | None,
    metrics: str | None,
    accept_damage: bool,
) -> None:
    """Run one broker. SIGHUP reloads passwords, access list and certificates; SIGTERM drains and stops."""
    config = with_options(load_config(config_file, os.environ), listen, data, durability, metrics)
    logs.set_up(config.log)
    uvloop.run(run(config, accept_damage))


def with_options(
    config: Config, listen: tuple[str, ...], data: Path | None, durability: str | None, metrics: str | None
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
    config = dataclasses.replace(config, **changes)  # type: ignore[arg-type]
    validate(config)
    return config


async def run(config: Config, accept_damage: bool = False) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Broker(config, accept_damage=accept_damage) as broker:
        loop.add_signal_handler(signal.SIGHUP, broker.reload)
        gc.collect()
        gc.freeze()  # what start-up made stays; collections then look only at what came later
        logs.info("ready", name=config.name, durability=config.durability, pid=os.getpid())
        await stop.wait()
        logs.info("stopping")
    logs.info("stopped")
