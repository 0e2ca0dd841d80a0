"""A city as the text of its file, for tools that fill in what a user left open."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from metromq.federation.city import City


def city_text(city: City) -> str:
    """TOML that `load_city` reads back as the same city."""
    lines: list[str] = []
    tables: list[str] = []
    for field in dataclasses.fields(city):
        value = getattr(city, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            tables += ["", f"[{field.name}]", *_fields(value)]
        elif isinstance(value, tuple):
            for item in value:
                tables += ["", f"[[{field.name}]]", *_fields(item)]
        else:
            lines.append(f"{field.name} = {_value(value)}")
    return "\n".join((*lines, *tables)) + "\n"


def _fields(section: Any) -> list[str]:
    values = ((field.name, getattr(section, field.name)) for field in dataclasses.fields(section))
    return [f"{name} = {_value(value)}" for name, value in values if value is not None]


def _value(value: str | int | float | Path) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Path):
        value = str(value.absolute())  # it was relative to the old file, and the text may go elsewhere
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's
