"""Settings of a process: a TOML file with the environment's overrides, read as a tree of frozen dataclasses."""

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from metromq.documents import parse_document, read_document
from metromq.errors import ConfigError
from metromq.reading import INVALID, Reader, hints_of, meant

T = TypeVar("T")


def read_settings(
    kind: type[T], file: Path | None, environ: Mapping[str, str], prefix: str, ignored: Iterable[str] = ()
) -> tuple[T | None, list[ConfigError]]:
    """The tree, or None with the problems that stand in its way.

    A field `a.b` is overridden by the variable `<prefix>A__B`. Variables that begin with one of `ignored` belong to
    someone else, and so do those that look like no setting at all; a likely misspelling is a problem.
    """
    reader = _SettingsReader(file)
    try:
        raw = read_document(file, "TOML") if file is not None else {}
    except ConfigError as error:
        return None, [error]
    reader.overlay(kind, raw, environ, prefix, tuple(ignored))
    built = reader.build(kind, raw, "")
    if isinstance(built, kind) and not reader.problems:
        return built, []
    return None, reader.problems


def check_settings(settings: object) -> list[ConfigError]:
    """The problems of a tree that a program built itself."""
    reader = _SettingsReader(None)
    reader.build(type(settings), settings, "")
    return reader.problems


def _plain(hint: Any) -> Any:
    """The hint without `Annotated` and `| None`."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(next(choice for choice in get_args(hint) if choice is not types.NoneType))
    return hint


class _SettingsReader(Reader):
    """Knows which values came from the environment: they are named after their variable."""

    unknown = "is not a setting"
    listed = "the settings here are"

    def __init__(self, file: Path | None) -> None:
        super().__init__(str(file) if file is not None else "")
        self._file = file
        self._variables: dict[str, str] = {}

    def where(self, path: str) -> str:
        for name, variable in self._variables.items():
            if path == name or path.startswith((name + ".", name + "[")):
                return f"environment variable {variable}" + (f" ({path})" if path != name else "")
        return super().where(path)

    def path(self, raw: str, path: str) -> Any:
        """A path in a file is relative to that file, so that a broker may be started from anywhere."""
        built = super().path(raw, path)
        is_ours = any(path == name or path.startswith(name + "[") for name in self._variables)
        if built is INVALID or self._file is None or is_ours:
            return built
        return self._file.parent / built

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
                    self.problems.append(ConfigError(where, f"{self.unknown}; {meant(variable, targets, self.listed)}"))
                continue
            path, hint = targets[variable]
            self._variables[".".join(path)] = variable
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
                return parse_document(f"value = {text}", "TOML", path)["value"]
            except ConfigError as error:
                return self.refuse(path, f"is not a TOML array: {error.problem}")
        return text


def _is_near(variable: str, known: Iterable[str], prefix: str) -> bool:
    names = [name.removeprefix(prefix) for name in known]
    if len(variable) > 100:
        return False
    return bool(difflib.get_close_matches(variable.removeprefix(prefix), names, n=1, cutoff=0.75))


def _leaves(kind: type, prefix: str, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[tuple[str, ...], Any]]]:
    """Each field that a variable may set: the variable's name, the field's path and its type."""
    for name, hint in hints_of(kind).items():
        inner = _plain(hint)
        here = (*path, name)
        if is_dataclass(inner):
            assert isinstance(inner, type)
            yield from _leaves(inner, prefix, here)
        else:
            yield prefix + "__".join(here).upper(), (here, hint)
