"""A city's file: read strictly, with every mistake told by its field, and written again as text."""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import tomli_w

from metromq.errors import ConfigError, UsageError
from metromq.federation import City
from metromq.reading import raise_problems
from metromq.settings import check_settings, read_settings

PREFIX = "METROMQ_CITY_"
PRESETS = (
    *("central", "delegation", "flood-publications", "flood-subscriptions", "geographic"),
    *("overlay", "overlay-zookeeper"),
)


def load_city(path: Path, environ: Mapping[str, str] | None = None) -> City:
    """The city of the file; raises one ConfigError that tells every problem with its field."""
    city, problems = read_settings(City, path, environ or {}, PREFIX)
    raise_problems(problems)
    assert city is not None
    return city


def check_city(path: Path, environ: Mapping[str, str]) -> list[ConfigError]:
    """Every problem that `load_city` would meet."""
    return read_settings(City, path, environ, PREFIX)[1]


def secret_places(city: City, path: Path, name: str) -> Iterator[tuple[str, Path]]:
    """What a city that was read from `path` keeps secret at one of its brokers, and the files that hold it.

    A preset has none, and what the environment says is in none.
    """
    written = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept = (
        ("the city's secret", city.links.secret_file, "secret" in written.get("links", {})),
        ("the private key of links", city.links.key_file, False),
        ("the ensemble's password", city.zookeeper.password_file, "password" in written.get("zookeeper", {})),
    )
    for what, file, is_here in kept:
        if file is not None:
            yield what, Path(str(file).replace("{name}", name))
        elif is_here:
            yield what, path


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
    """TOML that `load_city` reads back as the same city; it has no comments, for a City has none."""
    return tomli_w.dumps(dataclasses.asdict(city, dict_factory=_table))


def _table(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """TOML has no word for nothing. A path was relative to the old file, and the text may go elsewhere."""
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value for name, value in items if value is not None
    }
