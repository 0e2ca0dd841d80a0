"""Writes the data types of MQTT as bytes; what does not fit is our own mistake, so it raises UsageError."""

from typing import Final

from metromq.errors import UsageError

MAX_VARINT: Final = 268_435_455
BYTES: Final[list[bytes]] = [bytes([value]) for value in range(256)]  # by number: cheaper than to make each anew


def u16(value: int) -> bytes:
    if not 0 <= value <= 0xFFFF:
        raise UsageError(f"{value} does not fit a two byte integer (0 to 65535)")
    return BYTES[value >> 8] + BYTES[value & 0xFF]


def u32(value: int) -> bytes:
    if not 0 <= value <= 0xFFFFFFFF:
        raise UsageError(f"{value} does not fit a four byte integer (0 to 4294967295)")
    return value.to_bytes(4, "big")


def varint(value: int) -> bytes:
    """A Variable Byte Integer in its shortest form [MQTT-1.5.5-1]."""
    if not 0 <= value <= MAX_VARINT:
        raise UsageError(f"{value} does not fit a variable byte integer (0 to {MAX_VARINT}); make the packet smaller")
    if value < 0x80:
        return BYTES[value]
    parts: list[bytes] = []
    while value >= 0x80:
        parts.append(BYTES[value & 0x7F | 0x80])
        value >>= 7
    parts.append(BYTES[value])
    return b"".join(parts)


def binary(value: bytes) -> bytes:
    if len(value) > 0xFFFF:
        raise UsageError(f"{len(value)} bytes do not fit a field of at most 65535 bytes")
    return u16(len(value)) + value


def string(value: str) -> bytes:
    if "\0" in value:
        raise UsageError("a string of MQTT must not hold the null character U+0000 [MQTT-1.5.4-2]")
    try:
        return binary(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UsageError(f"a string of MQTT must be Unicode without surrogates [MQTT-1.5.4-1]: {error}") from None
