"""Replays: old messages from the journal for clients that ask, read by a process of its own."""

from metromq.broker.replaying.desk import Desk

__all__ = ["Desk"]
