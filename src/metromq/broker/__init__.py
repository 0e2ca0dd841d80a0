"""The asyncio shell around the protocol: doors, authentication, journal, metrics."""

from metromq.broker import logs
from metromq.broker.broker import Broker
from metromq.broker.memory import keep_buffers

__all__ = [
    "Broker",
    "keep_buffers",
    "logs",
]
