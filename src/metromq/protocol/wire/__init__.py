"""Bytes to packets and back, for MQTT 3.1, 3.1.1 and 5.0."""

from metromq.protocol.wire import packets
from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    KIND_NAMES,
    MQTT5,
    MQTT31,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Packet,
    Properties,
    Publish,
    Subscription,
)
from metromq.protocol.wire.properties import decode_raw, encode_raw

__all__ = [
    "KIND_NAMES",
    "MQTT5",
    "MQTT31",
    "MQTT311",
    "PUBACK",
    "PUBCOMP",
    "PUBREC",
    "PUBREL",
    "Ack",
    "Connack",
    "Framer",
    "Packet",
    "Properties",
    "Publish",
    "Subscription",
    "decode",
    "decode_raw",
    "encode",
    "encode_raw",
    "packets",
]
