"""An asyncio MQTT client on the same wire as the broker."""

from metromq.client.client import Client
from metromq.client.messages import Message, Topic, Will
from metromq.client.queue import Messages
from metromq.errors import ConnectionLost, ConnectRefused, MqttError
from metromq.protocol.scram import ScramClient
from metromq.protocol.wire.packets import MQTT5, MQTT31, MQTT311, Properties, Subscription

__all__ = [
    "MQTT5",
    "MQTT31",
    "MQTT311",
    "Client",
    "ConnectRefused",
    "ConnectionLost",
    "Message",
    "Messages",
    "MqttError",
    "Properties",
    "ScramClient",
    "Subscription",
    "Topic",
    "Will",
]
