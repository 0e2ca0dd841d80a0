"""The asyncio shell around the protocol: doors, authentication, journal, metrics."""

from metromq.broker import logs
from metromq.broker.broker import Broker
from metromq.broker.core_share import take_short_turns
from metromq.broker.exposure import exposed
from metromq.broker.hub_storage import set_aside_journal
from metromq.broker.memory import Garbage, keep_buffers

__all__ = [
    "Broker",
    "Garbage",
    "exposed",
    "keep_buffers",
    "logs",
    "set_aside_journal",
    "take_short_turns",
]
