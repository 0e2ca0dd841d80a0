"""What names a record: the broker, the journal and the offset. Offsets start again in every journal."""

from typing import NamedTuple


class JournalKey(NamedTuple):
    """One journal of one broker."""

    broker: str
    journal: str = ""  # empty: the broker's first, recorded before journals had names

    def __str__(self) -> str:
        return f"{self.broker}, journal {self.journal}" if self.journal else self.broker
