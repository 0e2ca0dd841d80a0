"""What a client says in CONNECT and what it accepts."""

from dataclasses import dataclass, field
from typing import Protocol

from metromq.client.core.messages import Will
from metromq.protocol.wire import MQTT5, Properties


class Authentication(Protocol):
    """The client's side of an enhanced authentication of MQTT 5 (section 4.12), such as ScramClient."""

    method: str

    def start(self) -> bytes: ...
    def answer(self, challenge: bytes) -> bytes: ...
    def finish(self, verdict: bytes | None) -> None: ...


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a CONNECT says and what we accept."""

    identifier: str = ""
    version: int = MQTT5
    clean_start: bool = True
    # None: the session ends with the connection (MQTT 5 with clean start) or stays (older versions without it).
    session_expiry_s: int | None = None
    keepalive_s: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    # Unacknowledged QoS 1 and 2 messages that the server may have under way to us.
    receive_maximum: int = 1000
    # Unacknowledged QoS 1 and 2 messages of ours; the server's receive maximum may lower it.
    max_inflight: int = 1000
    topic_alias_maximum: int = 0
    # What we are willing to store of one packet.
    max_packet_size_bytes: int = 268_435_460
    # Further CONNECT properties: user properties, request_response_information, ...
    properties: Properties = field(default_factory=Properties)
    authentication: Authentication | None = None
