"""What the hub needs of a journal; the shell passes the real one, tests a list."""

from collections.abc import Iterator

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Log:
    """Numbered messages and unnumbered control records, in one order."""

    def append_message(self, body: bytes) -> int:
        raise NotImplementedError

    def append(self, kind: int, body: bytes) -> None:
        raise NotImplementedError

    def read(self, offset: int) -> bytes:
        raise NotImplementedError

    def scan(self, offset: int) -> Iterator[tuple[int, int, bytes]]:
        raise NotImplementedError

    def full(self) -> bool:
        """Whether new QoS 1 and 2 messages must be refused."""
        raise NotImplementedError

    def next_offset(self) -> int:
        """The offset of the next message."""
        raise NotImplementedError

    def flush(self) -> None:
        """Makes everything appended so far visible to `scan`."""
        raise NotImplementedError
