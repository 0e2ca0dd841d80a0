"""Asks a manager over HTTP: where it is and its token are in the data directory, or are given."""

import http.client
import json
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from metromq.control.data_directory import lives
from metromq.errors import MetroError, UsageError

FOLDER = "manager"
PLACE_FILE = "manager.json"
TOKEN_FILE = "token"
PATIENCE_S = 330.0  # longer than the longest wait for a plan


class ManagerSays(UsageError):
    """The manager refuses, with its reason."""


class NoManager(MetroError):
    """No manager answers."""


def manager_directory(data: Path) -> Path:
    return data / FOLDER


@dataclass(frozen=True, slots=True)
class ManagerDoor:
    url: str
    token: str
    author: str = ""

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float = PATIENCE_S, **query: Any) -> Any:
        """The answer as JSON has it; raises NoManager or ManagerSays."""
        with self._asked(method, path, body, timeout_s, query) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def stream(self, path: str, **query: Any) -> Iterator[bytes]:
        with self._asked("GET", path, None, None, query) as answer:
            while data := answer.read1(1 << 16):
                yield data

    @contextmanager
    def _asked(
        self, method: str, path: str, body: Any, timeout_s: float | None, query: Mapping[str, Any]
    ) -> Iterator[http.client.HTTPResponse]:
        place = urlsplit(self.url)
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        connection = kind(place.hostname or "", place.port, timeout=timeout_s)
        words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        target = f"/v1{path}" + (f"?{urlencode(words)}" if words else "")
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        headers |= {"X-Author": self.author} if self.author else {}
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ManagerSays(_reason(answer))
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise NoManager(f"the manager at {self.url} does not answer: {error}") from error
        finally:
            connection.close()


def _reason(answer: http.client.HTTPResponse) -> str:
    text = answer.read().decode(errors="replace")
    try:
        said = json.loads(text)
        extra = said.get("extra")
        return f"{said['detail']}{f' {extra}' if extra else ''}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return text or f"the manager answers {answer.status}"


def find_manager(data: Path, url: str | None = None, token_file: Path | None = None) -> ManagerDoor | None:
    """The manager that runs in the data directory, or the one that is named; None: none runs there."""
    folder = manager_directory(data)
    if url is None:
        try:
            place = json.loads((folder / PLACE_FILE).read_text())
            url, pid = str(place["url"]), int(place["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not lives(pid):
            return None
    file = token_file or folder / TOKEN_FILE
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; name the token's file with --token-file") from None
    return ManagerDoor(url, token, _user())


def _user() -> str:
    """Who gives the command; the environment may not say it, or not truly."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def need_manager(data: Path, url: str | None = None, token_file: Path | None = None) -> ManagerDoor:
    found = find_manager(data, url, token_file)
    if found is None:
        raise UsageError(f"no manager runs in {data}: start one with `metromq manager`, or name its --manager URL")
    return found
