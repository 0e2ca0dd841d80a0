"""A city's file: read strictly, with every mistake told by its field, and written again as text."""

import dataclasses
import json
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from metromq.config import raise_problems
from metromq.errors import UsageError
from metromq.federation.city import City
from metromq.settings import check_settings, read_settings

PREFIX = "METROMQ_CITY_"
PRESETS = ("central", "flood-publications", "flood-subscriptions", "geographic")


def load_city(path: Path, environ: Mapping[str, str] | None = None) -> City:
    """The city of the file; raises one ConfigError that tells every problem with its field."""
    city, problems = read_settings(City, path, environ or {}, PREFIX)
    raise_problems(problems)
    assert city is not None
    return city


def load_preset(name: str) -> City:
    with resources.as_file(preset_file(name)) as path:
        return load_city(path)


def preset_file(name: str) -> Traversable:
    if name not in PRESETS:
        raise UsageError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}")
    return resources.files("metromq.presets").joinpath(f"{name}.toml")


def validate_city(city: City) -> City:
    """Checks a City that a program built itself, as `load_city` checks a file."""
    raise_problems(check_settings(city))
    return city


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
