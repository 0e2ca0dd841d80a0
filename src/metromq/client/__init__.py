"""An asyncio MQTT client on the same wire as the broker."""

from metromq.client.client import Client
from metromq.client.core.messages import Message, Topic, Will
from metromq.client.queue import Messages
from metromq.client.transports import ServerAddress, open_stream
from metromq.errors import ConnectionLost, ConnectRefused, MqttError
from metromq.protocol import scram
from metromq.protocol.wire import MQTT5, MQTT31, MQTT311, Properties, Subscription

ScramClient = scram.ScramClient

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
    "ServerAddress",
    "Subscription",
    "Topic",
    "Will",
    "open_stream",
]
