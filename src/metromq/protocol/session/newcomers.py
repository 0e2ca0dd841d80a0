"""Those at the door: connected, but not let in yet. They count apart, so that silence keeps nobody out."""

from typing import final

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Newcomer:
    """A network connection from its first moment until CONNACK lets it in."""

    def __init__(self, address: str) -> None:
        self.address = address  # without the port: whose share of the room it takes

    def turn_away(self) -> None:
        """Ends the connection without a word."""
        raise NotImplementedError


@final
class Newcomers:
    """At most so many; one more, and the oldest of the address that has most of them gives way.

    Whoever floods from one address thus only pushes out its own. A CONNECT puts its sender at the end of the line, so
    that those who say nothing go before those whose authentication is under way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[str, dict[Newcomer, None]] = {}
        self.count = 0
        self.turned_away = 0

    def came(self, newcomer: Newcomer) -> None:
        self._join(newcomer)
        if self.count > self._most:
            self._make_room()

    def spoke(self, newcomer: Newcomer) -> None:
        if self.gone(newcomer):
            self._join(newcomer)

    def gone(self, newcomer: Newcomer) -> bool:
        """It was let in, or left; whether it was still here."""
        line = self._lines.get(newcomer.address)
        if line is None or newcomer not in line:
            return False
        del line[newcomer]
        if not line:
            del self._lines[newcomer.address]
        self.count -= 1
        return True

    def turn_all_away(self) -> None:
        for line in list(self._lines.values()):
            for newcomer in list(line):
                self.gone(newcomer)
                newcomer.turn_away()

    def _join(self, newcomer: Newcomer) -> None:
        self._lines.setdefault(newcomer.address, {})[newcomer] = None
        self.count += 1

    def _make_room(self) -> None:
        line = max(self._lines.values(), key=len)
        oldest = next(iter(line))
        self.gone(oldest)
        self.turned_away += 1
        oldest.turn_away()
