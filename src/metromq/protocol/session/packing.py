"""Small writer and reader for the journal's control records and snapshots."""

import struct
from typing import Final, final

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")


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

    def done(self) -> bytes:
        return b"".join(self.parts)


@final
class Unpacker:
    """Raises struct.error or ValueError when the bytes end early; the caller names the record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def u8(self) -> int:
        self.position += 1
        if self.position > len(self.data):
            raise ValueError("record ends early")
        return self.data[self.position - 1]

    def u16(self) -> int:
        self.position += 2
        value: int = _U16.unpack_from(self.data, self.position - 2)[0]
        return value

    def u32(self) -> int:
        self.position += 4
        value: int = _U32.unpack_from(self.data, self.position - 4)[0]
        return value

    def u64(self) -> int:
        self.position += 8
        value: int = _U64.unpack_from(self.data, self.position - 8)[0]
        return value

    def i64(self) -> int:
        self.position += 8
        value: int = _I64.unpack_from(self.data, self.position - 8)[0]
        return value

    def blob(self) -> bytes:
        size = self.u32()
        start = self.position
        self.position += size
        if self.position > len(self.data):
            raise ValueError("record ends early")
        return self.data[start : self.position]

    def text(self) -> str:
        return self.blob().decode()

    def at_end(self) -> bool:
        return self.position >= len(self.data)
