"""Mosquitto's password file: `user:hash` with `$7$...` (PBKDF2), `$6$...` (salted SHA-512) and `$argon2id$...`."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metromq.errors import ConfigError, UsageError

# Mosquitto's own default is 101; ten times that still costs less than a millisecond of the event loop per CONNECT.
DEFAULT_ITERATIONS = 1_000
MOST_ITERATIONS = 10_000_000
SLOW_ITERATIONS = 5_000  # some milliseconds
ARGON2_MEMORY_KIB = 47_104
MOST_MEMORY_KIB = 1 << 20
SALT_BYTES = 12
HASH_BYTES = 64


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """One user's salted hash; `iterations` 0 is the old scheme `$6$`, one round of SHA-512."""

    iterations: int
    salt: bytes
    digest: bytes

    @property
    def cost(self) -> int:
        """Which of two hashes takes longer to check."""
        return self.iterations

    @property
    def is_slow(self) -> bool:
        """Whether a check would hold up an event loop."""
        return self.iterations > SLOW_ITERATIONS

    def fits(self, password: bytes) -> bool:
        return hmac.compare_digest(_digest(password, self.salt, self.iterations), self.digest)

    def __str__(self) -> str:
        salt = base64.b64encode(self.salt).decode()
        digest = base64.b64encode(self.digest).decode()
        return f"$7${self.iterations}${salt}${digest}" if self.iterations else f"$6${salt}${digest}"


@dataclass(frozen=True, slots=True)
class Argon2Hash:
    """The default of newer versions of Mosquitto; a check takes tens of milliseconds and of megabytes."""

    encoded: str  # with its parameters, as the reference implementation writes it
    memory_kib: int
    passes: int

    @property
    def cost(self) -> int:
        return MOST_ITERATIONS + self.memory_kib * self.passes  # more than any other

    @property
    def is_slow(self) -> bool:
        return True

    def fits(self, password: bytes) -> bool:
        from argon2 import low_level
        from argon2.exceptions import VerificationError

        try:
            return bool(low_level.verify_secret(self.encoded.encode(), password, low_level.Type.ID))
        except VerificationError:
            return False

    def __str__(self) -> str:
        return self.encoded


StoredHash = PasswordHash | Argon2Hash


def hash_password(password: bytes, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> PasswordHash:
    """The hash that a password file holds; `salt` should be SALT_BYTES of good randomness."""
    return PasswordHash(iterations, salt, _digest(password, salt, iterations))


class PasswordFile:
    """The users of one password file, for checking CONNECT packets."""

    def __init__(self, users: Mapping[str, StoredHash]) -> None:
        self.users = dict(users)
        # An unknown user costs as much time as a known one, so that answers do not tell which users exist.
        nobody = PasswordHash(DEFAULT_ITERATIONS, bytes(SALT_BYTES), bytes(HASH_BYTES))
        self._nobody = max(self.users.values(), key=lambda user: user.cost, default=nobody)
        self.is_slow = self._nobody.is_slow  # then `check` belongs into a thread

    def check(self, username: str, password: bytes | None) -> bool:
        user = self.users.get(username)
        fits = (user or self._nobody).fits(password or b"")
        return fits and user is not None and password is not None


def parse_passwords(text: str, file: str) -> PasswordFile:
    """The users in `text`; every wrong line is told in one error, with its number."""
    users: dict[str, StoredHash] = {}
    problems: list[str] = []
    for number, username, stored in password_lines(text):
        if username is None:
            problems.append(f"line {number}: no colon between username and password")
        elif username in users:
            problems.append(f"line {number}: user {username} is already in the file")
        else:
            try:
                users[username] = parse_hash(stored)
            except ValueError as error:
                problems.append(f"line {number}: user {username}: {error}")
    if problems:
        raise ConfigError(file, "; ".join(problems))
    return PasswordFile(users)


def password_lines(text: str) -> Iterator[tuple[int, str | None, str]]:
    """Line number, username (None where the line has no colon) and the rest of each line that is no comment."""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            username, colon, stored = line.partition(":")
            yield number, username if colon else None, stored


def parse_hash(stored: str) -> StoredHash:
    """Raises ValueError that says what to do about a hash that cannot be used."""
    parts = stored.split("$")
    if len(parts) == 5 and parts[:2] == ["", "7"]:
        if not (parts[2].isascii() and parts[2].isdigit() and 0 < int(parts[2]) <= MOST_ITERATIONS):
            raise ValueError(f"the iterations must be a number from 1 to {MOST_ITERATIONS}, not {parts[2]!r}")
        return _parse_salt(int(parts[2]), parts[3], parts[4])
    if len(parts) == 4 and parts[:2] == ["", "6"]:
        return _parse_salt(0, parts[2], parts[3])
    if stored.startswith("$argon2"):
        return _parse_argon2(stored)
    if stored.startswith("$"):
        raise ValueError(
            "the hash is not $7$iterations$salt$hash, $6$salt$hash or $argon2id$...; set the password again"
        )
    raise ValueError("the password is not hashed; convert the file with metromq passwd -U FILE")


def _parse_argon2(stored: str) -> Argon2Hash:
    try:
        import argon2
    except ImportError:
        raise ValueError(
            "argon2 hashes need a library: pip install 'metromq[argon2]'; or set the password again with metromq passwd"
        ) from None
    try:
        found = argon2.extract_parameters(stored)
        if found.salt_len < 8 or found.hash_len < 16:
            raise argon2.exceptions.InvalidHashError
    except argon2.exceptions.InvalidHashError:
        raise ValueError("the argon2 hash is incomplete; set the password again") from None
    if found.type is not argon2.Type.ID:
        raise ValueError("only the argon2id kind of argon2 hash is supported; set the password again")
    if found.memory_cost > MOST_MEMORY_KIB:
        raise ValueError(f"the argon2 hash asks for more than {MOST_MEMORY_KIB} KiB of memory for every check")
    return Argon2Hash(stored, found.memory_cost, found.time_cost)


def hash_argon2(password: bytes, salt: bytes, passes: int = 1) -> Argon2Hash:
    """With the parameters of mosquitto_passwd."""
    try:
        from argon2 import low_level
    except ImportError:
        raise UsageError("argon2 hashes need a library: pip install 'metromq[argon2]'") from None
    encoded = low_level.hash_secret(password, salt, passes, ARGON2_MEMORY_KIB, 1, HASH_BYTES, low_level.Type.ID)
    return Argon2Hash(encoded.decode(), ARGON2_MEMORY_KIB, passes)


def load_passwords(file: Path) -> PasswordFile:
    return parse_passwords(read_text(file), str(file))


def read_text(file: Path) -> str:
    """The file's text, or a ConfigError that names it."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"cannot be read: {error}") from error


def check_username(username: str) -> None:
    """Raises UsageError for a name that a password file cannot hold."""
    if not username or ":" in username or not username.isprintable() or username != username.strip():
        raise UsageError(f"the username {username!r} must be printable text without ':' or leading or trailing spaces")
    if username.startswith("#"):
        raise UsageError(f"the username {username!r} would be a comment: it must not start with '#'")
    if len(username.encode()) > 65535:
        raise UsageError("the username is longer than MQTT's 65535 bytes")


def _parse_salt(iterations: int, salt: str, digest: str) -> PasswordHash:
    try:
        parsed = PasswordHash(
            iterations, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
        )
    except (binascii.Error, ValueError):
        raise ValueError("the salt or hash is not base64") from None
    if not parsed.salt or len(parsed.digest) != HASH_BYTES:
        raise ValueError(f"the hash has {len(parsed.digest)} bytes instead of {HASH_BYTES}")
    return parsed


def _digest(password: bytes, salt: bytes, iterations: int) -> bytes:
    if iterations:
        return hashlib.pbkdf2_hmac("sha512", password, salt, iterations, HASH_BYTES)
    return hashlib.sha512(password + salt).digest()
