"""One broker in one process: opens the journal and the doors, keeps time, and stops without losing anything."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from metromq.broker import logs
from metromq.broker.auth.authenticator import Authenticator
from metromq.broker.core_share import times_ousted
from metromq.broker.doorstep import TlsDoor, most_newcomers
from metromq.broker.file_access import FileAccess
from metromq.broker.http_listener import HttpAnswer, HttpListener
from metromq.broker.hub_storage import HubStorage
from metromq.broker.peers.certificates import dialling_context, link_door
from metromq.broker.peers.city_access import CityAccess
from metromq.broker.peers.city_desk import CityDesk
from metromq.broker.peers.member import CityMember, link_secret, nonce, old_link_secret
from metromq.broker.peers.newcomers import NewcomerDesk
from metromq.broker.recording import Recording
from metromq.broker.replaying import Desk
from metromq.broker.reporting import Reporter
from metromq.broker.stream import SecuredWriter, StreamWriter
from metromq.broker.sys_topics import SysTopics
from metromq.broker.tls import load_certificates, tls_context
from metromq.broker.vigil import Vigil
from metromq.broker.write_cycle import WriteCycle, Writer
from metromq.config import Config, Listener, validate
from metromq.errors import ConfigError
from metromq.federation import City, Description
from metromq.federation.host import Host
from metromq.federation.links import LinkAccess
from metromq.journal import new_id
from metromq.protocol import reasons
from metromq.protocol.session import Access, Hub, HubSettings

if TYPE_CHECKING:
    from websockets.asyncio.server import Server as WebSocketServer

TICK_S = 0.25
LEAST_S = 0.2  # between two looks: what a broker does regularly falls on its host's ticks, which may come more often
SAMPLES_S = 0.9  # about a second, of ticks half a second apart
FLOOD_SAMPLES = 10  # a flood of silent connections is told of every ten seconds
GOODBYE_S = 2.0  # how long a client may take to read its DISCONNECT when the broker stops


class Broker:
    """`async with Broker(config) as broker:` runs a broker until the block ends; `port` is where it listens.

    Its attributes are many because each is one part of the broker, made here and nowhere else.
    """

    def __init__(
        self,
        config: Config | None = None,
        authenticator: Authenticator | None = None,
        accept_damage: bool = False,
        city: City | None = None,
        peer_addresses: Mapping[str, tuple[str, int]] | None = None,
        control_key: str = "",
    ) -> None:
        """With `city` the broker is the one of that name in it; `peer_addresses` overrides where peers are dialled.

        Whoever knows `control_key` may change the city at the HTTP listener; empty: nobody may.
        """
        self.config = config or Config()
        self._city = city
        self._peer_addresses = dict(peer_addresses or {})
        self._control_key = control_key
        self.on_city: Callable[[Description], None] = lambda description: None  # told when the city has changed
        self.on_tick: Callable[[], None] = lambda: None  # called a few times a second
        self.member: CityMember | None = None
        validate(self.config)
        self._authenticator = authenticator
        self._accept_damage = accept_damage
        self._servers: list[asyncio.Server | WebSocketServer] = []
        self._closers: list[Callable[[], None]] = []
        self._contexts: list[tuple[ssl.SSLContext, Listener]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper: HubStorage | None = None
        self._http: HttpListener | None = None
        self._recording: Recording | None = None
        self._desk: Desk | None = None
        self._turned_away = 0
        self._looked_at = self._sampled_at = 0.0
        self._samples = 0
        self.ports: list[int] = []

    @property
    def port(self) -> int:
        """Of the first listener."""
        return self.ports[0]

    @property
    def link_port(self) -> int:
        """Where peers reach this broker."""
        return self.ports[-1] if self._city is not None and self._city.links.certified else self.port

    @property
    def host(self) -> Host | None:
        """This broker's part in the city, where there is one."""
        return self.member.host if self.member is not None else None

    @property
    def metrics_port(self) -> int:
        return self._http.port if self._http is not None else 0

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        config = self.config
        if config.durability != "memory":
            self._keeper = HubStorage(config, self._accept_damage)
        keeper = self._keeper
        settings = replace(settings_of(config), max_unconnected=most_newcomers(config.limits.max_unconnected))
        self.hub = Hub(settings, keeper.log if keeper else None, config.name)
        vigil = Vigil(config.busy_poll_s, config.adaptive_poll, times_ousted)
        self.cycle = WriteCycle(self.hub, loop, config.limits.max_total_outgoing_bytes, vigil)
        self.cycle.now()
        self.access = self._join_city(self._city) if self._city else FileAccess(config.auth, self._authenticator)
        self.hub.routes.read_check = self.access if config.auth.acl_file else None
        if keeper is not None:
            keeper.begin(self.cycle, loop)
        if keeper is not None and config.replay.enabled:
            self._desk = Desk(self.cycle, self.access, self.host, config.replay, self._replay_setup(keeper.journal_id))
            self.hub.replay = self._desk
        self._sys = SysTopics(self.hub)
        for listener in config.listeners:
            await self._open_door(loop, listener, self.access)
        where = f"{config.listeners[0].host}:{self.port}"
        gauges = keeper.gauges if keeper else dict
        self._reporter = Reporter(config, self.cycle, self.host, where, gauges, keeper)
        if config.metrics.port is not None:
            pages, orders = {**self._reporter.pages(), "/windows": self._windows_page}, {}
            if self.host is not None:
                desk = CityDesk(self.host, self._newcomers, self.cycle)
                pages, orders = pages | desk.pages(), desk.orders()
            self._http = HttpListener(config.metrics.host, config.metrics.port, pages, orders, self._control_key)
            await self._http.open()
            self._reporter.http = f"{config.metrics.host}:{self._http.port}"
        if self.member is not None and self._city is not None:
            await self._open_links(self.member, self._city)
        if config.recorder.lake is not None or config.recorder.keep_counts:
            self._recording = Recording(
                self.hub,
                config.data_dir,
                config.recorder.lake,
                config.recorder.site or self._site(),
                config.recorder.window_s,
                self.host,
            )
            self._tasks.append(asyncio.create_task(self._recording.run()))
        if self.member is None:
            self._tasks.append(asyncio.create_task(self._tick()))
        if config.sys_interval_s:
            self._tasks.append(asyncio.create_task(self._publish_sys(config.sys_interval_s)))

    def _windows_page(self, query: Mapping[str, str]) -> HttpAnswer:
        if self._recording is None:
            return HttpAnswer(b"nothing is counted here: set recorder.keep_counts\n", status=404)
        return self._recording.windows_page(query)

    def _site(self) -> str:
        """Where the city's file says that this broker stands; a broker at no site is one of its own."""
        return (self._city.broker(self.config.name).site if self._city is not None else "") or self.config.name

    def _join_city(self, city: City) -> FileAccess:
        config = self.config
        journal_id = self._keeper.journal_id if self._keeper is not None else new_id()
        self.member = CityMember(city, config.name, self.cycle, journal_id, self._look)
        host = self.member.host
        certified = city.links.certified
        self._link_access = LinkAccess(
            config.name, lambda: host.node.peers, link_secret(city), certified, host.peer_came, nonce
        )
        self._newcomers = NewcomerDesk(host)
        self._read_secrets(city)
        links = None if certified else self._link_access
        return CityAccess(config.auth, self._authenticator, links, self._newcomers)

    def _read_secrets(self, city: City) -> None:
        """The city's secret, and the one before while it is still good; links that are up stay up."""
        secret, old = link_secret(city), old_link_secret(city)
        self._link_access.secret, self._link_access.old_secret = secret, old
        self._newcomers.secret = (secret or b"").decode("utf-8", "surrogateescape")
        credentials = self.member.credentials if self.member is not None else None
        if credentials is not None:
            credentials.secret, credentials.old_secret = secret, old

    def _replay_setup(self, journal_id: str) -> dict[str, Any]:
        """What the process must know that reads this journal, and those of peers."""
        config, city = self.config, self._city
        acl = config.auth.acl_file
        setup: dict[str, Any] = {
            "name": config.name,
            "journal": str(config.data_dir / "journal"),
            "journal_id": journal_id,
            "acl": str(acl) if acl else "",
            "peers": {},
            "secret": "",
            "tls": None,
        }
        if city is not None:
            others = [peer for peer in city.names if peer != config.name]
            setup["peers"] = {peer: self._peer_addresses.get(peer) or city.link_address(peer) for peer in others}
            setup["secret"] = (link_secret(city) or b"").hex()
            door = link_door(city, config.name)
            if door is not None:
                setup["tls"] = {"ca": str(door.ca_file), "cert": str(door.cert_file), "key": str(door.key_file)}
        return setup

    def _follow_city(self, description: Description) -> None:
        """The city has another description: if it gives this broker another address, it listens there too."""
        before, self._city = self._city, description.city
        if before is not None:
            self._tasks.append(asyncio.create_task(self._listen_there(before, description.city)))
        self.on_city(description)

    async def _listen_there(self, before: City, after: City) -> None:
        """Opens doors at addresses that are new; those that were opened stay open, for who does not know yet."""
        name, loop = self.config.name, asyncio.get_running_loop()
        one, other = before.by_name.get(name), after.by_name.get(name)
        if one is None or other is None:
            return
        try:
            if one.listen != other.listen:
                await self._open_door(loop, Listener(host=other.host, port=other.port), self.access)
            door = link_door(after, name)
            if door is not None and one.link_listen != other.link_listen:
                await self._open_door(loop, door, self._link_access)
        except ConfigError as error:
            logs.error("the address that the city gives this broker cannot be used", problem=error)

    async def _open_links(self, member: CityMember, city: City) -> None:
        """Peers may come, and are dialled."""
        tls = None
        door = link_door(city, self.config.name)
        if door is not None:
            await self._open_door(asyncio.get_running_loop(), door, self._link_access)
            tls = dialling_context(door)
            self._contexts.append((tls, door))
        member.host.on_city = self._follow_city
        self._city = member.host.city  # the journal may know of a newer one than the file
        await self._listen_there(city, self._city)
        member.start(link_secret(city), self._peer_addresses, tls)

    # --- doors ----------------------------------------------------------------------------------------------------

    async def _open_door(self, loop: asyncio.AbstractEventLoop, listener: Listener, access: Access) -> None:
        tls = tls_context(listener) if listener.is_secure else None
        if tls is not None:
            self._contexts.append((tls, listener))
        door = TlsDoor(tls, self.config.limits.connect_timeout_s) if tls is not None else None
        anonymous = self.config.allows_anonymous(listener)
        server: asyncio.Server | WebSocketServer
        try:
            if listener.is_websocket:
                from metromq.broker.websocket import serve_websocket  # a slow import that few brokers need

                server = socket_server = await serve_websocket(self.cycle, access, listener, anonymous, door)
                # Clients are closed by us, behind their DISCONNECT.
                self._closers.append(partial(socket_server.close, close_connections=False))
            else:
                as_username = listener.use_identity_as_username
                make: Callable[[], StreamWriter] = partial(StreamWriter, self.cycle, access, anonymous, as_username)
                if door is not None:
                    make = partial(SecuredWriter, self.cycle, access, anonymous, as_username, door)
                server = await loop.create_server(
                    make,  # type: ignore[arg-type]
                    listener.host,
                    listener.port,
                    backlog=4096,
                )
                self._closers.append(server.close)
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise ConfigError(f"listener {where}", f"cannot listen: {error.strerror or error}") from error
        self._servers.append(server)
        port = next(iter(server.sockets)).getsockname()[1]
        self.ports.append(port)
        logs.info("listening", kind=listener.kind, host=listener.host, port=port, anonymous=anonymous)

    def reload(self) -> None:
        """Reads passwords, access list, certificates and secrets again (SIGHUP); what fails stays as it was."""
        try:
            for context, listener in self._contexts:
                load_certificates(context, listener)
            if self._city is not None:
                self._read_secrets(self._city)
            self.access.reload()  # last: nothing may fail between the new rights and their use
        except (ConfigError, OSError, ssl.SSLError) as error:
            logs.error("reload failed; the old passwords, ACL and certificates stay in use", problem=error)
            return
        self.cycle.now()
        self.hub.rights_changed()
        self.cycle.worked()
        logs.info("reloaded passwords, ACL and certificates")

    # --- time -----------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Of a broker on its own. One of a city looks when its host ticks: waking costs more than what it wakes for."""
        while True:
            await asyncio.sleep(TICK_S)
            self.cycle.now()
            self._look()
            self.cycle.listened()

    def _look(self) -> None:
        """Whether something is due; to be called at least twice a second."""
        now = self.hub.clock.now
        if now - self._looked_at < LEAST_S:
            return
        self._looked_at = now
        self.hub.tick()
        if self._recording is not None:
            self._recording.tick()
        self.on_tick()
        if self._desk is not None:
            self._desk.tick()
        if now - self._sampled_at >= SAMPLES_S:
            self._sampled_at = now
            self._sample()

    def _sample(self) -> None:
        self._reporter.sample()
        self._samples += 1
        if self._samples % FLOOD_SAMPLES == 0:
            self._tell_of_flood()
        if self._keeper is not None:
            self._keeper.tick(self._recording is not None)

    def _tell_of_flood(self) -> None:
        newcomers = self.hub.connections.newcomers
        turned_away, self._turned_away = newcomers.turned_away - self._turned_away, newcomers.turned_away
        if turned_away:
            logs.warning(
                "connections that said nothing gave way to newer ones",
                connections=turned_away,
                max_unconnected=self.hub.settings.max_unconnected,
            )

    async def _publish_sys(self, interval_s: float) -> None:
        while True:
            self.cycle.now()
            self._sys.publish()
            self.cycle.worked()
            await asyncio.sleep(interval_s)

    # --- the end --------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Drains: no new clients, a goodbye to those here, everything on disk, a snapshot for a quick start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.member is not None:
            await self.member.stop()
        for close in self._closers:
            close()
        if hasattr(self, "cycle"):
            await self._say_goodbye()
            self.hub.connections.newcomers.turn_all_away()
        if hasattr(self, "access"):
            await self.access.answers.close()
        for server in self._servers:
            await server.wait_closed()
        if self._desk is not None:
            await self._desk.close()
        if self._http is not None:
            await self._http.close()
        if self._keeper is not None:
            await self._keeper.close()
        if self._recording is not None:
            await self._recording.stop()

    async def _say_goodbye(self) -> None:
        """What clients were promised is stored and confirmed, then each gets a DISCONNECT and a moment to take it."""
        if self._keeper is not None:
            await self._keeper.drain()
        self.cycle.now()
        connections = list(self.hub.connections.open)
        for connection in connections:
            connection.terminate(reasons.SERVER_SHUTTING_DOWN, "the broker is stopping")
            connection.lost()
        self.cycle.worked()
        self.cycle.flush()
        owners = [connection.output.owner for connection in connections]
        writers = [owner for owner in owners if isinstance(owner, Writer)]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GOODBYE_S
        while any(writer.is_open() for writer in writers) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for writer in writers:
            if writer.is_open():
                writer.abort()


def settings_of(config: Config) -> HubSettings:
    limits = config.limits
    return HubSettings(
        max_packet_size_bytes=limits.max_packet_size_bytes,
        max_queued_messages=limits.max_queued_messages,
        max_queued_bytes=limits.max_queued_bytes,
        max_outgoing_bytes=limits.max_outgoing_bytes,
        max_inflight=limits.max_inflight,
        receive_maximum=limits.receive_maximum,
        max_topic_alias=limits.max_topic_alias,
        max_subscriptions_per_client=limits.max_subscriptions_per_client,
        max_filter_bytes_per_client=limits.max_filter_bytes_per_client,
        max_keepalive_s=limits.max_keepalive_s,
        max_session_expiry_s=limits.max_session_expiry_s,
        max_qos=limits.max_qos,
        retain_available=limits.retain_available,
        max_retained_messages=limits.max_retained_messages,
        max_retained_bytes=limits.max_retained_bytes,
        max_topic_levels=limits.max_topic_levels,
        max_connections=limits.max_connections,
        max_unconnected=limits.max_unconnected,
        connect_timeout_s=limits.connect_timeout_s,
        max_connects_per_s=limits.max_connects_per_s,
        record_qos0=config.journal.record_qos0,
        foreign_client_id_replaces=config.auth.foreign_client_id == "new-session",
    )
