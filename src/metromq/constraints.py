"""What the type of a setting says about its value; descriptions such as a City use it without reading anything."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

# A pure room names the type here, so that it need not import what can touch the disk.
FilePath: TypeAlias = Path

SHOWN = 40  # characters of a wrong value


@dataclass(frozen=True, slots=True)
class Range:
    """A number's inclusive bounds, written in a field's type: `Annotated[int, Range(1, 65535)]`."""

    least: float
    most: float | None = None

    def problem(self, value: float) -> str | None:
        if self.least <= value and (self.most is None or value <= self.most):
            return None
        if self.most is None:
            return f"must be at least {shown(self.least)}, not {shown(value)}"
        return f"must be from {shown(self.least)} to {shown(self.most)}, not {shown(value)}"


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """A text with at least one character."""

    def problem(self, value: str) -> str | None:
        return None if value else "must not be empty"


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A path that must name a file this process may read when the configuration is checked."""

    def problem(self, value: Path) -> str | None:
        try:
            if not value.exists():
                return f"there is no file {value}"
            if not value.is_file():
                return f"{value} is not a file"
        except OSError as error:
            return f"{value} cannot be looked at: {error.strerror or error}"
        return None if os.access(value, os.R_OK) else f"{value} may not be read by this user"


def shown(raw: object) -> str:
    """A wrong value for an error's words: short, whatever it is."""
    if raw is None:
        return "nothing"
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, str):
        text = raw.encode("unicode_escape", "surrogatepass").decode() if not raw.isprintable() else raw
        return f'"{text}"' if len(text) <= SHOWN else f'"{text[: SHOWN - 3]}..." ({len(raw)} characters)'
    if isinstance(raw, int):
        return str(raw) if abs(raw) < 10**SHOWN else "a number with more than 40 digits"
    if isinstance(raw, float):
        return f"{raw:.15g}"
    if isinstance(raw, Path):
        return str(raw)
    if isinstance(raw, Mapping):
        return "a table"
    return "a list" if isinstance(raw, list | tuple) else f"a {type(raw).__name__}"
