"""The one writer and reader of our own binary formats: journal records, snapshots, and what brokers tell each other.

Lengths and numbers of records have a fixed size, little-endian; those of control frames are short where the value is
small. Both kinds are on disks: a snapshot holds control frames too, so neither may change. MQTT's own packets have a
reader of their own (`wire.reader`), because there every refusal is a peer's fault with a clause of the standard.
"""

import struct
from typing import Final, final

from mypy_extensions import i64

from metromq.errors import BytesDamaged

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")
_BYTES: Final = tuple([bytes((value,)) for value in range(256)])
NUMBER_BYTES: Final = 10  # at most, for a number of the short kind
MOST_SPELT: Final = 1024  # numbers whose bytes are kept
QUICK_BITS: Final = 56  # numbers of so few fit into a machine word, sign and all

_SPELT: dict[int, bytes] = {}


@final
class Packer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def u8(self, value: int) -> "Packer":
        self.parts.append(bytes((value,)))
        return self

    def u16(self, value: int) -> "Packer":
        self.parts.append(_U16.pack(value))
        return self

    def u32(self, value: int) -> "Packer":
        self.parts.append(_U32.pack(value))
        return self

    def u64(self, value: int) -> "Packer":
        self.parts.append(_U64.pack(value))
        return self

    def i64(self, value: int) -> "Packer":
        self.parts.append(_I64.pack(value))
        return self

    def blob(self, value: bytes) -> "Packer":
        self.parts.append(_U32.pack(len(value)))
        self.parts.append(value)
        return self

    def text(self, value: str) -> "Packer":
        return self.blob(value.encode())

    def number(self, value: int) -> "Packer":
        """Seven bits a byte, the lowest first: small ones are short."""
        if value < 0:
            raise ValueError(f"{value} has no bytes")
        parts = self.parts
        while value >> QUICK_BITS:
            parts.append(_BYTES[value & 0x7F | 0x80])
            value >>= 7
        left: i64 = value
        while left > 0x7F:
            parts.append(_BYTES[left & 0x7F | 0x80])
            left >>= 7
        parts.append(_BYTES[left])
        return self

    def constant(self, value: int) -> "Packer":
        """A `number` that is written again and again, such as a digest: its bytes are remembered."""
        spelt = _SPELT.get(value)
        if spelt is None:
            if len(_SPELT) >= MOST_SPELT:
                _SPELT.clear()
            spelt = _SPELT[value] = Packer().number(value).done()
        self.parts.append(spelt)
        return self

    def short_blob(self, value: bytes) -> "Packer":
        """As `blob`, with its length as a `number`."""
        self.number(len(value))
        self.parts.append(value)
        return self

    def short_text(self, value: str) -> "Packer":
        return self.short_blob(value.encode())

    def done(self) -> bytes:
        return b"".join(self.parts)


@final
class Unpacker:
    """Raises BytesDamaged for bytes that end early, run on or are no text; the caller names what they were."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def _take(self, size: int) -> int:
        """Moves past `size` bytes and returns where they start."""
        start = self.position
        if size > len(self.data) - start:
            raise BytesDamaged(f"{size} bytes are needed at {start}, and {len(self.data) - start} are left")
        self.position = start + size
        return start

    def u8(self) -> int:
        return self.data[self._take(1)]

    def u16(self) -> int:
        value: int = _U16.unpack_from(self.data, self._take(2))[0]
        return value

    def u32(self) -> int:
        value: int = _U32.unpack_from(self.data, self._take(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self.data, self._take(8))[0]
        return value

    def i64(self) -> int:
        value: int = _I64.unpack_from(self.data, self._take(8))[0]
        return value

    def blob(self) -> bytes:
        return self._bytes(self.u32())

    def text(self) -> str:
        return self._text(self.blob())

    def number(self) -> int:
        data = self.data
        place: i64 = self.position
        end: i64 = len(data)
        quick: i64 = 0
        shift: i64 = 0
        while place < end and shift < QUICK_BITS:
            byte: i64 = data[place]
            place += 1
            if byte < 0x80:
                self.position = place
                return quick | byte << shift
            quick |= (byte & 0x7F) << shift
            shift += 7
        return self._long_number(quick, shift, place)

    def _long_number(self, value: int, shift: int, place: int) -> int:
        """The rest of one that is too long to be read quickly, or has no end."""
        data = self.data
        end = min(self.position + NUMBER_BYTES, len(data))
        while place < end:
            byte = data[place]
            place += 1
            if byte < 0x80:
                self.position = place
                return value | byte << shift
            value |= (byte & 0x7F) << shift
            shift += 7
        self.position = place
        if shift < 7 * NUMBER_BYTES:
            self._take(1)  # tells what is missing
        raise BytesDamaged(f"the number before {place} has no end")

    def short_blob(self) -> bytes:
        return self._bytes(self.number())

    def short_text(self) -> str:
        return self._text(self.short_blob())

    def _bytes(self, size: int) -> bytes:
        start = self._take(size)
        return self.data[start : self.position]

    def _text(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise BytesDamaged(f"the text before {self.position} is not UTF-8: {error}") from None

    def at_end(self) -> bool:
        return self.position >= len(self.data)

    def finish(self) -> None:
        """Nothing may be left over."""
        if self.position != len(self.data):
            raise BytesDamaged(f"{len(self.data) - self.position} bytes are left over")
