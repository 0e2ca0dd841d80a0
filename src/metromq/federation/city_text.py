"""A city as the text of its file, for tools that fill in what a user left open."""

import dataclasses
from pathlib import Path
from typing import Any

import tomli_w

from metromq.federation.city import City


def city_text(city: City) -> str:
    """TOML that `load_city` reads back as the same city; it has no comments, for a City has none."""
    return tomli_w.dumps(dataclasses.asdict(city, dict_factory=_table))


def _table(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """TOML has no word for nothing. A path was relative to the old file, and the text may go elsewhere."""
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value for name, value in items if value is not None
    }
