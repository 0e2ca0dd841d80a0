"""MQTT itself: bytes, topics and sessions, without I/O."""

from metromq.protocol import reasons, scram
from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.remembered import Remembered

__all__ = [
    "Packer",
    "Remembered",
    "Unpacker",
    "reasons",
    "scram",
]
