"""Membership and the topic table: who is there, and who is responsible for which area; no I/O."""
