"""What the commands of `metromq pipeline` share: their options, Spark, and the end by a signal."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from metromq.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_LAKE = "metromq-lake"

lake_option = click.option(
    "--lake", default=DEFAULT_LAKE, show_default=True, help="Directory or URI of the lake, such as s3://bucket/lake."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
master_option = click.option(
    "--master", default="local[*]", show_default=True, help="Spark master, for example spark://host:7077."
)
memory_option = click.option("--memory", default="1g", show_default=True, help="Memory of the Spark driver.")
models_option = click.option(
    "--models",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory with tables of your own: NAME.sql, one SELECT each, and NAME.toml, the columns of JSON payloads.",
)
conf_option = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")


data_option = click.option(
    "--data",
    multiple=True,
    metavar="[BROKER=]DIR",
    help="Data directory of a broker, or one that holds several; by default, where recorders on this machine wrote.",
)


def examples(*lines: str) -> str:
    return "\n".join(("\b", "Examples:", *(f"  metromq pipeline {line}" for line in lines)))


def light_conf(rows: int, few: int | None = None) -> list[str]:
    """As `--conf`, for a command that will be over soon: it has so many rows to work on."""
    from metromq.pipeline import spark

    settings = spark.light_settings(rows, spark.FEW_TO_LOAD if few is None else few)
    return [f"{name}={value}" for name, value in settings.items()]


@contextmanager
def spark_session(master: str, memory: str, conf: Sequence[str]) -> Iterator["SparkSession"]:
    from metromq.pipeline import make_archive_soon, spark

    wrong = [item for item in conf if "=" not in item]
    if wrong:
        raise UsageError(f"--conf {wrong[0]}: must be KEY=VALUE")
    with Console(stderr=True).status("starting Spark"):
        session = spark.start(master, memory, settings=dict(item.split("=", 1) for item in conf))
    try:
        yield session
    finally:
        spark.stop(session)
    archive = make_archive_soon() if master == spark.DEFAULT_MASTER else None
    if archive is not None:
        click.echo(
            f"in the background Spark's classes are being kept, once ({archive}, 180 MB): then it starts in half the"
            " time",
            err=True,
        )


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM ask the work to end well."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
