"""What the type of a setting says about its value; descriptions such as a City use it without reading anything."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

# A pure room names the type here, so that it need not import what can touch the disk.
FilePath: TypeAlias = Path


@dataclass(frozen=True, slots=True)
class Range:
    """A number's inclusive bounds, written in a field's type: `Annotated[int, Range(1, 65535)]`."""

    least: float
    most: float | None = None

    def problem(self, value: float) -> str | None:
        # Written so that not-a-number fails too.
        if self.least <= value and (self.most is None or value <= self.most):
            return None
        if self.most is None:
            return f"must be at least {self.least:g}, not {value}"
        return f"must be from {self.least:g} to {self.most:g}, not {value}"


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A path that must name a file this process may read when the configuration is checked."""

    def problem(self, value: Path) -> str | None:
        if not value.exists():
            return f"there is no file {value}"
        if not value.is_file():
            return f"{value} is not a file"
        return None if os.access(value, os.R_OK) else f"{value} may not be read by this user"
