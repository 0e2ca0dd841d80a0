"""Where files are: a directory, or a place in an object store, through the few operations that the pipeline needs.

Paths are relative to the store's root, with `/` between their parts. A file that is put is whole or not there.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from pyarrow import BufferOutputStream, fs

from metromq.errors import UsageError
from metromq.files import UNFINISHED, replace_file, replacing, sync_directory

S = TypeVar("S")
T = TypeVar("T")

# What a store is told by the environment; workers of a cluster get it with their tasks.
_SETTINGS: Final = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
    ),
    "abfs": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ENDPOINT"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "hdfs": (),
    "file": (),
}
_NEEDED: Final = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "abfs": ("AZURE_STORAGE_ACCOUNT_KEY",),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS",),
}
_ALLOWANCES: Final = (("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"), ("AZURE_STORAGE_ENDPOINT", "azure_allow_http"))
_BUCKETS: Final = ("s3", "abfs", "gs")  # whose addresses begin with the name of one
_ALSO: Final = {"s3a": "s3", "abfss": "abfs", "gcs": "gs"}  # other names of the same
_AT_ONCE: Final = 8  # requests
_SECONDS: Final = 20.0  # for one request of the file layer


def is_uri(root: str) -> bool:
    return "://" in root


def absolute(root: str | Path) -> str:
    """The same place, wherever the process that hears of it works."""
    text = str(root)
    if not is_uri(text):
        return os.path.abspath(text)
    scheme, rest = text.split("://", 1)
    return f"{scheme}://{rest.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    size: int
    changed_s: float  # since 1970


class Store:
    """A place in an object store. Its files are seen when they are complete, and durable then."""

    local = False

    def __init__(self, root: str, system: fs.FileSystem, base: str, settings: Mapping[str, str]) -> None:
        self.root = root
        self._system = system
        self._base = base.rstrip("/")
        self._settings = dict(settings)

    def __reduce__(self) -> tuple[Any, ...]:
        """Workers open the store anew, with the settings of the process that sent them there."""
        return store_at, (self.root, self._settings)

    def inside(self, folder: str) -> "Store":
        return type(self)(self.at(folder), self._system, self._where(folder), self._settings)

    def at(self, path: str) -> str:
        """The address of a file, for others."""
        return f"{self.root}/{path}"

    @property
    def tree(self) -> fs.FileSystem:
        """As Arrow's datasets want it, with paths from the root on."""
        return fs.SubTreeFileSystem(self._base, self._system)

    @property
    def delta_options(self) -> dict[str, str]:
        """As deltalake wants it."""
        options = dict(self._settings)
        for name, permission in _ALLOWANCES:
            if options.get(name, "").startswith("http://"):
                options[permission] = "true"
        if "AZURE_STORAGE_ENDPOINT" in options:  # Arrow adds the account itself
            account = _azure_account(self.root, options)
            options["AZURE_STORAGE_ENDPOINT"] = _origin(options["AZURE_STORAGE_ENDPOINT"]) + f"/{account}"
        return options

    def _where(self, path: str) -> str:
        return f"{self._base}/{path}".rstrip("/")

    def read(self, path: str) -> bytes:
        with self._system.open_input_stream(self._where(path)) as source:
            content = source.read()
        assert isinstance(content, bytes)
        return content

    def open(self, path: str) -> Any:
        """For random access; close it."""
        return self._system.open_input_file(self._where(path))

    def put(self, path: str, content: bytes) -> None:
        """In place of what was there, in one step."""
        with self._system.open_output_stream(self._where(path)) as out:
            out.write(content)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """A file to write, which is there when the block ends well; it is kept in memory until then."""
        buffer = BufferOutputStream()
        yield buffer
        self.put(path, buffer.getvalue())

    @contextmanager
    def appending(self, path: str) -> Iterator[Any]:
        """As `writing`, for large files that nobody knows of before their writer tells: half of one may be left."""
        with self._system.open_output_stream(self._where(path)) as out:
            yield out

    def files(self, folder: str = "") -> list[StoredFile]:
        """All files below a folder; none if it is not there."""
        selector = fs.FileSelector(self._where(folder), recursive=True, allow_not_found=True)
        return [self._described(info) for info in self._system.get_file_info(selector) if info.is_file]

    def folders(self, folder: str = "") -> list[str]:
        """The names of the folders in a folder."""
        selector = fs.FileSelector(self._where(folder), allow_not_found=True)
        found = self._system.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Of files; None: it is not there."""
        found = self._system.get_file_info([self._where(path) for path in paths])
        return [info.size if info.is_file else None for info in found]

    def _described(self, info: fs.FileInfo) -> StoredFile:
        changed = (info.mtime_ns or 0) / 1e9
        return StoredFile(info.path.removeprefix(self._base).lstrip("/"), info.size, changed)

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """The same work on several files, some at a time: a store far away answers late, but many at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [*pool.map(work, items)]

    def move(self, source: str, target: str) -> None:
        try:
            self._system.move(self._where(source), self._where(target))
        except NotImplementedError:  # Azure without a hierarchical namespace; a kill in between leaves both
            self.put(target, self.read(source))
            self.remove(source)

    def remove(self, path: str) -> None:
        """One that is gone already is no error."""
        try:
            self._system.delete_file(self._where(path))
        except FileNotFoundError:
            pass

    def remove_folder(self, folder: str) -> None:
        try:
            self._system.delete_dir(self._where(folder))
        except FileNotFoundError:
            pass

    def remove_unfinished(self, folder: str) -> None:
        """What killed writers left in a folder: nothing, here."""

    def sync(self, folder: str, paths: Sequence[str]) -> None:
        """Make files and their names durable that another program put into a folder: here they are already."""

    def exists(self) -> bool:
        """Whether anything was ever put there."""
        return bool(self._system.get_file_info(self._base).type != fs.FileType.NotFound)

    def check(self) -> Self:
        """Itself, if it can be reached; else the error says what is missing."""
        bucket = self._base.split("/", 1)[0] or "/"
        try:
            info = self._system.get_file_info(bucket)
        except OSError as error:
            hint = _hint(self.root, self._settings)
            raise UsageError(f"cannot reach {self.root}: {_first_line(error)}{hint}") from error
        if info.type == fs.FileType.NotFound:
            raise UsageError(f"cannot use {self.root}: there is no {bucket!r}; create it first")
        return self


class LocalStore(Store):
    """A directory. Files are written under another name, synced and renamed."""

    local = True

    def put(self, path: str, content: bytes) -> None:
        replace_file(self._ready(path), content)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        with replacing(self._ready(path)) as out:
            yield out

    appending = writing

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        return [work(item) for item in items]

    def move(self, source: str, target: str) -> None:
        self._ready(target)
        super().move(source, target)

    def _ready(self, path: str) -> Path:
        """The path, in a directory that is there, and whose name survives a power cut."""
        target = Path(self._where(path))
        missing = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_directory(folder.parent)
        return target

    def remove_unfinished(self, folder: str) -> None:
        for path in Path(self._where(folder)).glob(f".*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    def sync(self, folder: str, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                sync_file(Path(self._where(folder), path))
            except FileNotFoundError:
                pass  # removed since, which is as good
        sync_directory(Path(self._where(folder)))

    def check(self) -> Self:
        """What is not there yet can be made below a directory."""
        place = Path(self._base)
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise UsageError(f"cannot use {self.root}: {place} is a file")
        return self


def sync_file(path: Path) -> None:
    """Any process may make durable what any other wrote."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def store_at(root: str | Path, settings: Mapping[str, str] | None = None) -> Store:
    """The store at a path or a URI; `settings` are those of the environment unless they are given."""
    place = absolute(root)
    if not is_uri(place):
        _demand_no_scheme(str(root))
        return LocalStore(place, fs.LocalFileSystem(), place, {})
    scheme, rest = place.split("://", 1)
    scheme = _ALSO.get(scheme, scheme)
    if scheme not in _SETTINGS:
        known_schemes = ", ".join(f"{name}://" for name in _SETTINGS)
        raise UsageError(f"cannot use {place}: a lake is at a path, or at {known_schemes}")
    place = f"{scheme}://{rest}"
    known = settings if settings is not None else _from_environment(scheme)
    if scheme == "file":
        return LocalStore(place, fs.LocalFileSystem(), urlsplit(place).path, {})
    files, base = _file_system(place, scheme, known)
    return Store(place, files, base, known)


def _demand_no_scheme(path: str) -> None:
    """Whoever writes one slash too few must not get a directory with the name of an object store."""
    scheme, colon, _ = path.partition(":")
    if colon and (scheme in _SETTINGS or scheme in _ALSO):
        raise UsageError(f"cannot use {path}: an address begins with {scheme}://")


def _from_environment(scheme: str) -> dict[str, str]:
    return {name: os.environ[name] for name in _SETTINGS[scheme] if os.environ.get(name)}


def _file_system(place: str, scheme: str, known: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    _demand_settings(place, scheme, known)
    try:
        if scheme == "s3":
            return _s3(known), place.removeprefix("s3://")
        if scheme == "abfs":
            return _azure(place, known)
        if scheme == "gs":
            return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=_SECONDS)), place.removeprefix("gs://")
        files, base = fs.FileSystem.from_uri(place)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot use {place}: {_first_line(error)}{_hint(place, known)}") from error
    return files, base


def _demand_settings(place: str, scheme: str, known: Mapping[str, str]) -> None:
    """What Azure's and Google's libraries do not find they look for elsewhere, for minutes, or end the process."""
    if scheme in _BUCKETS and not urlsplit(place).hostname:
        raise UsageError(f"cannot use {place}: it names no bucket, {scheme}://BUCKET/lake")
    missing = [name for name in _NEEDED.get(scheme, ()) if name not in known]
    if scheme in ("abfs", "gs") and missing:
        raise UsageError(f"cannot use {place}{_hint(place, known)}")
    if scheme == "gs" and not os.path.isfile(known["GOOGLE_APPLICATION_CREDENTIALS"]):
        raise UsageError(
            f"cannot use {place}: GOOGLE_APPLICATION_CREDENTIALS names no file:"
            f" {known['GOOGLE_APPLICATION_CREDENTIALS']}"
        )


def _s3(known: Mapping[str, str]) -> fs.S3FileSystem:
    # Checksums of checksums make writes 5 to 17 times as long; TLS and Parquet have their own.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    return fs.S3FileSystem(
        access_key=known.get("AWS_ACCESS_KEY_ID"),
        secret_key=known.get("AWS_SECRET_ACCESS_KEY"),
        session_token=known.get("AWS_SESSION_TOKEN"),
        region=known.get("AWS_REGION") or known.get("AWS_DEFAULT_REGION"),
        endpoint_override=known.get("AWS_ENDPOINT_URL"),
        connect_timeout=_SECONDS,
        request_timeout=_SECONDS,
        allow_delayed_open=True,  # a small file is one request
    )


def _azure(place: str, known: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """abfs://container@account.dfs.core.windows.net/path, or abfs://container/path with the account's name apart."""
    parts = urlsplit(place)
    account = _azure_account(place, known)
    if not account:
        raise ValueError("it names no storage account: abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/lake")
    elsewhere = urlsplit(known.get("AZURE_STORAGE_ENDPOINT", ""))
    options: dict[str, str] = {}
    if elsewhere.netloc:
        for service in ("blob_storage", "dfs_storage"):
            options |= {f"{service}_authority": elsewhere.netloc, f"{service}_scheme": elsewhere.scheme}
    files = fs.AzureFileSystem(account, account_key=known["AZURE_STORAGE_ACCOUNT_KEY"], **options)
    return files, f"{parts.username or parts.hostname}{parts.path}"


def _azure_account(place: str, known: Mapping[str, str]) -> str:
    parts = urlsplit(place)
    return (parts.hostname or "").split(".")[0] if parts.username else known.get("AZURE_STORAGE_ACCOUNT_NAME", "")


def _origin(address: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _hint(place: str, known: Mapping[str, str]) -> str:
    """What the environment does not say, and what it should."""
    scheme = place.split("://", 1)[0]
    missing = [name for name in _NEEDED.get(scheme, ()) if name not in known]
    said = f"; not set in the environment: {', '.join(missing)}" if missing else ""
    if scheme == "s3" and "AWS_ENDPOINT_URL" not in known:
        said += "; for a store that is not Amazon's, set AWS_ENDPOINT_URL"
    if scheme == "hdfs":
        said += (
            "; Arrow needs Hadoop's libhdfs and its classes: set HADOOP_HOME (or ARROW_LIBHDFS_DIR), JAVA_HOME and"
            " CLASSPATH=$(hadoop classpath --glob)"
        )
    return said
