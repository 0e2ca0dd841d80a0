"""Fills a tree of frozen dataclasses from TOML and the environment, and collects every problem on the way."""

import difflib
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
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

from metromq.constraints import Range, ReadableFile
from metromq.errors import ConfigError

__all__ = ["Range", "ReadableFile", "check_settings", "meant", "read_settings"]

T = TypeVar("T")


@runtime_checkable
class SelfChecking(Protocol):
    """A section with rules that join several fields; each problem names the field to change."""

    def problems(self) -> Iterator[tuple[str, str]]: ...


class _Invalid:
    """Stands for a value whose problem has been noted."""


_INVALID = _Invalid()


def read_settings(
    kind: type[T], file: Path | None, environ: Mapping[str, str], prefix: str, ignored: Iterable[str] = ()
) -> tuple[T | None, list[ConfigError]]:
    """The tree, or None with the problems that stand in its way.

    A field `a.b` is overridden by the variable `<prefix>A__B`. Variables that begin with one of `ignored` belong to
    someone else, and so do those that look like no setting at all; a likely misspelling is a problem.
    """
    reader = _Reader(file)
    raw = reader.toml()
    if raw is not None:
        reader.overlay(kind, raw, environ, prefix, tuple(ignored))
        built = reader.build(kind, raw, "")
        if isinstance(built, kind) and not reader.problems:
            return built, []
    return None, reader.problems


def check_settings(settings: object) -> list[ConfigError]:
    """The problems of a tree that a program built itself."""
    reader = _Reader(None)
    reader.build(type(settings), settings, "")
    return reader.problems


def meant(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known one, or all of them when none is near."""
    choices = sorted(known)
    near = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean {near[0]}?" if near else f"the settings here are {', '.join(choices)}"


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _plain(hint: Any) -> Any:
    """The hint without `Annotated` and `| None`."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(next(choice for choice in get_args(hint) if choice is not types.NoneType))
    return hint


class _Reader:
    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.problems: list[ConfigError] = []
        self.variables: dict[str, str] = {}

    def note(self, path: str, problem: str) -> None:
        self.problems.append(ConfigError(self._where(path), problem))

    def _where(self, path: str) -> str:
        for name, variable in self.variables.items():
            if path == name or path.startswith((name + ".", name + "[")):
                return f"environment variable {variable}" + (f" ({path})" if path != name else "")
        place = path or "settings"
        return f"{self.file}: {place}" if self.file else place

    def toml(self) -> dict[str, Any] | None:
        if self.file is None:
            return {}
        try:
            return tomllib.loads(self.file.read_text(encoding="utf-8"))
        except OSError as error:
            self.problems.append(ConfigError(str(self.file), f"cannot be read: {error.strerror or error}"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.problems.append(ConfigError(str(self.file), f"is not TOML: {error}"))
        return None

    def overlay(
        self, kind: type, raw: dict[str, Any], environ: Mapping[str, str], prefix: str, ignored: tuple[str, ...]
    ) -> None:
        """Puts the environment's values in the place of the file's."""
        targets = dict(_leaves(kind, prefix))
        for variable in sorted(environ):
            if not variable.startswith(prefix) or variable.startswith(ignored):
                continue
            if variable not in targets:
                if "__" in variable or _is_near(variable, targets, prefix):
                    where = f"environment variable {variable}"
                    self.problems.append(ConfigError(where, f"is not a setting; {meant(variable, targets)}"))
                continue
            path, hint = targets[variable]
            self.variables[".".join(path)] = variable
            table = raw
            for name in path[:-1]:
                inner = table.setdefault(name, {})
                table = inner if isinstance(inner, dict) else {}
            table[path[-1]] = self._from_text(hint, environ[variable], ".".join(path))

    def _from_text(self, hint: Any, text: str, path: str) -> Any:
        """What TOML would have given for this text; text that does not fit stays text and fails later as such."""
        wanted = _plain(hint)
        if not text and wanted is not str:
            return None
        if wanted is bool:
            return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
        if get_origin(wanted) is Literal:
            return next((choice for choice in get_args(wanted) if str(choice) == text), text)
        if wanted in (int, float):
            try:
                return wanted(text.replace("_", ""))
            except ValueError:
                return text
        if get_origin(wanted) is tuple:
            try:
                return tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError as error:
                self.note(path, f"is not a TOML array: {error}")
                return _INVALID
        return text

    def build(self, hint: Any, raw: Any, path: str) -> Any:
        """`raw` as a value of the type `hint`, or `_INVALID` after noting why not."""
        if raw is _INVALID:
            return raw
        origin = get_origin(hint)
        if origin is Annotated:
            return self._constrained(hint, raw, path)
        if origin in (Union, types.UnionType):
            inner = [choice for choice in get_args(hint) if choice is not types.NoneType]
            return None if raw is None else self.build(inner[0], raw, path)
        if origin is Literal:
            return self._choice(get_args(hint), raw, path)
        if origin is tuple:
            return self._list(get_args(hint)[0], raw, path)
        if is_dataclass(hint):
            assert isinstance(hint, type)
            return self._section(hint, raw, path)
        return self._scalar(hint, raw, path)

    def _constrained(self, hint: Any, raw: Any, path: str) -> Any:
        inner, *constraints = get_args(hint)
        value = self.build(inner, raw, path)
        if value is not _INVALID:
            for constraint in constraints:
                problem = constraint.problem(value)
                if problem:
                    self.note(path, problem)
                    return _INVALID
        return value

    def _choice(self, choices: tuple[Any, ...], raw: Any, path: str) -> Any:
        if any(raw == choice and type(raw) is type(choice) for choice in choices):
            return raw
        self.note(path, f"must be one of {', '.join(map(str, choices))}, not {_shown(raw)}")
        return _INVALID

    def _list(self, item: Any, raw: Any, path: str) -> Any:
        if not isinstance(raw, list | tuple):
            self.note(path, f"must be a list, not {_shown(raw)}")
            return _INVALID
        built = [self.build(item, value, f"{path}[{number}]") for number, value in enumerate(raw)]
        return _INVALID if _INVALID in built else tuple(built)

    def _section(self, kind: type, raw: Any, path: str) -> Any:
        if isinstance(raw, kind):
            raw = {field.name: getattr(raw, field.name) for field in fields(raw)}  # type: ignore[arg-type]
        if not isinstance(raw, dict):
            self.note(path, f"must be a table, not {_shown(raw)}")
            return _INVALID
        hints = _hints(kind)
        inside = f"{path}." if path else ""
        for name in raw:
            if name not in hints:
                self.note(f"{inside}{name}", f"is not a setting; {meant(name, hints)}")
        values = {name: self.build(hints[name], raw[name], f"{inside}{name}") for name in hints if name in raw}
        for field in fields(kind):
            if field.name not in raw and field.default is MISSING and field.default_factory is MISSING:
                self.note(f"{inside}{field.name}", "is missing and has no default")
                return _INVALID
        if any(value is _INVALID for value in values.values()):
            return _INVALID
        built = kind(**values)
        if isinstance(built, SelfChecking):
            for name, problem in built.problems():
                self.note(f"{inside}{name}", problem)
        return built

    def _scalar(self, hint: Any, raw: Any, path: str) -> Any:
        if hint is Path and isinstance(raw, str | Path) and str(raw):
            # A path in a file is relative to that file, so that a broker may be started from anywhere.
            at_home = self.file is not None and not any(
                path == name or path.startswith(name + "[") for name in self.variables
            )
            return self.file.parent / raw if self.file is not None and at_home else Path(raw)
        if hint is float and type(raw) is int:
            return float(raw)
        if hint is not Path and type(raw) is hint:
            return raw
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
        self.note(path, f"must be {words[hint]}, not {_shown(raw)}")
        return _INVALID


def _is_near(variable: str, known: Iterable[str], prefix: str) -> bool:
    names = [name.removeprefix(prefix) for name in known]
    return bool(difflib.get_close_matches(variable.removeprefix(prefix), names, n=1, cutoff=0.75))


def _shown(raw: Any) -> str:
    if raw is None:
        return "nothing"
    if isinstance(raw, bool):
        return str(raw).lower()
    return f'"{raw}"' if isinstance(raw, str) else "a table" if isinstance(raw, dict) else str(raw)


def _leaves(kind: type, prefix: str, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[tuple[str, ...], Any]]]:
    """Each field that a variable may set: the variable's name, the field's path and its type."""
    for name, hint in _hints(kind).items():
        inner = _plain(hint)
        here = (*path, name)
        if is_dataclass(inner):
            assert isinstance(inner, type)
            yield from _leaves(inner, prefix, here)
        else:
            yield prefix + "__".join(here).upper(), (here, hint)
