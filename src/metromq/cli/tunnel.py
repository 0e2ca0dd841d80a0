"""`metromq tunnel`: the end of proxies' tunnels beside an edge broker."""

import asyncio
import contextlib

import click
import uvloop

from metromq.cli.addresses import address
from metromq.gateway import TunnelEnd

EPILOG = """\b
Example:
  metromq tunnel --listen 0.0.0.0:7000 --broker 127.0.0.1:1883
"""


@click.command("tunnel", epilog=EPILOG)
@click.option("--listen", default="127.0.0.1:7000", show_default=True, help="Where proxies open their tunnels.")
@click.option("--broker", default="127.0.0.1:1883", show_default=True, help="The edge broker.")
def command(listen: str, broker: str) -> None:
    """Bring the clients of proxies to an edge broker; run it on the broker's machine."""
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(TunnelEnd(address(listen, "0.0.0.0:7000"), address(broker)), listen))


async def _run(end: TunnelEnd, listen: str) -> None:
    await end.open()
    click.echo(f"listening on {address(listen)[0]}:{end.port}")
    await asyncio.Event().wait()
