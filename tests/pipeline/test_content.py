"""`check` and `repair`: rows that are not what the journal says are found, and written again once."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from metromq.cli.contents import rows_at
from metromq.cli.main import group
from metromq.errors import LakeConflict
from metromq.federation import stages
from metromq.federation.hop import Hop
from metromq.federation.links.routing_slip import slip_of
from metromq.journal import Journal
from metromq.journal.identity import read_id
from metromq.pipeline.content import judge, opens_with_note, repair, slow_table
from metromq.pipeline.decode import decode_batch
from metromq.pipeline.ingest import Ingest
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import MESSAGES, LandedFile, Landing
from metromq.pipeline.maintain import check, compact
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.recorder import Recorder
from metromq.protocol.session.message import Message
from metromq.protocol.session.records import Target, decode_message, encode_message
from tests.pipeline.bad_decoder import without_notes
from tests.pipeline.data import NOTE, T0_US, bodies, fill, journal_of, link_message

pytestmark = pytest.mark.timeout(600)
COUNT = 60


def noted_offsets(first: int = 0, count: int = COUNT) -> list[tuple[int, int]]:
    """The offsets that a decoder gets wrong which does not know notes, as plain Python sees them."""
    found = Ranges()
    for number, body in enumerate(bodies(first, count)):
        if any(target.note for target in decode_message(body).targets):
            found.add(first + number, first + number)
    return list(found)


def take(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    Ingest(spark, lake, landing, lambda taken: None).take_files(landing.files())


def rows(lake: Lake) -> dict[tuple[str, int], dict[str, Any]]:
    found = lake.arrow("messages").to_pylist()
    named = {(row["broker"], row["offset"]): row for row in found}
    assert len(named) == len(found)
    return named


@pytest.fixture
def bad_lake(spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path) -> Lake:
    """Recorded before the pipeline knew notes, in two files, beside a broker without links."""
    with pytest.MonkeyPatch.context() as patch:
        without_notes(patch)
        recorder = Recorder("b1", tmp_path / "b1" / "journal", landing, roll_rows=COUNT // 2)
        journal_of(tmp_path / "b1" / "journal", COUNT).close()
        recorder.step()
        take(spark, lake, landing)
        recorder.step()
        take(spark, lake, landing)
        recorder.close()
    other = Journal.open(tmp_path / "b2" / "journal")
    for number in range(5):
        other.append_message(encode_message(Message("a", b"%d" % number, 1, time_us=T0_US), [Target(1, 1)]))
    other.close()
    quiet = Recorder("b2", tmp_path / "b2" / "journal", landing)
    quiet.step()
    quiet.close()
    take(spark, lake, landing)
    return lake


def key(tmp_path: Path, broker: str) -> JournalKey:
    return JournalKey(broker, read_id(tmp_path / broker / "journal"))


def journals(tmp_path: Path) -> dict[JournalKey, Path]:
    return {key(tmp_path, name): tmp_path / name / "journal" for name in ("b1", "b2")}


@pytest.mark.parametrize("lake", ["path", "s3"], indirect=True)
def test_wrong_rows_are_found_and_written_again_once(spark: SparkSession, bad_lake: Lake, tmp_path: Path) -> None:
    wanted = noted_offsets()
    assert 10 < len(Ranges(wanted)) < COUNT - 10
    before = rows(bad_lake)
    found = {place.broker: content for place, content in judge(bad_lake, journals(tmp_path)).items()}
    assert (found["b1"].compared, list(found["b1"].wrong), found["b1"].gone) == (COUNT, wanted, ())
    assert (found["b2"].compared, found["b2"].right) == (5, True)
    done = {item.broker: (item.rows, item.left.right) for item in repair(spark, bad_lake, journals(tmp_path))}
    assert done == {"b1": (len(Ranges(wanted)), True), "b2": (0, True)}
    after = rows(bad_lake)
    changed = sorted(offset for broker, offset in after if after[broker, offset] != before[broker, offset])
    assert changed == [offset for first, last in wanted for offset in range(first, last + 1)]
    assert after.keys() == before.keys()
    for number, body in enumerate(bodies(0, COUNT)):
        twin, row = decode_message(body).message, after["b1", number]
        assert (row["topic"], row["payload"], row["publisher"]) == (twin.topic, twin.payload, twin.publisher)
    version = bad_lake.open("messages").version()
    assert [item.rows for item in repair(spark, bad_lake, journals(tmp_path))] == [0, 0]
    assert bad_lake.open("messages").version() == version
    assert not [name for name in bad_lake.store.folders() if name.startswith("_repair-")]


def test_columns_that_are_made_of_the_payload_are_made_again(
    spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path
) -> None:
    body = encode_message(link_message("1/0/t", T0_US, "b2", 7), [Target(1, 1, (), NOTE)])
    journal = Journal.open(tmp_path / "b1" / "journal")
    journal.append_message(body)
    journal.close()
    with pytest.MonkeyPatch.context() as patch:
        without_notes(patch)
        Recorder("b1", tmp_path / "b1" / "journal", landing).step()
    take(spark, lake, landing)
    (bad,) = lake.arrow("messages").to_pylist()
    wrong = int.from_bytes((len(NOTE).to_bytes(4, "little") + NOTE)[:8], "little")  # the note, read as a number
    assert (bad["origin"], bad["origin_offset"], bad["value"]) == (None, wrong, None)
    repair(spark, lake, {key(tmp_path, "b1"): tmp_path / "b1" / "journal"})
    (good,) = lake.arrow("messages").to_pylist()
    assert (good["origin"], good["origin_offset"], good["value"], good["payload_json"]) == ("b2", 7, 1.0, "1")
    assert (good["day"], good["area"]) == (bad["day"], "1/0")


@pytest.mark.parametrize(
    ("column", "value"),
    [("payload", b"other"), ("topic", "other"), ("publisher", "other"), ("qos", 0), ("retain", None), ("kind", "will")],
)
def test_one_wrong_value_is_found(
    spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path, column: str, value: object
) -> None:
    journal_of(tmp_path / "b1" / "journal", 9).close()
    table = decode_batch("b1", 0, bodies(0, 9))
    values = table[column].to_pylist()
    values[4] = not values[4] if value is None else value
    index = table.schema.get_field_index(column)
    landing.put(
        LandedFile(MESSAGES, "b1", 0, 8),
        table.set_column(index, table.schema.field(index), pa.array(values, table.schema.types[index])),
    )
    take(spark, lake, landing)
    assert judge(lake, {JournalKey("b1"): tmp_path / "b1" / "journal"})[JournalKey("b1")].wrong == ((4, 4),)


def test_rows_that_the_journal_no_longer_holds(
    spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path
) -> None:
    journal = Journal.open(tmp_path / "b1" / "journal", segment_bytes=4096)
    for _ in range(10):
        fill(journal, 30)
    with pytest.MonkeyPatch.context() as patch:
        without_notes(patch)
        Recorder("b1", tmp_path / "b1" / "journal", landing).step()
    take(spark, lake, landing)
    journal.write_snapshot([b"state"])()
    journal.remove_before(150, keep_bytes=0, keep_seconds=0.0, now=1e12)
    first = journal.first_offset
    journal.close()
    assert 0 < first < 300
    before = rows(lake)
    (found,) = check(lake, landing, {key(tmp_path, "b1"): tmp_path / "b1" / "journal"})
    assert found.content is not None
    assert (found.content.compared, found.content.gone, found.whole) == (300 - first, ((0, first - 1),), False)
    (done,) = repair(spark, lake, {key(tmp_path, "b1"): tmp_path / "b1" / "journal"})
    assert (done.left.wrong, done.left.gone, done.left.right) == ((), ((0, first - 1),), False)
    assert done.left.suspect
    noted = Ranges(span for start in range(0, 300, 30) for span in noted_offsets(start, 30))
    assert all(not noted.missing(low, high) for low, high in done.left.suspect)
    assert all(before["b1", offset] == row for (_, offset), row in rows(lake).items() if offset < first)


def test_another_journal_changes_nothing(spark: SparkSession, bad_lake: Lake, tmp_path: Path) -> None:
    other = Journal.open(tmp_path / "other" / "journal")
    for number in range(COUNT):
        other.append_message(encode_message(Message("x", b"", 1, time_us=T0_US + 1 + number * 1_000_000), []))
    other.close()
    before = rows(bad_lake)
    (done, _) = repair(spark, bad_lake, {key(tmp_path, "b1"): tmp_path / "other" / "journal"})
    assert (done.rows, done.left.foreign, done.left.wrong) == (0, ((0, COUNT - 1),), ())
    assert rows(bad_lake) == before


def test_someone_merges_files_meanwhile(
    spark: SparkSession, bad_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failures = bad_lake.commit, [LakeConflict("changed")]

    def unlucky(*arguments: Any, **options: Any) -> None:
        if failures:
            raise failures.pop()
        commit(*arguments, **options)

    monkeypatch.setattr(bad_lake, "commit", unlucky)
    assert [item.left.right for item in repair(spark, bad_lake, journals(tmp_path))] == [True, True]
    compact(bad_lake)
    assert {place.broker: item.right for place, item in judge(bad_lake, journals(tmp_path)).items()} == {
        "b1": True,
        "b2": True,
    }


def test_the_slow_decoder_makes_the_same_table() -> None:
    made = bodies(7, 50)
    assert slow_table(JournalKey("b1", "abc"), 7, made) == decode_batch("b1", 7, made, "abc")


OLD_STAGES = (stages.CLIENT, stages.OWNER, stages.HANDOVER, stages.FINAL)
HOPS = st.builds(
    Hop,
    st.just("b2"),
    st.sampled_from((stages.OWNER, stages.RELAY, stages.HANDOVER, stages.FINAL)),
    served=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    shares=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@given(HOPS, st.binary(max_size=20))
def test_a_payload_behind_a_note_is_recognised(hop: Hop, payload: bytes) -> None:
    note = slip_of(hop)
    assert opens_with_note(len(note).to_bytes(4, "little") + note + payload)
    if hop.stage == stages.RELAY:
        return  # there was none before slips had a limit
    old = bytes([OLD_STAGES.index(hop.stage), 0]) + note[3:]
    assert opens_with_note(len(old).to_bytes(4, "little") + old + payload)


@pytest.mark.parametrize(
    "payload", [b"", b"21.1", b'{"value": 21.5, "unit": "C"}', b"\0" * 40, b"\x08\0\0\0" + b"\0" * 8]
)
def test_other_payloads_are_not(payload: bytes) -> None:
    assert not opens_with_note(payload)


def metromq(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["pipeline", *arguments], catch_exceptions=False)


def test_offsets_are_told_in_few_words() -> None:
    assert rows_at(((4, 4),)) == "1 row (offset 4)"
    assert rows_at(((1, 4), (9, 9))) == "5 rows (offsets 1..4, 9)"
    assert (
        rows_at(tuple((n, n) for n in range(0, 20, 2))) == "10 rows (offsets 0, 2, 4, 6, 8 and 5 more ranges up to 18)"
    )


def test_check_names_them_and_says_what_to_do(bad_lake: Lake, tmp_path: Path) -> None:
    """The recorders' notes lead to the journals; `--data` does where there are none."""
    lake = bad_lake.root
    found = metromq("check", "--lake", lake)
    count = len(Ranges(noted_offsets()))
    assert found.exit_code == 1
    assert f"b1: {count} rows (offsets {noted_offsets()[0][0]}" in found.stderr
    assert f"differ from the journal. `metromq pipeline repair --lake {lake}`" in found.stderr
    assert "b2:" not in found.stderr
    assert metromq("check", "--lake", lake, "--offsets-only").exit_code == 0
    landing = Landing(bad_lake.landing)
    for broker in ("b1", "b2"):
        note = landing.read_note(key(tmp_path, broker))
        del note["host"]  # as an older recorder left it
        landing.write_note(key(tmp_path, broker), note)
    unknown = metromq("check", "--lake", lake)
    assert "b2: 5 rows (offsets 0..4) could not be compared" in unknown.stderr
    assert "of those look wrong" in unknown.stderr
    given = metromq(
        "check", "--lake", lake, "--data", f"b1={tmp_path / 'b1'}", "--data", str(tmp_path / "b2"), "--json"
    )
    contents = {item["broker"]: item["content"] for item in json.loads(given.stdout)}
    assert contents["b1"]["wrong"] == [list(span) for span in noted_offsets()]
    assert contents["b2"]["compared"] == 5
