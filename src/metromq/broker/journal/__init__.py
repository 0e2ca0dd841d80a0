"""The broker's durable log: append-only segments, offsets, checksums, group commit, snapshots, retention."""

from metromq.broker.journal.commit import GroupCommit
from metromq.broker.journal.journal import Journal
from metromq.broker.journal.reader import JournalReader

__all__ = ["GroupCommit", "Journal", "JournalReader"]
