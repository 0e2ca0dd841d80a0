"""What happens between a network connection and its first byte of MQTT: whose it is counted for, and TLS."""

import asyncio
import contextlib
import ipaddress
import os
import resource
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol

from metromq.protocol.session import Newcomer

SHARE_OF_DESCRIPTORS = 4  # newcomers may take one in so many


class Guest(Protocol):
    """An asyncio protocol that begins when its TLS handshake is over; if that fails, `not_secured` is its end."""

    def connection_made(self, transport: asyncio.Transport, /) -> None: ...

    def not_secured(self) -> None: ...


class Knock(Newcomer):
    """A newcomer over TCP."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        super().__init__(neighbourhood(transport.get_extra_info("peername")))
        self.end: Callable[[], None] = transport.abort

    def secured_by(self, door: "TlsDoor", transport: asyncio.Transport, guest: Guest) -> None:
        """From now on its end is that of a socket in the middle of a handshake."""
        self.end = partial(_shut, door.secure(transport, guest))

    def turn_away(self) -> None:
        self.end()


def _shut(taken: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was quicker
        taken.shutdown(socket.SHUT_RDWR)


def neighbourhood(address: object) -> str:
    """The address without its port; of IPv6 the network, in which one user has as many addresses as they want."""
    if not isinstance(address, tuple):
        return str(address)
    host = str(address[0]).partition("%")[0]
    if ":" not in host:
        return host
    number = ipaddress.IPv6Address(host)
    return str(number.ipv4_mapped or ipaddress.IPv6Network((number, 64), strict=False))


def most_newcomers(wanted: int) -> int:
    """Newcomers must not take the last file descriptors, whatever was configured."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if most == resource.RLIM_INFINITY else max(1, min(wanted, most // SHARE_OF_DESCRIPTORS))


class TlsDoor:
    """Does the TLS handshakes of one listener: asyncio's own servers do not say who is in the middle of one."""

    def __init__(self, context: ssl.SSLContext, patience_s: float) -> None:
        self._context = context
        self._patience_s = patience_s
        self._handshakes: set[asyncio.Task[None]] = set()

    def secure(self, bare: asyncio.Transport, guest: Guest) -> socket.socket:
        """Takes the connection from a transport that has not read yet; `guest` gets one that encrypts. Its socket."""
        taken = socket.socket(fileno=os.dup(bare.get_extra_info("socket").fileno()))
        bare.set_protocol(asyncio.Protocol())
        bare.abort()
        task = asyncio.get_running_loop().create_task(self._handshake(taken, guest))
        self._handshakes.add(task)  # the loop alone would let go of it
        task.add_done_callback(self._handshakes.discard)
        return taken

    async def _handshake(self, taken: socket.socket, guest: Guest) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(  # type: ignore[type-var]
                lambda: guest,
                taken,
                ssl=self._context,
                ssl_handshake_timeout=self._patience_s,
            )
        except OSError:  # of ssl, of the network, or too late
            taken.close()
            guest.not_secured()
