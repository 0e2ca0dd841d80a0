"""The proxy's asyncio shell: a connection per client to the central broker, and one tunnel to each edge broker."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from metromq.errors import ConfigError, MetroError
from metromq.gateway.core import ProxyCore
from metromq.gateway.effects import CloseClient, CloseWay, Effect, OpenWay, ToClient, ToWay, merged
from metromq.gateway.packet_ids import PacketIds
from metromq.gateway.table import CENTRAL, DelegationTable
from metromq.gateway.tunnel import FrameReader, pack

READ_BYTES = 1 << 16
DIAL_S = 3.0  # an edge broker that does not answer by then is gone
AGAIN_S = 1.0  # before it is tried again
PATIENCE_S = 1.0  # so long a tunnel waits for a client that does not read, and its other clients with it
WAITING_BYTES = 1 << 16  # for a client; beyond that it is waited for
MOST_SESSIONS = 100_000  # whose packet identifiers are remembered, the last ones
Address = tuple[str, int]
Filters = Mapping[str, str]  # filter -> edge broker


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    listen: Address
    central: Address
    edges: Mapping[str, Address] = field(default_factory=dict)  # where their tunnels end
    is_foreign: bool = False


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


class _Tunnel:
    """To one edge broker: opened when it is first needed, and again when it was lost."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._writer: asyncio.StreamWriter | None = None
        self._clients: dict[int, _Client] = {}
        self._opening = asyncio.Lock()
        self._not_before = 0.0
        self.name = ""

    async def open(self, port: int, client: "_Client") -> None:
        """Raises OSError if the edge broker cannot be reached."""
        loop = asyncio.get_running_loop()
        async with self._opening:
            if self._writer is None:
                if loop.time() < self._not_before:
                    raise OSError("it could not be reached a moment ago")
                whom = f"{self.name} at {_text(self.address)}"
                try:
                    reader, self._writer = await asyncio.wait_for(asyncio.open_connection(*self.address), DIAL_S)
                except (OSError, TimeoutError) as error:
                    self._not_before = loop.time() + AGAIN_S
                    client.proxy.missed(whom, str(error) or "it does not answer")
                    raise OSError(str(error)) from error
                client.proxy.reached(whom)
                client.proxy.spawn(self._read(reader))
        self._clients[port] = client

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        with contextlib.suppress(OSError, MetroError):
            while data := await reader.read(READ_BYTES):
                for port, packet in frames.feed(data):
                    client = self._clients.get(port)
                    if client is None:
                        continue
                    if packet:
                        await client.from_tunnel(self.name, packet)
                    else:
                        await client.lost_way(self.name)
        await self.close()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        clients, self._clients = list(self._clients.values()), {}
        if writer is not None:
            writer.close()
        for client in clients:
            await client.lost_way(self.name)

    async def send(self, port: int, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(pack(port, data))
            with contextlib.suppress(OSError):
                await self._writer.drain()

    async def part(self, port: int) -> None:
        if self._clients.pop(port, None) is not None:
            await self.send(port, b"")


class _Client:
    def __init__(self, proxy: "Proxy", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self._reader = reader
        self._writer = writer
        self._core = ProxyCore(proxy.table, proxy.packet_ids)
        self._central: asyncio.StreamWriter | None = None
        self._stand_ins: dict[str, asyncio.StreamWriter] = {}  # to the central broker in place of edge brokers
        self._port = 0  # of our connection to the central broker: it names the client in tunnels
        self._is_closed = False
        self._is_stuck = False

    @property
    def core(self) -> ProxyCore:
        return self._core

    async def serve(self) -> None:
        try:
            while data := await self._reader.read(READ_BYTES):
                await self._run(self._core.from_client(data))
                await self._writer.drain()
        except (OSError, MetroError):
            pass  # as a broker does with one that breaks the rules: the connection ends
        finally:
            with contextlib.suppress(OSError):
                await self._run(self._core.client_lost())
            self._close()

    async def from_tunnel(self, name: str, data: bytes) -> None:
        """Does not wait long for the client, and fails for it alone: others have the same tunnel."""
        try:
            await self._wait_a_moment()
            await self._run(self._core.from_way(name, data, self._is_stuck))
        except Exception:  # whatever it is, the tunnel goes on
            self._close()

    async def _wait_a_moment(self) -> None:
        """One that reads slowly slows its broker down, one that does not read at all gets no more QoS 0 messages."""
        if self._writer.transport.get_write_buffer_size() <= WAITING_BYTES:
            self._is_stuck = False
        elif not self._is_stuck:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._writer.drain()
            except TimeoutError:
                self._is_stuck = True

    async def lost_way(self, name: str) -> None:
        try:
            await self._run(self._core.way_lost(name))
        except Exception:  # as above
            self._close()

    async def _run(self, effects: list[Effect]) -> None:
        for effect in merged(effects):
            await self._runners()[type(effect)](effect)

    def _runners(self) -> dict[type, Callable[..., Awaitable[None]]]:
        return {
            ToClient: self._to_client,
            ToWay: self._to_way,
            OpenWay: self._open_way,
            CloseWay: self._close_way,
            CloseClient: self._close_client,
        }

    async def _to_client(self, effect: ToClient) -> None:
        if not self._is_closed:
            self._writer.write(effect.data)

    async def _to_way(self, effect: ToWay) -> None:
        writer = self._central if effect.way == CENTRAL else self._stand_ins.get(effect.way)
        if writer is not None:
            writer.write(effect.data)
            await writer.drain()
        elif effect.way != CENTRAL:
            await self.proxy.tunnels[effect.way].send(self._port, effect.data)

    async def _open_way(self, effect: OpenWay) -> None:
        if effect.way == CENTRAL:
            reader, self._central = await self._dial_central()
            self._port = self._central.get_extra_info("sockname")[1]
            self.proxy.spawn(self._read_central(CENTRAL, reader, self._central))
            return
        try:
            if effect.is_stand_in:
                reader, writer = await self._dial_central()
                self._stand_ins[effect.way] = writer
                self.proxy.spawn(self._read_central(effect.way, reader, writer))
            elif effect.way in self.proxy.tunnels:
                await self.proxy.tunnels[effect.way].open(self._port, self)
            else:
                raise OSError(f"no tunnel leads to {effect.way}")
        except OSError:
            self.proxy.spawn(self.lost_way(effect.way))  # after what was meant for it has been queued

    async def _dial_central(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        whom = f"the central broker at {_text(self.proxy.options.central)}"
        try:
            found = await asyncio.open_connection(*self.proxy.options.central)
        except OSError as error:
            self.proxy.missed(whom, str(error))
            raise
        self.proxy.reached(whom)
        return found

    async def _read_central(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, MetroError):
            while data := await reader.read(READ_BYTES):
                await self._run(self._core.from_way(name, data))
                await self._writer.drain()
        if name == CENTRAL or self._stand_ins.get(name) is writer:
            await self.lost_way(name)

    async def _close_way(self, effect: CloseWay) -> None:
        writer = self._central if effect.way == CENTRAL else self._stand_ins.pop(effect.way, None)
        tunnel = self.proxy.tunnels.get(effect.way)
        if writer is not None:
            writer.close()
        elif tunnel is not None:
            await tunnel.part(self._port)

    async def _close_client(self, effect: CloseClient) -> None:
        self._close()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._writer.close()


class Proxy:
    """`open` it, `told` it the table whenever that changes, `close` it."""

    def __init__(
        self, options: ProxyOptions, filters: Filters | None = None, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.options = options
        self._tell = tell
        self._missed: set[str] = set()
        self.table = DelegationTable(filters or {}, options.is_foreign, options.edges)
        self.tunnels = {name: _Tunnel(address) for name, address in options.edges.items()}
        for name, tunnel in self.tunnels.items():
            tunnel.name = name
        self.port = 0
        self._ids: dict[str, PacketIds] = {}
        self._clients: set[_Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def told(self, filters: Filters, edges: Mapping[str, Address] | None = None) -> None:
        """Other filters are delegated than before: what clients publish and subscribe from now on goes there.

        `edges` says where tunnels end that were not known, or have moved; the others stay.
        """
        for name, address in (edges or {}).items():
            known = self.tunnels.get(name)
            if known is None or known.address != address:
                self.tunnels[name] = _Tunnel(address)
                self.tunnels[name].name = name
                if known is not None:
                    self.spawn(known.close())
        self.table = DelegationTable(filters, self.options.is_foreign, self.tunnels)
        for client in self._clients:
            client.core.table = self.table

    def missed(self, whom: str, problem: str) -> None:
        """People are told once, not for every client."""
        if whom not in self._missed:
            self._missed.add(whom)
            self._tell(f"{whom} cannot be reached: {problem}")

    def reached(self, whom: str) -> None:
        if whom in self._missed:
            self._missed.discard(whom)
            self._tell(f"{whom} is reached again")

    def packet_ids(self, client_id: str) -> PacketIds:
        """Of a session; they are kept for when its client comes again."""
        found = self._ids.pop(client_id) if client_id in self._ids else PacketIds()
        self._ids[client_id] = found  # the last one again
        if len(self._ids) > MOST_SESSIONS:
            del self._ids[next(iter(self._ids))]
        return found

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def open(self) -> None:
        host, port = self.options.listen
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise ConfigError(f"listen {host}:{port}", f"cannot listen: {error.strerror}") from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(self, reader, writer)
        self._clients.add(client)
        try:
            await client.serve()
        finally:
            self._clients.discard(client)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for tunnel in self.tunnels.values():
            await tunnel.close()
        for task in list(self._tasks):
            task.cancel()
