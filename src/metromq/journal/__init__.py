"""The broker's durable log: append-only segments, offsets, checksums, group commit, snapshots, retention."""

from metromq.journal.commit import GroupCommit
from metromq.journal.identity import new_id, read_id
from metromq.journal.journal import Journal
from metromq.journal.reader import JournalReader
from metromq.journal.setting_aside import set_aside

__all__ = [
    "GroupCommit",
    "Journal",
    "JournalReader",
    "new_id",
    "read_id",
    "set_aside",
]
