"""The bytes of a MESSAGE record, described once: the broker's structs and the pipeline's columns are made from this.

A record is its PARTS in a row, all numbers little-endian. The lengths of topic, publisher and properties, and the
number of targets, are in the head; each target, and the origin, says its own length; the payload is the rest.
What a flag of the head announces is there only if the flag is set.
Releases before USES wrote what a link's message was taken for into packet_id.

A target is TARGET, then as many IDENTIFIER as it says, then, if its flags have NOTE, a NOTE_LENGTH and so many bytes.
With GIVEN it is none that gets the message: who had it has given it to the others, and its identifier is the packet's.
"""

import struct
from typing import Final

Fields = tuple[tuple[str, str], ...]  # names, and codes that `struct` and numpy both know

PARTS: Final = (
    "head",
    "topic",
    "publisher",
    "properties",
    "targets",
    "origin_head",
    "origin",
    "uses",
    "arrived",
    "payload",
)

HEAD: Final[Fields] = (
    ("time_us", "Q"),
    ("flags", "B"),
    ("expires_us", "Q"),  # 0: never
    ("session", "I"),  # the publisher's, 0: none that lasts
    ("packet_id", "H"),
    ("topic", "H"),  # bytes
    ("publisher", "H"),  # bytes
    ("targets", "H"),  # how many
    ("properties", "I"),  # bytes
)
QOS: Final = 0b11  # in the flags of the head
RETAIN: Final = 0b100
KIND_SHIFT: Final = 3
KIND: Final = 0b11  # after the shift
ORIGIN: Final = 0b10_0000  # origin_head and origin are there
USES: Final = 0b100_0000  # uses is there
ARRIVED: Final = 0b1000_0000  # arrived is there: when a copy from a peer came to this broker, by this broker's clock

TARGET: Final[Fields] = (
    ("session", "I"),
    ("flags", "B"),  # bits 0-1: QoS; bit 2: the RETAIN flag to send
    ("identifiers", "B"),  # how many
)
NOTE: Final = 0b1000_0000  # in the flags of a target: a note follows its identifiers
GIVEN: Final = 0b100_0000  # the same: it had the message until now
IDENTIFIER: Final[Fields] = (("identifier", "I"),)
NOTE_LENGTH: Final[Fields] = (("bytes", "I"),)

ORIGIN_HEAD: Final[Fields] = (("offset", "q"), ("name", "B"))  # the name's length in bytes
USED: Final[Fields] = (("uses", "B"),)  # what a message that a link brought was taken for; the federation's bits
ARRIVAL: Final[Fields] = (("time_us", "Q"),)


def struct_of(fields: Fields) -> struct.Struct:
    return struct.Struct("<" + "".join(code for _, code in fields))
