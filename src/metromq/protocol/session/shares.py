"""The note beside a message that waits for a member of a shared group: which group, and how far it may still go.

A session may have a message by its own subscription and by groups; when it ends, only what it has by a group goes to
others. The first byte counts the links that such a message may still cross: each broker that passes it on takes one
off, so that none can go around for ever, and each pass is told from the one before.
"""

from typing import Final

_MARK: Final = 0x40  # no note of a link begins so (`federation.links.routing_slip`)
_LIMIT: Final = 0x1F
MOST_LINKS: Final = 16


def note_of(name: str, filter: str, limit: int = MOST_LINKS) -> bytes:
    return bytes([_MARK | limit]) + f"{name}/{filter}".encode()


def is_share_note(note: bytes) -> bool:
    return len(note) > 0 and note[0] & ~_LIMIT == _MARK


def share_of(note: bytes) -> tuple[str, str]:
    """The group's name, and its filter."""
    name, _, filter = note[1:].decode().partition("/")
    return name, filter


def note_limit(note: bytes) -> int:
    return note[0] & _LIMIT


def with_limit(note: bytes, limit: int) -> bytes:
    return bytes([_MARK | limit]) + note[1:]
