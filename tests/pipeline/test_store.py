"""The file layer does the same on a path and on an object store; leases; files that Spark's workers write and read."""

import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from metromq.errors import LakeConflict, UsageError
from metromq.pipeline import lease
from metromq.pipeline.lease import Lease, held
from metromq.pipeline.schemas import TABLES, TableSpec
from metromq.pipeline.store import Store, store_at
from metromq.pipeline.table_files import Part, TaskWriter, read_part, shared_out

SPEC = TableSpec(
    "things",
    "for tests",
    pa.schema([("number", pa.int64()), ("text", pa.string()), ("day", pa.date32()), ("broker", pa.string())]),
    ("day", "broker"),
    ("number", "text"),
)


@pytest.fixture(params=["path", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_at(tmp_path / "lake" if request.param == "path" else request.getfixturevalue("s3"))


def names(store: Store, folder: str = "") -> list[str]:
    return sorted(file.path for file in store.files(folder))


def test_files_come_whole_and_go(store: Store) -> None:
    assert (names(store), store.folders("a"), store.exists()) == ([], [], False)
    store.put("a/b/one", b"1")
    store.put("a/two", b"22")
    store.put("a/b/one", b"333")
    assert (store.read("a/b/one"), store.read("a/two")) == (b"333", b"22")
    assert store.exists()
    assert names(store) == ["a/b/one", "a/two"]
    assert names(store, "a/b") == ["a/b/one"]
    assert (store.folders(), store.folders("a")) == (["a"], ["b"])
    assert store.sizes(["a/b/one", "a/none", "a"]) == [3, None, None]
    store.move("a/two", "c/d/two")
    assert names(store.inside("c")) == ["d/two"]
    store.each(store.remove, ["c/d/two", "c/d/two"])
    store.remove_folder("a")
    store.remove_folder("nowhere")
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.read("a/two")


def test_a_file_whose_writer_fails_is_not_there(store: Store) -> None:
    def fail() -> None:
        with store.writing("a/one") as out:
            out.write(b"half")
            raise ValueError("the moon")

    with pytest.raises(ValueError, match="the moon"):
        fail()
    assert names(store) == []


def test_workers_open_the_same_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the driver's environment said, not theirs."""
    store.put("a/one", b"1")
    sent = pickle.dumps(store.inside("a"))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    assert pickle.loads(sent).read("one") == b"1"


def test_local_files_and_their_directories_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with store_at(tmp_path / "lake").appending("t/day=1/x.parquet") as out:
        out.write(b"1")
    assert any(".x.parquet." in name for name in synced)
    assert {str(tmp_path / name) for name in ("", "lake", "lake/t", "lake/t/day=1")} <= set(synced)


@pytest.mark.parametrize("uri", ["ftp://host/lake", "http://host/lake"])
def test_other_schemes_are_named(uri: str) -> None:
    with pytest.raises(UsageError, match=r"a lake is at a path, or at s3://, abfs://, gs://, hdfs://"):
        store_at(uri)


def test_what_is_missing_is_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_at(s3).check().root == s3
    assert store_at(s3.replace("s3:", "s3a:")).root == s3
    with pytest.raises(UsageError, match=r"there is no 'no-such-bucket'; create it first"):
        store_at("s3://no-such-bucket/lake").check()
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match=r"not set in the environment: AWS_SECRET_ACCESS_KEY"):
        store_at(s3).check()


def test_the_line_in_the_docs_that_makes_a_bucket(s3_server: dict[str, str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    (line,) = [line for line in page.read_text().splitlines() if line.startswith('python3 -c "from pyarrow')]
    code = (
        line.split('"')[1].replace("http://127.0.0.1:4566", s3_server["AWS_ENDPOINT_URL"]).replace("bucket'", "docs'")
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | s3_server, check=True)
    assert any(
        item.base_name == "docs"
        for item in S3FileSystem(
            access_key="test", secret_key="test", region="us-east-1", endpoint_override=s3_server["AWS_ENDPOINT_URL"]
        ).get_file_info(FileSelector(""))
    )


def test_a_store_that_does_not_answer(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match=rf"cannot reach {s3}: .*127.0.0.1:9"):
        store_at(s3).check()


def test_one_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    with held(store, "_x", "metromq test") as still:
        with (
            pytest.raises(UsageError, match=r"another `metromq test` is working on .*pid"),
            held(store, "_x", "metromq test"),
        ):
            raise AssertionError("two at a time")
        still()
        with held(store, "_y", "metromq test"):
            pass
    with held(store, "_x", "metromq test"):
        pass


def in_threads(work: Callable[[int], str], count: int) -> list[str]:
    found = [""] * count
    threads = [threading.Thread(target=lambda n=n: found.__setitem__(n, work(n))) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_many_that_want_a_lease_one_gets_it(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free at first; then its holder dies and all wait."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    store = store_at(s3)
    for round in range(2):
        made = [Lease(store, "_x", f"{round}/{number}") for number in range(4)]
        barrier = threading.Barrier(4)

        def take(number: int, made: list[Lease] = made, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return made[number].take()

        answers = in_threads(take, 4)
        assert answers.count("") == 1
        winner = f"{round}/{answers.index('')}"
        assert set(answers) == {"", winner}


def test_a_holder_that_slept_is_told(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    store = store_at(s3)
    sleeper, other = Lease(store, "_x", "sleeper"), Lease(store, "_x", "other")
    assert (sleeper.take(), other.take()) == ("", "")
    sleeper.start()
    sleeper.join()
    with pytest.raises(LakeConflict, match="another run took over"):
        sleeper.check()
    sleeper.release()
    assert Lease(store, "_x", "third")._look()[1] == "other"
    other.release()
    assert Lease(store, "_x", "third").take() == ""


def test_a_renewal_whose_answer_was_lost_is_ours(s3: str) -> None:
    mine = Lease(store_at(s3), "_x", "mine")
    assert mine.take() == ""
    assert mine._commit(mine._turn, "mine")
    mine._turn -= 1
    assert not mine._commit(mine._turn, "mine")
    assert mine._was_ours()
    assert mine._commit(mine._turn, "mine")


def rows(count: int, dice: random.Random) -> pa.Table:
    days = [date(2026, 1, 1), date(2026, 1, 2), None]
    columns = {
        "number": list(range(count)),
        "text": [dice.choice(["a", "ü", None]) for _ in range(count)],
        "day": [dice.choice(days) for _ in range(count)],
        "broker": [dice.choice(["b1", "b 2/%", None]) for _ in range(count)],
    }
    return pa.table(columns, schema=SPEC.schema)


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=lambda row: int(row[0]))


@pytest.mark.parametrize("open_files", [1, 16])
def test_a_task_writes_what_others_read(store: Store, monkeypatch: pytest.MonkeyPatch, open_files: int) -> None:
    """Each partition its files, with statistics that are true; many row groups, and more files than may be open."""
    from metromq.pipeline import table_files

    monkeypatch.setattr(table_files, "BUFFER_BYTES", 2_000)
    monkeypatch.setattr(table_files, "OPEN_FILES", open_files)
    table = rows(500, random.Random(1))
    written = list(TaskWriter(store, SPEC, "batch").write(table.to_batches(max_chunksize=40)))
    assert sorted(f"things/{file.path}" for file in written) == names(store)
    assert len({tuple(file.partition.values()) for file in written}) == 9
    assert (len(written) > 9) == (open_files == 1)
    found = []
    for file in written:
        values = {
            "day": file.partition["day"] and date.fromisoformat(file.partition["day"]),
            "broker": file.partition["broker"],
        }
        batches = [
            b for n in (0, 1) for b in read_part(store.inside("things"), Part(file.path, 9, values, n, 2), SPEC.schema)
        ]
        found.append(pa.Table.from_batches(batches, SPEC.schema))
        with store.open(f"things/{file.path}") as source:
            assert source.size() == file.size
            assert pq.ParquetFile(source).metadata.num_rows == len(found[-1])
        numbers = found[-1]["number"].to_pylist()
        assert f'"numRecords": {len(numbers)}, "minValues": {{"number": {min(numbers)}' in file.stats
    assert plain(pa.concat_tables(found)) == plain(table)


def test_files_are_shared_out_between_tasks() -> None:
    dice = random.Random(2)
    for tasks in (1, 2, 5):
        parts = [Part(str(n), dice.choice([0, 1, 1000, 2_500_000])) for n in range(dice.randrange(1, 9))]
        piles = shared_out(parts, tasks)
        pieces = [piece for pile in piles for piece in pile]
        assert all(piles)
        assert len(piles) <= tasks
        assert {piece.path for piece in pieces} == {part.path for part in parts}
        for part in parts:
            own = [piece for piece in pieces if piece.path == part.path]
            assert sorted(piece.number for piece in own) == list(range(own[0].of))
            assert own[0].of == (3 if part.rows == 2_500_000 else 1)


def test_every_table_can_be_written(tmp_path: Path) -> None:
    """A row of nulls, or of no rows at all, in each of the lake's tables."""
    store = store_at(tmp_path)
    for spec in TABLES.values():
        empty = pa.table([pa.nulls(1, item.type) for item in spec.schema], schema=spec.schema)
        (file,) = TaskWriter(store, spec, "batch").write(empty.to_batches())
        assert '"numRecords": 1' in file.stats
        assert list(TaskWriter(store, spec, "batch").write([])) == []


@pytest.mark.parametrize(
    ("place", "settings", "said"),
    [
        ("s3:///lake", {}, "names no bucket, s3://BUCKET/lake"),
        ("s3://", {}, "names no bucket, s3://BUCKET/lake"),
        ("s3:/bucket/lake", {}, "an address begins with s3://"),
        ("abfss:/box/lake", {}, "an address begins with abfss://"),
        ("gs:///lake", {}, "names no bucket, gs://BUCKET/lake"),
        ("gs://bucket/lake", {}, "not set in the environment: GOOGLE_APPLICATION_CREDENTIALS"),
        ("gcs://bucket/lake", {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such"}, "names no file: /no/such"),
        ("abfs://box@account.dfs.core.windows.net/lake", {}, "not set in the environment: AZURE_STORAGE_ACCOUNT_KEY"),
        ("abfss://box/lake", {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}, "it names no storage account"),
        ("hdfs://127.0.0.1:1/lake", {}, "Arrow needs Hadoop's libhdfs"),
    ],
)
def test_what_a_store_lacks_is_said_at_once(place: str, settings: dict[str, str], said: str) -> None:
    """Google's library would look for credentials for minutes, Azure's would end the process."""
    with pytest.raises(UsageError, match=said):
        store_at(place, settings)


@pytest.mark.parametrize("inside", ["", "/deeper/lake"])
def test_a_file_where_a_lake_should_be(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=f"cannot use {tmp_path}/file{inside}: {tmp_path}/file is a file"):
        store_at(f"{tmp_path}/file{inside}").check()
    assert store_at(tmp_path / "new" / "lake").check().root == f"{tmp_path}/new/lake"


def test_addresses_in_azure() -> None:
    settings = {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5", "AZURE_STORAGE_ACCOUNT_NAME": "mine"}
    for place in ("abfs://box@mine.dfs.core.windows.net/a/lake", "abfss://box/a/lake"):
        store = store_at(place, settings)
        assert store.tree.base_path == "box/a/lake/"
        assert store.inside("messages").root.endswith("/a/lake/messages")
    for place in ("abfs://box/lake", "abfs://box@mine.dfs.core.windows.net/lake"):
        for endpoint in ("http://127.0.0.1:10000", "http://127.0.0.1:10000/mine", "http://127.0.0.1:10000/"):
            local = store_at(place, settings | {"AZURE_STORAGE_ENDPOINT": endpoint}).inside("messages")
            assert local.delta_options["azure_allow_http"] == "true"
            assert local.delta_options["AZURE_STORAGE_ENDPOINT"] == "http://127.0.0.1:10000/mine"  # as Arrow has it
