"""What the client's core asks its shell to do."""

from dataclasses import dataclass
from typing import NamedTuple

from metromq.client.core.messages import Message
from metromq.errors import MqttError
from metromq.protocol.wire import Connack, Properties


class Send(NamedTuple):
    """Write these bytes to the network."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message for the application; tell the core with `taken` when the application has it."""

    message: Message


@dataclass(frozen=True, slots=True)
class Opened:
    """The server accepted us."""

    connack: Connack


@dataclass(frozen=True, slots=True)
class Settled:
    """The operation `token` has its answer."""

    token: int
    reason_codes: tuple[int, ...]
    properties: Properties | None


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """PUBACK of a packet that is not the session's: whoever writes packets past the core knows it, others ignore it."""

    packet_id: int
    reason_code: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The operation `token` will get no answer on this connection."""

    token: int
    error: MqttError


@dataclass(frozen=True, slots=True)
class Closed:
    """Close the network connection; `error` is None when we asked for it."""

    error: MqttError | None


Effect = Send | Deliver | Opened | Settled | Unclaimed | Failed | Closed
