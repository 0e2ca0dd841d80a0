"""One session of one client, without I/O: shared by the asyncio client, links between brokers and the simulator."""

from metromq.client.core.client_core import ClientCore
from metromq.client.core.effects import Closed, Deliver, Effect, Failed, Opened, Send, Settled, Unclaimed
from metromq.client.core.messages import Message, Will
from metromq.client.core.options import ClientOptions

__all__ = [
    "ClientCore",
    "ClientOptions",
    "Closed",
    "Deliver",
    "Effect",
    "Failed",
    "Message",
    "Opened",
    "Send",
    "Settled",
    "Unclaimed",
    "Will",
]
