"""`metromq passwd`: manages password files, with the options of mosquitto_passwd."""

import os
import secrets
from pathlib import Path

import click

from metromq.broker.auth import SALT_BYTES, parse_keys, passwords
from metromq.errors import ScramError, UsageError
from metromq.files import replacing
from metromq.protocol import scram

EPILOG = """\b
Examples:
  metromq passwd -c passwords alice           create a file with one user; asks for the password
  metromq passwd passwords bob                add bob, or change his password
  metromq passwd -b passwords carol SECRET    password on the command line, where others may see it
  metromq passwd -D passwords bob             delete bob
  metromq passwd -U passwords                 hash the plain passwords in a file of user:password lines
  metromq passwd -c -H scram-sha-256 scram alice   create a file for SCRAM-SHA-256
"""
HASHES = ["sha512-pbkdf2", "sha512", "argon2id", "scram-sha-256"]


@click.command("passwd", epilog=EPILOG)
@click.option("-c", "create", is_flag=True, help="Create a new file; an existing one is overwritten.")
@click.option("-b", "batch", is_flag=True, help="Take the password from the command line.")
@click.option("-D", "delete", is_flag=True, help="Delete the user.")
@click.option("-U", "upgrade", is_flag=True, help="Hash the plain passwords in a file.")
@click.option("-H", "kind", type=click.Choice(HASHES), default=HASHES[0], show_default=True, help="Kind of hash.")
@click.option("-I", "iterations", type=click.IntRange(1, passwords.MOST_ITERATIONS), help="Hash iterations.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("username", required=False)
@click.argument("password", required=False)
def command(
    create: bool,
    batch: bool,
    delete: bool,
    upgrade: bool,
    kind: str,
    iterations: int | None,
    file: Path,
    username: str | None,
    password: str | None,
) -> None:
    """Add, change or delete users in a password file. A running broker reads it again on SIGHUP."""
    if sum((create, delete, upgrade)) > 1:
        raise UsageError("only one of -c, -D and -U can be given")
    if upgrade:
        if username is not None:
            raise UsageError("-U takes only the file")
        upgrade_file(file, kind, iterations)
        return
    if username is None:
        raise UsageError("the username is missing: metromq passwd FILE USERNAME")
    passwords.check_username(username)
    if delete:
        delete_user(file, username)
        return
    if (password is not None) != batch:
        raise UsageError("-b and a password must be given together; without -b you are asked for the password")
    if password is None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt="Reenter password", err=True)
    lines = [] if create else read_lines(file)
    write_lines(file, set_user(lines, username, hashed(password, kind, iterations)), anew=create)


def hashed(password: str, kind: str, iterations: int | None) -> str:
    """The stored form of a password, with fresh salt."""
    if kind == "scram-sha-256":
        scram.saslprep(password)
        rounds = iterations or scram.DEFAULT_ITERATIONS
        if rounds < scram.LEAST_ITERATIONS:
            raise UsageError(f"SCRAM needs at least {scram.LEAST_ITERATIONS} iterations (RFC 7677)")
        return str(scram.derive_keys(password, secrets.token_bytes(SALT_BYTES), rounds))
    if kind == "argon2id":
        return str(passwords.hash_argon2(password.encode(), secrets.token_bytes(passwords.SALT_BYTES), iterations or 1))
    rounds = 0 if kind == "sha512" else iterations or passwords.DEFAULT_ITERATIONS
    return str(passwords.hash_password(password.encode(), secrets.token_bytes(passwords.SALT_BYTES), rounds))


def set_user(lines: list[str], username: str, stored: str) -> list[str]:
    """The lines with the user's one replaced or, for a new user, added; all others as they were."""
    line = f"{username}:{stored}"
    changed = [line if _user(old) == username else old for old in lines]
    return changed if line in changed else [*changed, line]


def delete_user(file: Path, username: str) -> None:
    lines = read_lines(file)
    kept = [line for line in lines if _user(line) != username]
    if len(kept) == len(lines):
        raise UsageError(f"{file} has no user {username}")
    write_lines(file, kept)


def upgrade_file(file: Path, kind: str, iterations: int | None) -> None:
    """Hashes every plain password; unlike mosquitto_passwd, leaves what is hashed already."""
    changed: list[str] = []
    for number, line in enumerate(read_lines(file), start=1):
        username, colon, stored = line.strip().partition(":")
        if not line.strip() or line.startswith("#"):
            changed.append(line)
        elif not colon:
            raise UsageError(f"{file}: line {number}: no colon between username and password")
        elif _is_hashed(stored):
            changed.append(line)
        else:
            changed.append(f"{username}:{hashed(stored, kind, iterations)}")
    write_lines(file, changed)


def read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}; create it with -c") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error


def write_lines(file: Path, lines: list[str], anew: bool = False) -> None:
    """Replaces the file in one step, so that a broker never reads half of it; a new one is only for its owner's eyes.

    An old one keeps its owner and group, and unless it is made `anew` its mode: the broker may be another user.
    """
    try:
        with replacing(file, mode=0o600) as out:
            out.write("".join(f"{line}\n" for line in lines).encode())
            if file.exists():
                keep_owner(file, out.fileno())
                if not anew:
                    os.fchmod(out.fileno(), file.stat().st_mode & 0o777)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    if file.stat().st_mode & 0o007:
        click.echo(f"metromq: every user of this machine can use {file}; to stop that: chmod o-rwx {file}", err=True)


def keep_owner(file: Path, descriptor: int) -> None:
    """Gives what takes the place of `file` to whom that belongs."""
    before, now = file.stat(), os.fstat(descriptor)
    if (before.st_uid, before.st_gid) == (now.st_uid, now.st_gid):
        return
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except PermissionError:
        raise UsageError(
            f"{file} belongs to user {before.st_uid} and group {before.st_gid}, which only that user or root can keep: "
            f"run this as one of them (sudo -u '#{before.st_uid}' metromq passwd ...)"
        ) from None


def _user(line: str) -> str | None:
    username, colon, _ = line.strip().partition(":")
    return username if colon and not line.startswith("#") else None


def _is_hashed(stored: str) -> bool:
    for parse in (passwords.parse_hash, parse_keys):
        try:
            parse(stored)
        except (ValueError, ScramError):
            continue
        return True
    return False
