"""`metromq check-config`: reports everything that is wrong with a configuration, and where; starts no broker."""

import json
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from metromq.broker.auth import load_acl, load_passwords, load_scram
from metromq.config import Config, Listener, check_config, load_config
from metromq.control import check_city
from metromq.documents import read_document
from metromq.errors import ConfigError

EPILOG = """\b
Examples:
  metromq check-config metromq.toml
  metromq check-config city.toml
  METROMQ_LIMITS__MAX_QOS=1 metromq check-config metromq.toml --json

\b
Exit status: 0 if a broker, or the city, would start with this configuration, 1 if not.
"""


@click.command("check-config", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(file: Path | None, as_json: bool) -> None:
    """Check a configuration and report every error.

    Checks FILE, the METROMQ_* environment variables, and the password, ACL and certificate files they name. A FILE that
    describes a city (it has [[brokers]]) is checked as one.
    """
    if file is not None and is_city(file):
        problems = check_city(file, os.environ)
    else:
        problems = check_config(file, os.environ)
        if not problems:
            problems = list(check_files(load_config(file, os.environ)))
    if as_json:
        listed = [{"where": problem.where, "problem": problem.problem} for problem in problems]
        click.echo(json.dumps({"ok": not problems, "problems": listed}))
    elif problems:
        show(problems)
    else:
        click.echo(f"{file or 'The default configuration'} is valid.")
    sys.exit(1 if problems else 0)


def is_city(file: Path) -> bool:
    try:
        return "brokers" in read_document(file, "TOML")
    except ConfigError:
        return False  # whoever reads it says why


def check_files(config: Config) -> Iterator[ConfigError]:
    """Problems inside the files that the configuration names."""
    auth = config.auth
    checks: list[tuple[Path | None, Callable[[Path], object]]] = [
        (auth.password_file, load_passwords),
        (auth.acl_file, load_acl),
        (auth.scram_file, lambda file: load_scram(file, b"")),
    ]
    for file, load in checks:
        if file is not None:
            try:
                load(file)
            except ConfigError as error:
                yield error
    for number, listener in enumerate(config.listeners):
        if listener.is_secure:
            yield from check_certificates(f"listeners[{number}]", listener)


def check_certificates(where: str, listener: Listener) -> Iterator[ConfigError]:
    assert listener.cert_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(listener.cert_file, listener.key_file)
    except (ssl.SSLError, OSError) as error:
        yield ConfigError(f"{where}.cert_file", f"{listener.cert_file} and {listener.key_file} do not work: {error}")
    if listener.ca_file is not None:
        try:
            context.load_verify_locations(listener.ca_file)
        except (ssl.SSLError, OSError) as error:
            yield ConfigError(f"{where}.ca_file", f"{listener.ca_file} does not work: {error}")


def show(problems: list[ConfigError]) -> None:
    table = Table("Where", "Problem", title=f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    for problem in problems:
        table.add_row(problem.where, problem.problem)
    Console().print(table, markup=False)
