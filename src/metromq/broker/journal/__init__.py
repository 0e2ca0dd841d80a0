"""The durable log of one broker: append-only segments, offsets, group commit, retention."""
