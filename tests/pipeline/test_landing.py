"""Names, atomic writes, footers that prove what a file holds, and files set aside."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metromq.errors import UsageError
from metromq.pipeline.decode import decode_batch
from metromq.pipeline.landing import GONE, MESSAGES, LandedFile, Landing, check_broker_name, parse_path
from tests.pipeline.data import bodies, land


def test_names_round_trip() -> None:
    for file in (LandedFile(MESSAGES, "b-1", 0, 9), LandedFile("telemetry", "b.2", 1_700_000_000_000_000, 0)):
        assert parse_path(file.path) == file


@pytest.mark.parametrize(
    "path",
    [
        "messages/b1/_position.json",
        f"messages/b1/.b1-{0:020d}-{9:020d}.parquet.77.tmp",
        f"messages/b2/b1-{0:020d}-{9:020d}.parquet",
        f"messages/b1/b1-{9:020d}-{0:020d}.parquet",
        f"rejected/b1/b1-{0:020d}-{9:020d}.parquet",
        f"b1-{0:020d}-{9:020d}.parquet",
    ],
)
def test_what_no_recorder_wrote_is_left_alone(path: str) -> None:
    assert parse_path(path) is None


def test_files_are_seen_whole_and_in_order(landing: Landing) -> None:
    later = land(landing, "b1", 10, 5)
    first = land(landing, "b1", 0, 10)
    other = land(landing, "b0", 3, 1)
    assert landing.files() == [other, first, later]
    assert landing.problem(first) is None
    assert landing.problem(first, deep=True) is None
    assert [path.name for path in Path(landing.root).rglob("*.tmp")] == []
    landing.remove([first, first])
    assert landing.files() == [other, later]


def test_a_file_that_is_not_what_its_name_says(landing: Landing) -> None:
    file = land(landing, "b1", 0, 10)
    folder = Path(landing.root) / "messages" / "b1"
    source = folder / Path(file.path).name
    claims = {
        LandedFile(MESSAGES, "b1", 0, 11): "holds 10 rows",
        LandedFile(MESSAGES, "b1", 5, 14): "offsets are not those",
        LandedFile(MESSAGES, "b2", 0, 9): "brokers are not those",
        LandedFile(MESSAGES, "b1", 0, 9, "abc"): "journals are not those",
    }
    for claim, words in claims.items():
        target = Path(landing.root) / claim.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        assert words in (landing.problem(claim) or "")
    bare = LandedFile(MESSAGES, "b1", 100, 101)
    pq.write_table(pa.table({"offset": [100, 101]}), Path(landing.root) / bare.path)
    assert "no column 'broker'" in (landing.problem(bare) or "")
    blind = LandedFile(MESSAGES, "b1", 102, 102)
    rows = decode_batch("b1", 102, bodies(102, 1))
    pq.write_table(rows, Path(landing.root) / blind.path, write_statistics=False)
    assert "no statistics" in (landing.problem(blind) or "")


def test_a_damaged_page_shows_when_read_deeply(landing: Landing) -> None:
    file = land(landing, "b1", 0, 200)
    damage_page(Path(landing.root) / file.path)
    assert landing.problem(file) is None
    assert "cannot be read" in (landing.problem(file, deep=True) or "")


def damage_page(path: Path) -> None:
    """Flip a byte in the middle of the payload column's data."""
    chunk = pq.read_metadata(path).row_group(0).column(5)
    data = bytearray(path.read_bytes())
    position = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_set_aside_with_its_reason(landing: Landing) -> None:
    file = land(landing, "b1", 0, 10)
    landing.set_aside(file, "the moon")
    assert landing.files() == []
    assert [(item.path, item.reason) for item in landing.rejected()] == [(file.path, "the moon")]


def test_a_file_that_is_gone_is_said_to_be_gone(landing: Landing) -> None:
    assert landing.problem(LandedFile(MESSAGES, "b1", 0, 1)) == GONE


def test_a_uri_is_a_landing_area_too(tmp_path: Path) -> None:
    landing = Landing(f"file://{tmp_path}/area")
    file = land(landing, "b1", 0, 3)
    assert landing.files() == [file]
    assert landing.where(file) == f"file://{tmp_path}/area/{file.path}"


@pytest.mark.parametrize("name", ["", "a/b", "a b", ".hidden", "a=b"])
def test_broker_names_must_be_able_to_name_files(name: str) -> None:
    with pytest.raises(UsageError, match="broker name"):
        check_broker_name(name)
