"""The asyncio shell around the protocol: doors, authentication, journal, metrics."""

from metromq.broker.broker import Broker

__all__ = ["Broker"]
