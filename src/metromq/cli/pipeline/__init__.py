"""`metromq pipeline`: record journals, run Spark on them, ask the lake, keep it in order."""

import click

from metromq.cli.pipeline.clustering import clusters_command
from metromq.cli.pipeline.loading import record, refresh_command, run_command
from metromq.cli.pipeline.options import examples
from metromq.cli.pipeline.queries import sql_command, tables_command, what_if_command
from metromq.cli.pipeline.upkeep import (
    check_command,
    compact_command,
    expire_command,
    prepare_command,
    repair_command,
)
from metromq.errors import UsageError


@click.group(
    "pipeline",
    epilog=examples(
        "run --lake lake                         stream recorded messages into tables",
        "check --lake lake                       prove that nothing is missing",
        'sql --lake lake "SELECT * FROM zipf"    query the tables',
    ),
)
def command() -> None:
    """Turn journals into tables and statistics, on Spark."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UsageError("the pipeline needs an extra package: pip install 'metromq[pipeline]'") from error


for part in (
    record,
    run_command,
    refresh_command,
    tables_command,
    what_if_command,
    clusters_command,
    check_command,
    repair_command,
    compact_command,
    expire_command,
    sql_command,
    prepare_command,
):
    command.add_command(part)
