"""The topic table: which broker is responsible for which area, and since which epoch.

Every broker has its own copy. Entries merge by one rule, the greater (epoch, owner) wins, which is commutative,
associative and idempotent: whatever way and in whatever order entries travel, brokers that have heard the same ones
have the same table.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from metromq.federation.links.frames import TableEntry


@dataclass(frozen=True, slots=True)
class Change:
    """An entry that replaced another."""

    before: TableEntry
    after: TableEntry


@final
class TopicTable:
    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = homes
        self._entries = {area: TableEntry(area, homes[area], 0) for area in sorted(homes)}
        self._digest = -1  # not counted yet

    def owner(self, area: str) -> str:
        """The responsible broker, or the empty string where nobody is at home."""
        entry = self._entries.get(area)
        return entry.owner if entry is not None else ""

    def home(self, area: str) -> str:
        return self.homes.get(area, "")

    def epoch(self, area: str) -> int:
        return self._entries[area].epoch

    def entries(self) -> tuple[TableEntry, ...]:
        return tuple(self._entries.values())

    def owned_by(self, broker: str) -> tuple[str, ...]:
        return tuple(area for area, entry in self._entries.items() if entry.owner == broker)

    def claim(self, area: str, broker: str) -> Change:
        before = self._entries[area]
        after = TableEntry(area, broker, before.epoch + 1)
        self._entries[area] = after
        self._digest = -1
        return Change(before, after)

    def merge(self, entries: Iterable[TableEntry]) -> tuple[Change, ...]:
        """Takes over what is newer; areas that this city does not have are ignored."""
        changes: list[Change] = []
        for entry in entries:
            before = self._entries.get(entry.area)
            if before is not None and (entry.epoch, entry.owner) > (before.epoch, before.owner):
                self._entries[entry.area] = entry
                self._digest = -1
                changes.append(Change(before, entry))
        return tuple(changes)

    def digest(self) -> int:
        """Equal tables have equal digests."""
        if self._digest < 0:
            text = "".join(f"{entry.area} {entry.owner} {entry.epoch}\n" for entry in self.entries())
            self._digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
        return self._digest
