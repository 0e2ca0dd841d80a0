"""Finds files with secrets, and journals with everybody's messages, that other users of the machine can read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_IROTH, S_ISDIR, S_IXOTH

from metromq.config import Config


@dataclass(frozen=True, slots=True)
class Exposed:
    """What lies open, and the command that closes it."""

    what: str
    path: Path
    remedy: str


def exposed(config: Config, of_city: Iterable[tuple[str, Path]] = ()) -> Iterator[Exposed]:
    """`of_city`: what the broker's city keeps secret, and where (`city_file.secret_places`)."""
    for what, path in (*_secrets(config), *of_city):
        if path is not None and is_open(path):
            recursively = "-R " if path.is_dir() else ""
            yield Exposed(what, path, f"chmod {recursively}o-rwx {path}")


def _secrets(config: Config) -> Iterator[tuple[str, Path | None]]:
    yield "the password file", config.auth.password_file
    yield "the SCRAM file", config.auth.scram_file
    yield "the ACL file", config.auth.acl_file
    for listener in config.listeners:
        yield "a private key", listener.key_file
    for part in ("journal", "telemetry"):
        yield f"the {part} in the data directory", config.data_dir / part


def is_open(path: Path) -> bool:
    """Whether anybody may read it, and may come as far as to it; a directory need only be passed through."""
    try:
        path = path.resolve(strict=True)
        mode = path.stat().st_mode
        wanted = S_IXOTH if S_ISDIR(mode) else S_IROTH
        return bool(mode & wanted) and all(above.stat().st_mode & S_IXOTH for above in path.parents)
    except OSError:  # it is not there, or not for this user either
        return False
