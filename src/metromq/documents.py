"""TOML and JSON files as tables; a file that cannot be read is an error that names it and says what to do."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from metromq.errors import ConfigError

MOST_DIGITS = 4300  # Python reads no longer numbers
_LONG_NUMBER = re.compile(rf"\d{{{MOST_DIGITS + 1},}}")
DEEP = 50  # levels that no file of ours has; the parser gives up far below
SHOWN = 6  # parts of a path that goes on and on
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class _Repeated(dict[str, Any]):
    """A JSON object that names a field more than once; readers disagree on which one counts."""

    name = ""


def read_document(path: Path, form: str = "") -> dict[str, Any]:
    """A JSON or TOML file as a table; unless `form` says which, a name that ends in .toml does."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    return parse_document(text, form or ("TOML" if path.suffix == ".toml" else "JSON"), str(path))


def parse_document(text: str, form: str, source: str) -> dict[str, Any]:
    """`form` is "TOML" or "JSON"; `source` names the text in errors."""
    if text.startswith("\ufeff"):
        raise ConfigError(source, "begins with a byte order mark; save it as UTF-8 without one")
    try:
        raw = tomllib.loads(text) if form == "TOML" else json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        where = _where(source, _json_path(text, None) if form == "JSON" else "")
        raise ConfigError(where, f"is nested too deeply to be read as {form}") from None
    except ValueError as error:
        number = _LONG_NUMBER.search(text)
        if number is None or isinstance(error, json.JSONDecodeError | tomllib.TOMLDecodeError):
            raise ConfigError(source, f"is not {form}: {error}") from None
        where = _where(source, _json_path(text, number.start()) if form == "JSON" else "")
        line = text.count("\n", 0, number.start()) + 1
        raise ConfigError(where, f"line {line} has a number of more than {MOST_DIGITS} digits") from None
    if form == "JSON":  # TOML's own parser refuses it
        _refuse_repeated(raw, source)
    if not isinstance(raw, dict):
        raise ConfigError(source, "must be a table of named values")
    return raw


def _where(source: str, path: str) -> str:
    return f"{source}: {path}" if path else source


def _json_path(text: str, position: int | None) -> str:
    """The field at a position, or without one where nesting is DEEP: for what the parser refuses without a path."""
    path: list[str | int] = []
    key = ""
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        if len(path) > DEEP or (position is not None and match.end() > position):
            break
        if token in ("{", "["):
            path.append("" if token == "{" else 0)
        elif token in ("}", "]"):
            del path[-1:]
        elif token == ":" and path:
            path[-1] = key
        elif token == "," and path and isinstance(path[-1], int):
            path[-1] += 1
        key = token[1:-1]
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[:SHOWN])
    return shown.removeprefix(".") + ("..." if len(path) > SHOWN else "")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    repeated = _Repeated(made)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            repeated.name = name
        seen.add(name)
    return repeated


def _refuse_repeated(raw: object, source: str) -> None:
    """Without recursion: what could be parsed may still be deep."""
    waiting: list[tuple[object, str]] = [(raw, "")]
    while waiting:
        value, path = waiting.pop()
        inside = f"{path}." if path else ""
        if isinstance(value, _Repeated):
            raise ConfigError(f"{source}: {inside}{value.name}", "is given more than once; keep only one of them")
        if isinstance(value, dict):
            waiting.extend((inner, f"{inside}{name}") for name, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((inner, f"{path}[{number}]") for number, inner in enumerate(value))
