"""The packets of MQTT as plain values, the same for 3.1, 3.1.1 and 5.0.

PUBLISH and the acknowledgements are hand-written classes because mypyc makes those cheapest; the rest are dataclasses.
"""

from dataclasses import dataclass, field
from typing import Final, final

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

KIND_NAMES: Final = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

MQTT31: Final = 3
MQTT311: Final = 4
MQTT5: Final = 5


@final
@dataclass
class Properties:
    """Every property of MQTT 5; None or an empty tuple when absent. Which packet may carry which: wire.properties."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keepalive_s: int | None = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_s: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_available: bool | None = None
    subscription_identifiers_available: bool | None = None
    shared_available: bool | None = None


@final
@dataclass
class Will:
    """The message that the server publishes when it loses the client; `properties` are encoded, as in Publish."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    expiry_s: int = -1
    properties: bytes = b""


@final
@dataclass
class Connect:
    client_id: str
    version: int = MQTT5
    clean_start: bool = True
    keepalive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=Properties)


@final
@dataclass
class Connack:
    """The reason code is MQTT 5's in every version; 3.1.1's return codes are translated on the wire."""

    session_present: bool = False
    reason_code: int = 0
    properties: Properties = field(default_factory=Properties)


@final
class Publish:
    """A PUBLISH; `properties` are the encoded ones that travel unchanged from end to end.

    These are payload format, content type, response topic, correlation data and user properties, without the length
    before them. What every hop sets anew stands beside them: expiry (-1: none), topic alias (0: none), identifiers.
    """

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: bytes = b"",
        expiry_s: int = -1,
        topic_alias: int = 0,
        identifiers: tuple[int, ...] = (),
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties
        self.expiry_s = expiry_s
        self.topic_alias = topic_alias
        self.identifiers = identifiers

    def _values(self) -> tuple[str, bytes, int, bool, bool, int, bytes, int, int, tuple[int, ...]]:
        return (
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.dup,
            self.packet_id,
            self.properties,
            self.expiry_s,
            self.topic_alias,
            self.identifiers,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publish) and self._values() == other._values()

    def __repr__(self) -> str:
        return f"Publish{self._values()!r}"


@final
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as `kind` says."""

    def __init__(self, kind: int, packet_id: int, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Ack)
            and self.kind == other.kind
            and self.packet_id == other.packet_id
            and self.reason_code == other.reason_code
            and self.properties == other.properties
        )

    def __repr__(self) -> str:
        return f"Ack({KIND_NAMES[self.kind]}, {self.packet_id}, 0x{self.reason_code:02X}, {self.properties!r})"


@final
@dataclass
class Subscription:
    """One topic filter of a SUBSCRIBE and its options; retain handling 0: send, 1: only if new, 2: do not send."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@final
@dataclass
class Subscribe:
    packet_id: int
    subscriptions: list[Subscription]
    identifier: int = 0
    properties: Properties = field(default_factory=Properties)


@final
@dataclass
class Suback:
    packet_id: int
    reason_codes: list[int]
    properties: Properties = field(default_factory=Properties)


@final
@dataclass
class Unsubscribe:
    packet_id: int
    filters: list[str]
    properties: Properties = field(default_factory=Properties)


@final
@dataclass
class Unsuback:
    """In 3.1.1 an UNSUBACK has no reason codes: the list is empty."""

    packet_id: int
    reason_codes: list[int] = field(default_factory=list)
    properties: Properties = field(default_factory=Properties)


@final
@dataclass
class Pingreq:
    pass


@final
@dataclass
class Pingresp:
    pass


@final
@dataclass
class Disconnect:
    reason_code: int = 0
    properties: Properties | None = None


@final
@dataclass
class Auth:
    reason_code: int = 0
    properties: Properties = field(default_factory=Properties)


Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
