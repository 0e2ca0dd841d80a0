"""MQTT itself: bytes, topics and sessions, without I/O."""

from metromq.protocol import reasons, scram
from metromq.protocol.packing import Packer, Unpacker

__all__ = [
    "Packer",
    "Unpacker",
    "reasons",
    "scram",
]
