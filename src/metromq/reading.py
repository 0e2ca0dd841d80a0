"""The one way to read typed data: tables of values become frozen dataclasses, and every problem names its field.

The types say what is allowed: `int`, `float`, `str`, `bool`, `Path`, `Literal`, `X | None`, `tuple[X, ...]`, pairs as
`tuple[X, Y]`, `Mapping[str, X]`, dataclasses inside dataclasses, and `Annotated` with bounds. What no type can say, a
class says in `problems`. Files, the environment and other brokers give us what they like, so nothing here may raise
anything but ConfigError.
"""

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from metromq.constraints import SHOWN, shown
from metromq.errors import ConfigError

T = TypeVar("T")

# What has no bounds of its own has these: beyond them clocks, files and solvers fail in ways that name no field.
MOST_WHOLE = (1 << 63) - 1
MOST_NUMBER = 1e15


@runtime_checkable
class SelfChecking(Protocol):
    """A section with rules that join several fields; each problem names the field to change."""

    def problems(self) -> Iterator[tuple[str, str]]: ...


class _Invalid:
    """Stands for a value whose problem has been noted."""


INVALID = _Invalid()


def read_data(kind: type[T], raw: object, source: str = "", ignore_unknown: bool = False) -> T:
    """`raw`, as TOML or JSON gave it, as a `kind`; raises one ConfigError that tells every problem.

    `source` is put before every field's name. With `ignore_unknown` fields that this version does not know are left
    out, so that programs of different versions understand each other.
    """
    reader = Reader(source, ignore_unknown)
    built = reader.build(kind, raw, "")
    raise_problems(reader.problems, source)
    assert isinstance(built, kind)
    return built


def raise_problems(problems: list[ConfigError], source: str = "") -> None:
    """One error for all of them."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ConfigError(source or "configuration", f"{len(problems)} problems:{listed}")


def meant(word: str, known: Iterable[str], listed: str = "use one of") -> str:
    """A hint for a misspelt word: the nearest known one, or the first of them when none is near."""
    choices = sorted(known)
    near = difflib.get_close_matches(word, choices, n=1) if len(word) < 100 else []
    if near:
        return f"did you mean {near[0]}?"
    return f"{listed} {', '.join(choices[:30])}{' ...' if len(choices) > 30 else ''}" if choices else "there are none"


@cache
def hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _needed(kind: type) -> tuple[str, ...]:
    """Fields without a default."""

    def has_default(field: Field[Any]) -> bool:
        return field.default is not MISSING or field.default_factory is not MISSING

    return tuple(field.name for field in fields(kind) if not has_default(field))


@cache
def _checks_itself(kind: type) -> bool:
    return issubclass(kind, SelfChecking)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


class Reader:
    """Builds a value of a type and notes every problem on the way."""

    unknown = "unknown field"
    listed = "the fields are"

    def __init__(self, source: str = "", ignore_unknown: bool = False) -> None:
        self.problems: list[ConfigError] = []
        self._source = source
        self._ignore_unknown = ignore_unknown

    def note(self, path: str, problem: str) -> None:
        self.problems.append(ConfigError(self.where(path), problem))

    def where(self, path: str) -> str:
        if not self._source:
            return path or "settings"
        return f"{self._source}: {path}" if path else self._source

    def refuse(self, path: str, problem: str) -> _Invalid:
        self.note(path, problem)
        return INVALID

    def build(self, hint: Any, raw: Any, path: str) -> Any:
        """`raw` as a value of the type `hint`, or INVALID after noting why not."""
        if hint in _WORDS:
            return self.scalar(hint, raw, path)
        if raw is INVALID:
            return raw
        origin = get_origin(hint)
        if origin is Annotated:
            return self._constrained(hint, raw, path)
        if origin in (Union, types.UnionType):
            inner = next(choice for choice in get_args(hint) if choice is not types.NoneType)
            return None if raw is None else self.build(inner, raw, path)
        if origin is Literal:
            return self._choice(get_args(hint), raw, path)
        if origin is tuple:
            return self._list(get_args(hint), raw, path)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(get_args(hint)[1], raw, path)
        assert is_dataclass(hint)
        assert isinstance(hint, type)
        return self._section(hint, raw, path)

    def _constrained(self, hint: Any, raw: Any, path: str) -> Any:
        inner, *constraints = get_args(hint)
        value = self.build(inner, raw, path)
        if value is not INVALID:
            for constraint in constraints:
                problem = constraint.problem(value)
                if problem:
                    return self.refuse(path, problem)
        return value

    def _choice(self, choices: tuple[Any, ...], raw: Any, path: str) -> Any:
        if any(raw == choice and type(raw) is type(choice) for choice in choices):
            return raw
        return self.refuse(path, f"must be one of {', '.join(map(str, choices))}, not {shown(raw)}")

    def _list(self, items: tuple[Any, ...], raw: Any, path: str) -> Any:
        if not isinstance(raw, list | tuple):
            return self.refuse(path, f"must be a list, not {shown(raw)}")
        if items[-1] is not ...:
            if len(raw) != len(items):
                return self.refuse(path, f"must be a list of {len(items)} values, and has {len(raw)}")
            built = [self.build(item, raw[number], f"{path}[{number}]") for number, item in enumerate(items)]
        else:
            built = [self.build(items[0], value, f"{path}[{number}]") for number, value in enumerate(raw)]
        return INVALID if INVALID in built else tuple(built)

    def _mapping(self, item: Any, raw: Any, path: str) -> Any:
        if not isinstance(raw, Mapping):
            return self.refuse(path, f"must be a table, not {shown(raw)}")
        inside = f"{path}." if path else ""
        built = {name: self.build(item, value, f"{inside}{name}") for name, value in raw.items()}
        return INVALID if INVALID in built.values() else built

    def _section(self, kind: type, raw: Any, path: str) -> Any:
        if isinstance(raw, kind):
            raw = {field.name: getattr(raw, field.name) for field in fields(raw)}  # type: ignore[arg-type]
        if not isinstance(raw, Mapping):
            return self.refuse(path, f"must be a table, not {shown(raw)}")
        hints = hints_of(kind)
        inside = f"{path}." if path else ""
        if not self._ignore_unknown:
            for name in raw:
                if name not in hints:
                    self.note(f"{inside}{shorten(name)}", f"{self.unknown}; {meant(name, hints, self.listed)}")
        values: dict[str, Any] = {}
        for name, hint in hints.items():
            if name in raw:
                value = raw[name]
                if hint is not int or type(value) is not int or not -MOST_WHOLE <= value <= MOST_WHOLE:
                    value = self.build(hint, value, inside + name)  # counts are most of all data, and need no more
                values[name] = value
        missing = [name for name in _needed(kind) if name not in values]
        for name in missing:
            self.note(f"{inside}{name}", "is missing and has no default")
        if missing or INVALID in values.values():
            return INVALID
        built = kind(**values)
        if _checks_itself(kind):
            for name, problem in built.problems():
                self.note(f"{inside}{name}", problem)
        return built

    def scalar(self, hint: Any, raw: Any, path: str) -> Any:
        given = type(raw)
        if raw is INVALID:
            return raw
        if given is bool and hint is not bool:
            pass
        elif hint is str and given is str:
            return raw if raw.isascii() or _is_unicode(raw) else self.refuse(path, "holds half a character (surrogate)")
        elif hint is Path and isinstance(raw, str | Path) and str(raw):
            return self.path(str(raw), path)
        elif hint is int and (isinstance(raw, int) or (isinstance(raw, float) and raw.is_integer())):
            return int(raw) if -MOST_WHOLE <= raw <= MOST_WHOLE else self._beyond(raw, MOST_WHOLE, path)
        elif hint is float and isinstance(raw, int | float):
            return self._number(raw, path)
        elif given is hint:
            return raw
        return self.refuse(path, f"must be {_WORDS[hint]}, not {shown(raw)}")

    def _number(self, raw: float, path: str) -> Any:
        if -MOST_NUMBER <= raw <= MOST_NUMBER:
            return float(raw)
        if raw != raw or raw in (float("inf"), float("-inf")):
            return self.refuse(path, f"must be a finite number, not {raw}")
        return self._beyond(raw, MOST_NUMBER, path)

    def _beyond(self, raw: float, most: float, path: str) -> Any:
        limit = f"at most {shown(most)}" if raw > 0 else f"at least {shown(-most)}"
        return self.refuse(path, f"must be {limit}, not {shown(raw)}")

    def path(self, raw: str, path: str) -> Any:
        if "\0" in raw or not _is_unicode(raw):
            return self.refuse(path, f"must be a path, not {shown(raw)}")
        return Path(raw)


def shorten(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
