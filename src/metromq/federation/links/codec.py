"""Small binary building blocks of control frames: numbers of variable length and text with its length in front."""

from typing import final

from metromq.errors import ProtocolViolation

MAX_TEXT_BYTES = 1 << 20  # no name, filter or blob of a control frame comes near it


@final
class Writer:
    def __init__(self) -> None:
        self._out = bytearray()

    def number(self, value: int) -> None:
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def text(self, value: str) -> None:
        self.blob(value.encode())

    def blob(self, value: bytes) -> None:
        self.number(len(value))
        self._out += value

    def finish(self) -> bytes:
        return bytes(self._out)


@final
class Reader:
    """Raises ProtocolViolation for bytes that end early or run on, so that a broken peer is told and dropped."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        value = shift = 0
        while True:
            if self._position >= len(self._data) or shift > 63:
                raise ProtocolViolation("a control frame of a link is cut short or holds an endless number")
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError as error:
            raise ProtocolViolation(f"a control frame of a link holds text that is not UTF-8: {error}") from error

    def blob(self) -> bytes:
        size = self.number()
        end = self._position + size
        if size > MAX_TEXT_BYTES or end > len(self._data):
            raise ProtocolViolation("a control frame of a link is cut short")
        value = self._data[self._position : end]
        self._position = end
        return value

    def finish(self) -> None:
        if self._position != len(self._data):
            raise ProtocolViolation("a control frame of a link runs on after its end")
