"""The asyncio client: a thin shell that lets the core talk to a network.

async with Client("localhost") as client:
    await client.subscribe("city/+/air", qos=1)
    await client.publish("city/7/air", "21.5", qos=1)
    async for message in client.messages:
        print(message.topic, message.payload)
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Literal, Self

from metromq.client.core.client_core import ClientCore
from metromq.client.core.effects import Closed, Deliver, Effect, Failed, Opened, Send, Settled
from metromq.client.core.messages import Message, Payload, Will, publish_packet
from metromq.client.core.options import Authentication, ClientOptions
from metromq.client.queue import Messages
from metromq.client.transports import ByteTransport, ServerAddress, StreamTransport, open_stream
from metromq.errors import ConnectionLost, MqttError, UsageError
from metromq.protocol import reasons
from metromq.protocol.wire import MQTT5, Connack, Properties, Subscription

# QoS 0 messages beyond this many times `max_queued_messages` are dropped rather than stored.
DROP_FACTOR = 10
# What a publisher may collect before it goes to the network.
FLUSH_BYTES = 1 << 16


class Client:
    """One session with one server; entering it again, after the connection was lost, resumes the session.

    It has many methods and attributes because it is what users see: one for each thing to do, one for each option.
    """

    def __init__(
        self,
        hostname: str,
        port: int = 1883,
        *,
        identifier: str | None = None,
        username: str | None = None,
        password: str | bytes | None = None,
        version: int = MQTT5,
        clean_start: bool = True,
        session_expiry_s: int | None = None,
        keepalive_s: int = 60,
        will: Will | None = None,
        tls: ssl.SSLContext | None = None,
        transport: Literal["tcp", "websocket"] = "tcp",
        websocket_path: str = "/mqtt",
        bind_address: str | None = None,
        receive_maximum: int | None = None,
        max_inflight: int = 1000,
        max_queued_messages: int = 1000,
        topic_alias_maximum: int = 0,
        max_packet_size_bytes: int = 268_435_460,
        properties: Properties | None = None,
        authentication: Authentication | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """`max_queued_messages` wait for the application before reading from the network pauses; `timeout_s` is for
        the answers to CONNECT, SUBSCRIBE and UNSUBSCRIBE."""
        options = ClientOptions(
            identifier or "",
            version,
            clean_start,
            session_expiry_s,
            keepalive_s,
            username,
            password.encode() if isinstance(password, str) else password,
            will,
            receive_maximum or max_queued_messages,
            max_inflight,
            topic_alias_maximum,
            max_packet_size_bytes,
            properties or Properties(),
            authentication,
        )
        self.hostname = hostname
        self.port = port
        self.dropped = 0
        self.messages = Messages(self._taken)
        self.link: _Link | None = None
        self._tls = tls
        self._transport_kind = transport
        self._websocket_path = websocket_path
        self._bind_address = bind_address
        self._timeout_s = timeout_s
        self._most_queued = max_queued_messages
        self._core = ClientCore(options)
        self._network: ByteTransport | None = None
        self._waiters: dict[int, asyncio.Future[Settled]] = {}
        self._opened: asyncio.Future[Connack] | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    # What the server said

    @property
    def identifier(self) -> str:
        """The client identifier, the server's choice where we gave none."""
        return self._core.identifier

    @property
    def connack(self) -> Connack:
        """The server's answer to CONNECT, with all its properties."""
        if self._core.connack is None:
            raise UsageError("the client has not been connected")
        return self._core.connack

    @property
    def session_present(self) -> bool:
        return self._core.session_present

    @property
    def is_connected(self) -> bool:
        return self._core.is_open

    def peer_certificate(self) -> dict[str, object]:
        """What the server's verified certificate says; empty without TLS, and over WebSocket."""
        return self._network.peer_certificate() if isinstance(self._network, StreamTransport) else {}

    # Connecting

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def connect(self) -> Connack:
        """Opens the network and waits for CONNACK; `async with` does it for you."""
        if self._network is not None:
            raise UsageError("this client is already connected")
        loop = asyncio.get_running_loop()
        await self._finish_closing()
        self.messages.begin()
        self._reading = True
        self._writable.set()
        self._opened = loop.create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                self._network = await self._open_network()
                self._do(self._core.connect(loop.time()))
                return await self._opened
        except MqttError:
            self._abandon()
            await self._finish_closing()
            raise
        except TimeoutError:
            self._abandon()
            raise MqttError(f"no CONNACK from {self.hostname}:{self.port} within {self._timeout_s:g} s") from None
        except BaseException:
            self._abandon()
            raise

    async def _open_network(self) -> ByteTransport:
        self.link = _Link(self)
        try:
            place = ServerAddress(self.hostname, self.port, self._tls, self._bind_address)
            if self._transport_kind == "tcp":
                return await open_stream(self.link, place)
            from metromq.client.websocket_stream import open_websocket

            return await open_websocket(self.link, place, self._websocket_path)
        except TimeoutError:
            raise
        except Exception as error:  # whatever a resolver, TLS or WebSocket library raises, the user sees one kind
            raise MqttError(f"cannot connect to {self.hostname}:{self.port}: {error}") from error

    async def disconnect(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        """Says goodbye and closes; reason 0x04 has the server publish the will. Does nothing when not connected."""
        self._do(self._core.disconnect(self._now(), reason_code, properties))
        self._detach()
        await self._finish_closing()

    def abort(self) -> None:
        """Drops the connection without a word, as a lost network would; the server publishes the will."""
        self._abandon()

    def _abandon(self) -> None:
        """Gives a connection up that never came to be."""
        network, self._network = self._network, None
        self._out, self._out_bytes = [], 0
        self._do(self._core.lost(None))
        self.link = None
        self.messages.end(None)
        if network is not None:
            network.abort()

    def _detach(self) -> None:
        """Writes what is left and lets the network close in its own time."""
        self.link = None
        self._flush()
        network, self._network = self._network, None
        if network is not None:
            self._closing = asyncio.ensure_future(network.close())

    async def _finish_closing(self) -> None:
        if self._closing is not None:
            await self._closing
            self._closing = None

    # What the application wants

    async def publish(
        self,
        topic: str,
        payload: Payload = None,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Sends a message and waits for its acknowledgement (QoS 1 and 2) or for room in the network's buffer (QoS 0).

        Returns the server's reason code (0x10: nobody has subscribed). After ConnectionLost a QoS 1 or 2 message stays
        in the session: it is sent again when this client connects again and the server still has the session.
        """
        packet = publish_packet(topic, payload, qos, retain, properties)
        await self._writable.wait()
        token, effects = self._core.publish(packet, self._now())
        if not token:
            self._do(effects)
            if self._out_bytes >= FLUSH_BYTES:
                # A loop that only publishes would otherwise never let the network take anything.
                self._flush()
                await asyncio.sleep(0)
            return 0
        [code] = (await self._settled(token, effects)).reason_codes
        if code >= 0x80:
            raise MqttError(f"the server refused the message to {topic}: {reasons.name_of(code)}", code)
        return code

    async def subscribe(
        self,
        topic: str | Subscription | Sequence[str | Subscription | tuple[str, int]],
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        properties: Properties | None = None,
    ) -> tuple[int, ...]:
        """Subscribes to one filter or several; returns the QoS granted to each, raises MqttError if one is refused."""
        wanted = [topic] if isinstance(topic, str | Subscription) else list(topic)
        subscriptions = [
            one
            if isinstance(one, Subscription)
            else Subscription(
                one if isinstance(one, str) else one[0],
                qos if isinstance(one, str) else one[1],
                no_local,
                retain_as_published,
                retain_handling,
            )
            for one in wanted
        ]
        token, effects = self._core.subscribe(subscriptions, identifier, properties or Properties(), self._now())
        names = [subscription.filter for subscription in subscriptions]
        return await self._granted("SUBSCRIBE", names, token, effects)

    async def unsubscribe(self, topic: str | Iterable[str], properties: Properties | None = None) -> tuple[int, ...]:
        filters = [topic] if isinstance(topic, str) else list(topic)
        token, effects = self._core.unsubscribe(filters, properties or Properties(), self._now())
        return await self._granted("UNSUBSCRIBE", filters, token, effects)

    async def reauthenticate(self) -> None:
        """Proves again who we are (MQTT 5, section 4.12.1)."""
        token, effects = self._core.reauthenticate(self._now())
        async with asyncio.timeout(self._timeout_s):
            await self._settled(token, effects)

    async def _granted(self, what: str, filters: list[str], token: int, effects: list[Effect]) -> tuple[int, ...]:
        try:
            async with asyncio.timeout(self._timeout_s):
                settled = await self._settled(token, effects)
        except TimeoutError:
            raise MqttError(f"no answer to {what} within {self._timeout_s:g} s") from None
        said = settled.properties.reason_string if settled.properties else None
        for name, code in zip(filters, settled.reason_codes, strict=True):
            if code >= 0x80:
                why = f": {said}" if said and said != reasons.NAMES.get(code) else ""
                raise MqttError(f"the server refused to {what} {name}: {reasons.name_of(code)}{why}", code)
        return settled.reason_codes

    async def _settled(self, token: int, effects: list[Effect]) -> Settled:
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiters[token] = future
        self._do(effects)
        self._pace()
        try:
            return await future
        finally:
            self._waiters.pop(token, None)

    # The core's effects

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._write(effect.data)
            elif isinstance(effect, Deliver):
                self._deliver(effect.message)
            elif isinstance(effect, Settled):
                future = self._waiters.get(effect.token)
                if future is not None and not future.done():
                    future.set_result(effect)
            elif isinstance(effect, Failed):
                future = self._waiters.get(effect.token)
                if future is not None and not future.done():
                    future.set_exception(effect.error)
            elif isinstance(effect, Opened):
                if self._opened is not None and not self._opened.done():
                    self._opened.set_result(effect.connack)
                self._set_timer()
            elif isinstance(effect, Closed):
                self._on_closed(effect)

    def _write(self, data: bytes) -> None:
        """Collects what one turn of the event loop sends, so that it goes out in one system call."""
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        data, self._out, self._out_bytes = b"".join(self._out), [], 0
        if self._network is not None and data:
            self._network.write(data)

    def _deliver(self, message: Message) -> None:
        if message.qos == 0 and len(self.messages) >= self._most_queued * DROP_FACTOR:
            self.dropped += 1
            return
        self.messages.put(message)

    def _on_closed(self, effect: Closed) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(effect.error or ConnectionLost("the connection was closed"))
            self._opened.exception()  # marks it as seen: after a timeout nobody waits for it
        self._writable.set()
        self.messages.end(effect.error)
        self._detach()

    def _taken(self, message: Message) -> None:
        """The application has the message."""
        if message.qos:
            self._do(self._core.taken(message, self._now()))
        self._pace()

    def _pace(self) -> None:
        """Reads while the application keeps up, and whenever one of our operations needs an answer."""
        reading = len(self.messages) < self._most_queued or self._core.awaits_answers
        if reading != self._reading and self._network is not None:
            self._reading = reading
            self._network.read(reading)

    # The network's side

    def received(self, data: bytes) -> None:
        self._do(self._core.receive(data, self._now()))
        self._pace()

    def closed(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        self._do(self._core.lost(ConnectionLost(f"the connection to {self.hostname}:{self.port} was lost{reason}")))

    def may_write(self, allowed: bool) -> None:
        if allowed:
            self._writable.set()
        else:
            self._writable.clear()

    # Time

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _set_timer(self) -> None:
        deadline = self._core.deadline()
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._do(self._core.tick(self._now(), self._reading))
        if self._core.is_open:
            self._set_timer()


class _Link:
    """One connection's ears: what an old network still says after a new one was opened is not heard."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def received(self, data: bytes) -> None:
        if self._client.link is self:
            self._client.received(data)

    def closed(self, error: Exception | None) -> None:
        if self._client.link is self:
            self._client.closed(error)

    def may_write(self, allowed: bool) -> None:
        if self._client.link is self:
            self._client.may_write(allowed)
