"""What docs/pipeline.md tells other programs to read the tables with: short ones, too, end as they should.

`DeltaTable.to_pyarrow_table` and `to_pandas` ended about half of short programs with "terminate called without an
active exception" after they had done their work, with deltalake 1.2 to 1.6.
"""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

HOUSE = Path(__file__).parents[2]
PAGE = HOUSE / "docs" / "pipeline.md"
TIMES = 4

IMPORTS = """
import polars
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
path = "lake/messages"
"""
ENDINGS = {
    "polars": ".collect().height",
    "DeltaTable": ".count_rows()",
}
ABORTING = re.compile(r"\.to_pyarrow_table\(|\.to_pyarrow_dataset\((?!filesystem=)|DeltaTable\([^)]*\)\.to_pandas\(")


def documented() -> dict[str, str]:
    """The expressions of the page, by the library they begin with; DuckDB's needs an extension from the network."""
    text = PAGE.read_text().partition("The tables are [Delta]")[2].partition("\n\n")[0]
    found = {code.partition(".")[0].partition("(")[0]: code for code in re.findall(r"`([^`]+\(.+?\))`", text)}
    return {library: f"print({found[library]}{ending})" for library, ending in ENDINGS.items()}


@pytest.mark.parametrize("library", ENDINGS)
def test_short_programs_end_well(library: str, tmp_path: Path) -> None:
    for part in range(3):
        rows = pa.table({"broker": [f"b{part}"] * 10, "offset": range(10)})
        write_deltalake(tmp_path / "lake" / "messages", rows, partition_by=["broker"], mode="append")
    program = IMPORTS + documented()[library]
    ran = [
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        for _ in range(TIMES)
    ]
    assert [(run.returncode, run.stdout, run.stderr) for run in ran] == [(0, "30\n", "")] * TIMES


def test_nothing_here_reads_in_the_way_that_aborts() -> None:
    assert ABORTING.search("DeltaTable(path).to_pyarrow_table()")
    assert ABORTING.search("table.to_pyarrow_dataset()")
    assert not ABORTING.search("polars.read_delta(path).to_pandas()")
    sources = [file for folder in ("src", "bench", "examples") for file in (HOUSE / folder).rglob("*.py")]
    found = [str(file) for file in sources if ABORTING.search(file.read_text())]
    assert found == []
