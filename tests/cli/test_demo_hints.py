"""What `metromq demo` prints can be pasted: also the way from the demo to SQL."""

from pathlib import Path

import pytest

from metromq.cli.demo import hints
from metromq.federation.city import grid_city
from tests.test_docs import parse


@pytest.mark.parametrize(("data", "rest"), [("metromq-data", ""), ("my data", " --lake 'my data-lake'")])
def test_the_way_to_sql_is_printed_and_accepted(data: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["metromq"])
    monkeypatch.setenv("PATH", "")
    text = hints(grid_city("geographic", count=4), Path(data))
    lines = [line.strip() for line in text.splitlines() if " pipeline " in line]
    assert [line.partition(" pipeline ")[2].split()[0] for line in lines] == ["run", "sql", "what-if"]
    assert all(rest in line for line in lines)
    for line in lines:
        parse("metromq pipeline " + line.partition(" pipeline ")[2])
