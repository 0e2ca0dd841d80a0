"""A client under the virtual clock: the product's own client core, over a simulated stream."""

from dataclasses import dataclass
from typing import Final, Protocol, final

from metromq.client import Will
from metromq.client.core import (
    ClientCore,
    ClientOptions,
    Closed,
    Deliver,
    Effect,
    Failed,
    Opened,
    Send,
    Settled,
    Unclaimed,
)
from metromq.lab.sim.network import Network, StreamEnd
from metromq.protocol.wire import MQTT5, PUBCOMP, Properties, Publish, Subscription

KEPT_S: Final = 3600


@dataclass(frozen=True, slots=True)
class SimDelivery:
    topic: str
    payload: str
    qos: int
    retain: bool


class ClientObserver(Protocol):
    """Who wants to know what a client sees, as it sees it."""

    def opened(self, client: "SimClient", session_present: bool) -> None: ...

    def ended(self, client: "SimClient", problem: str) -> None: ...

    def delivered(self, client: "SimClient", delivery: SimDelivery) -> None: ...

    def settled(self, client: "SimClient", token: int, code: int) -> None: ...


@final
class SimClient:
    """Keeps what it got over all its connections, and which of its publications were acknowledged.

    Its attributes are many because it is told how it is to be, knows where it is, and keeps what it saw.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        version: int = MQTT5,
        observer: ClientObserver | None = None,
        user: str | None = None,
        keepalive_s: int = 60,
        patient: bool = False,
    ) -> None:
        """`patient`: it shows QoS 2 messages when they are released, as paho's do, and not when they come."""
        self._user = user
        self._unreleased: dict[int, SimDelivery] | None = {} if patient else None
        self._keepalive_s = keepalive_s  # it sends no PINGREQ: 0 for one that is silent for long
        self._observer = observer
        self.name = name
        self.place = ""  # the broker that it talks to, or talked to last
        self.received: list[SimDelivery] = []
        self.acknowledged: set[int] = set()  # tokens of publications
        self.forgotten: list[SimDelivery] = []  # came, was confirmed, and the session began anew before it was released
        self.refused: list[str] = []  # why connections ended that the client did not end
        self._network = network
        self._version = version
        self._core: ClientCore | None = None
        self._before: ClientCore | None = None  # the session in whose place a new one is to come
        self._end: StreamEnd | None = None
        self._dials = 0  # that were given up

    @property
    def is_open(self) -> bool:
        return self._core is not None and self._core.is_open

    def connect(self, broker: str, keeps: bool = False, will: Will | None = None) -> None:
        """Begins; `is_open` tells when the broker has accepted. An open connection is ended first, cleanly."""
        self.disconnect()
        self.place = broker
        if self._before is not None:  # no broker has accepted the new one: the client has what it had
            self._core, self._before = self._before, None
        core = self._core
        if core is None or core.options.clean_start or not keeps:  # otherwise the session goes on on our side too
            self._before, core = core, ClientCore(self._options(keeps, will))
        core.options = self._options(keeps, will)
        self._core = core
        dial = self._dials
        self._network.dial(self.name, broker, self._connected, self._refused, lambda: dial == self._dials)

    def _options(self, keeps: bool, will: Will | None) -> ClientOptions:
        expiry_s = KEPT_S if keeps and self._version == MQTT5 else None
        return ClientOptions(
            self.name,
            self._version,
            not keeps,
            expiry_s,
            keepalive_s=self._keepalive_s,
            username=self._user,
            will=will,
        )

    def disconnect(self) -> None:
        if self._core is not None:
            self._do(self._core.disconnect(self._network.clock.now))
        self._hang_up()

    def vanish(self) -> None:
        """The connection ends without DISCONNECT."""
        self._hang_up()

    def slip(self) -> None:
        """The client goes on elsewhere; its connection stays half-open, and what comes over it is lost."""
        self._end = None
        self._hang_up()

    def subscribe(self, topic_filter: str, qos: int) -> int:
        wanted = Subscription(topic_filter, qos)
        token, effects = self._open_core().subscribe([wanted], 0, Properties(), self._network.clock.now)
        self._do(effects)
        return token

    def unsubscribe(self, topic_filter: str) -> int:
        token, effects = self._open_core().unsubscribe([topic_filter], Properties(), self._network.clock.now)
        self._do(effects)
        return token

    def publish(self, topic: str, payload: str, qos: int, retain: bool = False) -> int:
        """The token that will be among `acknowledged`; 0 at QoS 0."""
        packet = Publish(topic, payload.encode(), qos, retain)
        token, effects = self._open_core().publish(packet, self._network.clock.now)
        self._do(effects)
        return token

    def _open_core(self) -> ClientCore:
        assert self._core is not None, f"{self.name} is not connected"
        return self._core

    def _connected(self, end: StreamEnd) -> None:
        self._end = end
        end.listener = _Ear(self, end)
        self._do(self._open_core().connect(self._network.clock.now))

    def heard(self, end: StreamEnd, data: bytes) -> None:
        if end is self._end and self._core is not None:
            self._do(self._core.receive(data, self._network.clock.now))

    def lost(self, end: StreamEnd, problem: str) -> None:
        if end is self._end:
            self._refused(problem)

    def _hang_up(self) -> None:
        end, self._end = self._end, None
        self._dials += 1
        if self._core is not None:
            self._core.lost(None)
        if end is not None:
            end.abort()

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._unreleased and effect.data[0] == PUBCOMP << 4:
                    self._released(self._unreleased.pop(int.from_bytes(effect.data[2:4], "big"), None))
                if self._end is not None:
                    self._end.write(effect.data)
            elif isinstance(effect, Deliver):
                message = effect.message
                payload = bytes(message.payload).decode()
                delivery = SimDelivery(message.topic, payload, message.qos, message.retain)
                if self._unreleased is not None and message.qos == 2:
                    self._unreleased[message.mid] = delivery
                else:
                    self._deliver(delivery)
                assert self._core is not None
                self._do(self._core.taken(message, self._network.clock.now))
            elif isinstance(effect, Settled):
                self.acknowledged.add(effect.token)
                if self._observer is not None:
                    self._observer.settled(self, effect.token, max(effect.reason_codes))
            elif isinstance(effect, Opened):
                self._before = None
                if self._unreleased is not None and not effect.connack.session_present:
                    self.forgotten += self._unreleased.values()
                    self._unreleased.clear()  # what it knew of the session is to be forgotten [MQTT-3.2.2-5]
                if self._observer is not None:
                    self._observer.opened(self, effect.connack.session_present)
            elif isinstance(effect, Closed):
                if effect.error is not None:
                    self._refused(str(effect.error))
            else:
                assert isinstance(effect, Failed | Unclaimed)

    def _released(self, delivery: SimDelivery | None) -> None:
        if delivery is not None:
            self._deliver(delivery)

    def _deliver(self, delivery: SimDelivery) -> None:
        self.received.append(delivery)
        if self._observer is not None:
            self._observer.delivered(self, delivery)

    def _refused(self, problem: str) -> None:
        self.refused.append(problem)
        self._hang_up()
        if self._observer is not None:
            self._observer.ended(self, problem)


@final
class _Ear:
    def __init__(self, client: SimClient, end: StreamEnd) -> None:
        self._client = client
        self._end = end

    def received(self, data: bytes) -> None:
        self._client.heard(self._end, data)

    def closed(self, problem: str) -> None:
        self._client.lost(self._end, problem)
