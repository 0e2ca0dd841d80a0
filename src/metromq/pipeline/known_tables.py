"""Which tables a lake has beside the built-in ones, so that `sql`, `compact`, `expire` and `tables` know them too."""

import pyarrow as pa
from deltalake import DeltaTable

from metromq.pipeline.lake import Lake
from metromq.pipeline.schemas import BUILT_IN, TableSpec


def declare_own(lake: Lake) -> list[str]:
    """Makes the tables of the lake known to it that are not built in."""
    names = lake.store.folders()
    own = [name for name in sorted(names) if name not in BUILT_IN and name != "landing" and name[:1].isalpha()]
    found = [name for name in own if lake.exists(name)]
    options = lake.store.delta_options
    for name in found:
        table = DeltaTable(lake.path(name), storage_options=options)
        lake.declare(own_spec(name, pa.schema(table.schema().to_arrow())))
    return found


def own_spec(name: str, schema: pa.Schema) -> TableSpec:
    return TableSpec(name, "a table of your own", schema, ("day",), ("window_start",))
