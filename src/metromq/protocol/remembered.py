"""What was looked up lately, bounded in bytes and never forgotten all at once."""

from typing import Generic, TypeVar, final

K = TypeVar("K")
V = TypeVar("V")


@final
class Remembered(Generic[K, V]):
    """Values by key, in two generations: when the young one has half of the bytes it becomes the old one, from which
    keys come back by being asked for, and the old one before it is gone.

    Nothing may depend on what is here. Who asks very often looks into `young` first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._old_each = 0  # bytes, on average
        self._bytes = 0  # of the young ones
        self.limit_bytes = limit_bytes

    def get(self, key: K) -> V | None:
        value = self.young.get(key)
        if value is None and self._old:
            value = self._old.pop(key, None)
            if value is not None:
                self.put(key, value, self._old_each)
        return value

    def put(self, key: K, value: V, size: int) -> None:
        """Something that takes `size` bytes; what is too large by itself is not kept."""
        if size > self.limit_bytes >> 4:
            return
        if self._bytes + size > self.limit_bytes >> 1:
            self._old_each = self._bytes // max(1, len(self.young))
            self._old = self.young
            self.young = {}
            self._bytes = 0
        self.young[key] = value
        self._bytes += size

    def count(self) -> int:
        return len(self.young) + len(self._old)

    def listed(self) -> list[K]:
        return [*self.young, *self._old]

    def pop(self, key: K) -> None:
        self.young.pop(key, None)
        if self._old:
            self._old.pop(key, None)

    def clear(self) -> None:
        self.young = {}
        self._old = {}
        self._bytes = 0
