"""What a client asks with SUBSCRIBE and UNSUBSCRIBE, and what it is answered."""

from typing import Final, final

from metromq.errors import ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.replay import NOT_SHARED, ROOT
from metromq.protocol.session.access import Access
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.replay_desk import Refusal
from metromq.protocol.session.session import Session
from metromq.protocol.topics.names import split_shared, validate_filter
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, Properties, Suback, Subscribe, Subscription, Unsuback, Unsubscribe

ORDINARY_FILTER: Final = 256  # longer ones are counted by what they hold, not only by their number


@final
class _BytesLater(Waiter):
    """SUBACK or UNSUBACK that leaves when the journal has the change."""

    def __init__(self, connection: NetworkConnection, data: bytes) -> None:
        self.connection = connection
        self.data = data

    def committed(self) -> None:
        self.connection.output.write(self.data)

    def failed(self) -> None:
        self.connection.terminate(reasons.QUOTA_EXCEEDED, "the disk is full")


@final
class Subscribing:
    """Made for one packet: clients subscribe rarely, and what they have is in the session."""

    def __init__(self, connection: NetworkConnection, hub: Hub, access: Access, session: Session) -> None:
        self._connection = connection
        self._output = connection.output
        self._hub = hub
        self._access = access
        self._session = session

    def subscribe(self, subscribe: Subscribe) -> None:
        session = self._session
        hub = self._hub
        codes: list[int] = []
        why: list[str] = []
        granted: list[tuple[Subscription, bool]] = []
        if session.seen is not None and any(wanted.qos for wanted in subscribe.subscriptions):
            hub.sessions.settle_seen(session)
        for wanted in subscribe.subscriptions:
            validate_filter(wanted.filter)
            share, filter = split_shared(wanted.filter)
            if share and wanted.no_local:  # [MQTT-3.8.3-4]
                raise ProtocolViolation("No Local on a shared subscription [MQTT-3.8.3-4]")
            if filter.partition("/")[0] == ROOT:
                codes.append(self._replay(wanted, share, subscribe.identifier, why))
                continue
            code = self._subscription_code(session, wanted, filter)
            codes.append(code)
            if code <= 2:
                granted.append((wanted, hub.subscriptions.subscribe(session, wanted, subscribe.identifier)))
        self._answer(session, self._suback(subscribe.packet_id, codes, why))
        for wanted, new in granted:
            hub.retained.subscribed(session, wanted.filter, new)

    def _replay(self, wanted: Subscription, share: str, identifier: int, why: list[str]) -> int:
        if share:
            refusal: Refusal | None = Refusal(reasons.TOPIC_FILTER_INVALID, NOT_SHARED)
        else:
            refusal = self._hub.replay.subscribe(self._connection, self._session, wanted, identifier)
        if refusal is None:
            return 0  # a replay comes at QoS 0
        why.append(refusal.text)
        return refusal.reason_code if self._output.version == MQTT5 else 0x80

    def _suback(self, packet_id: int, codes: list[int], why: list[str]) -> bytes:
        properties = Properties()
        failures = sorted({code for code in codes if code >= 0x80})
        if failures and self._output.version == MQTT5 and self._output.problem_information:  # [MQTT-3.1.2-29]
            properties.reason_string = "; ".join(why or [reasons.NAMES[code] for code in failures])
            data = encode(Suback(packet_id, codes, properties), MQTT5)
            if len(data) <= self._output.max_packet_bytes:  # [MQTT-3.9.2-1]
                return data
        return encode(Suback(packet_id, codes, Properties()), self._output.version)

    def _subscription_code(self, session: Session, wanted: Subscription, filter: str) -> int:
        failure = 0x80
        if wanted.filter not in session.grants and self._is_too_much(session, wanted.filter):
            return reasons.QUOTA_EXCEEDED if self._output.version == MQTT5 else failure
        if filter.count("/") >= self._hub.settings.max_topic_levels:
            return reasons.TOPIC_FILTER_INVALID if self._output.version == MQTT5 else failure
        if filter.startswith("$metromq") or not self._access.may_subscribe(session, filter):
            return reasons.NOT_AUTHORIZED if self._output.version == MQTT5 else failure
        return min(wanted.qos, self._hub.settings.max_qos)

    def _is_too_much(self, session: Session, filter: str) -> bool:
        settings, grants = self._hub.settings, session.grants
        if len(grants) >= settings.max_subscriptions_per_client:
            return True
        if len(filter) <= ORDINARY_FILTER:  # so many of them as a client may have cost little
            return False
        return sum([len(one) for one in grants]) + len(filter) > settings.max_filter_bytes_per_client

    def unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        session = self._session
        codes: list[int] = []
        for filter in unsubscribe.filters:
            validate_filter(filter)
            ended = self._hub.subscriptions.unsubscribe(session, filter) or self._hub.replay.unsubscribe(
                session, filter
            )
            codes.append(0 if ended else reasons.NO_SUBSCRIPTION_EXISTED)
        self._answer(session, encode(Unsuback(unsubscribe.packet_id, codes, Properties()), self._output.version))

    def _answer(self, session: Session, data: bytes) -> None:
        if len(data) > self._output.max_packet_bytes:  # [MQTT-3.1.2-24]
            self._connection.terminate(reasons.PACKET_TOO_LARGE, "the answer is larger than the client takes")
        elif session.backlog.durable and self._hub.commits.log is not None:
            self._hub.commits.when_committed(_BytesLater(self._connection, data))
        else:
            self._output.write(data)
