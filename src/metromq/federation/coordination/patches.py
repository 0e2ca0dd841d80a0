"""A description of a large city as the difference to the one before: most of it is as it was; no I/O.

The description of 5,000 brokers is 600 kB of text, and everybody hears of a change from eight others. What they say is
which parts of the text stayed, and what is new between them, with a digest of the text that it was made from. Who has
another one cannot read it, and asks for the whole.
"""

import hashlib
import json
import re
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from metromq.errors import ProtocolViolation

_PIECE: Final = re.compile(r"[^}]*}|[^}]+$")  # a broker or a site is one


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@lru_cache(maxsize=4)
def patch_between(before: str, after: str) -> str:
    """What `patched` makes `after` of, for whoever has `before`."""
    one, other = _PIECE.findall(before), _PIECE.findall(after)
    starts = [0]
    for piece in one:
        starts.append(starts[-1] + len(piece))
    parts: list[object] = []
    for tag, first, last, other_first, other_last in SequenceMatcher(None, one, other, False).get_opcodes():
        if tag == "equal":
            parts.append([starts[first], starts[last]])
        elif other_first < other_last:
            parts.append("".join(other[other_first:other_last]))
    return json.dumps([_digest(before), parts], separators=(",", ":"))


@lru_cache(maxsize=4)
def patched(before: str, patch: str) -> str | None:
    """The text after a change; None: it was made from another text than `before`."""
    try:
        digest, parts = json.loads(patch)
        if digest != _digest(before):
            return None
        return "".join(part if isinstance(part, str) else before[part[0] : part[1]] for part in parts)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ProtocolViolation(f"a change of the city makes no sense: {error}") from error
