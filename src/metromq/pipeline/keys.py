"""What names a record: the broker, the journal and the offset. Offsets start again in every journal."""

from typing import NamedTuple


class JournalKey(NamedTuple):
    """One journal of one broker."""

    broker: str
    journal: str = ""  # empty: the broker's first, recorded before journals had names

    def __str__(self) -> str:
        return f"{self.broker}, journal {self.journal}" if self.journal else self.broker


def place_name(key: JournalKey) -> str:
    """A journal in Spark's offsets: `broker/journal`; checkpoints of older versions have only the broker."""
    return f"{key.broker}/{key.journal}" if key.journal else key.broker


def place_key(name: str) -> JournalKey:
    return JournalKey(*name.split("/", 1))
