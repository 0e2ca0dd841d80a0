"""Who may ask the manager: its own token, and further ones by name, so that the audit log shows who it was."""

import contextlib
import hmac
import pwd
import secrets
from pathlib import Path

from metromq.control.asking_manager import TOKEN_FILE
from metromq.control.core import is_name
from metromq.files import replace_file

TOKENS = "tokens"  # a file for each, called as whoever has it
SHORTEST = 16  # characters: a file that is half written, or empty, lets nobody in


def own_token(directory: Path) -> str:
    """Made at the first start and kept: only its user can read it."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / TOKEN_FILE
    with contextlib.suppress(OSError):
        known = file.read_text().strip()
        if known:
            return known
    token = secrets.token_urlsafe(32)
    replace_file(file, token + "\n", mode=0o600)
    return token


class Tokens:
    """Read anew for every request: a token that is removed is worth nothing at once."""

    def __init__(self, directory: Path, own: str) -> None:
        self._directory = directory
        self._own = own

    def name_of(self, given: str) -> str | None:
        """Whose token it is: a name, "" for the manager's own; None: nobody's."""
        found = "" if _is_same(given, self._own) else None
        for name, token in self._named().items():
            if _is_same(given, token) and found is None:
                found = name
        return found

    def _named(self) -> dict[str, str]:
        named: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for file in sorted((self._directory / TOKENS).iterdir()):
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    token = file.read_text().strip()
                    if is_name(file.name) and len(token) >= SHORTEST:
                        named[file.name] = token
        return named

    def owner(self) -> str:
        """Of the manager's own token: only that user can read it."""
        with contextlib.suppress(OSError, KeyError):
            return pwd.getpwuid((self._directory / TOKEN_FILE).stat().st_uid).pw_name
        return "owner"


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
