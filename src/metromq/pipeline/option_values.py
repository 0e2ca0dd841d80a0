"""Options of the Spark source and sink, which come as text: each is read here, and a wrong one is named."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from metromq.errors import UsageError

_TRUTHS: Final = {"true": True, "false": False}
_MOST: Final = 2**31 - 1


def whole_number(options: Mapping[str, str], name: str, default: int, least: int = 1, most: int = _MOST) -> int:
    text = options.get(name, str(default)).strip()
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not least <= number <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, not {text!r}")
    return number


def truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Nothing but true and false: who writes `tls` = yes must not be connected in the clear."""
    text = options.get(name, str(default))
    if text.strip().lower() not in _TRUTHS:
        raise UsageError(f"{name} must be true or false, not {text!r}")
    return _TRUTHS[text.strip().lower()]


def check_spelling(options: Iterable[str], known: tuple[str, ...]) -> None:
    """An option that is nearly one of ours would be ignored in silence; Spark has options of its own, which are not."""
    spelt = {name.lower(): name for name in known}
    for option in options:
        meant = [] if option.lower() in spelt else get_close_matches(option.lower(), spelt, 1, 0.85)
        if meant:
            raise UsageError(f"there is no option {option!r}; did you mean {spelt[meant[0]]!r}?")
