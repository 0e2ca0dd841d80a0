"""Tables of the user's own: SELECTs by window and JSON payloads as columns, against plain Python, as messages come."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.pipeline.ingest import Ingest
from metromq.pipeline.known_tables import declare_own
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import compact, expire, tables
from metromq.pipeline.models import Model, Payloads, read_models
from metromq.pipeline.own_tables import refresh_own
from metromq.pipeline.quick import ask_quickly
from metromq.protocol.session.message import Message
from metromq.protocol.topics import matches
from tests.pipeline.data import DAY_US, T0_US, land_messages, plain_message

MINUTE_US = 60_000_000
HOURLY = """-- key: topic, broker
-- window: 5m
SELECT window_start, topic, broker, count(*) AS messages, max(value) AS most
FROM messages WHERE kind = 'publish' GROUP BY window_start, topic, broker
"""
DAILY = """-- key: broker
-- window: 1d
SELECT window_start, broker, sum(messages) AS messages FROM busy GROUP BY window_start, broker
"""
AIR = """topics = "+/air/#"
required = ["pm10"]

[columns]
pm10 = "double"
count = "bigint"
unit = "string"
ok = "boolean"
"""


def take(spark: SparkSession, lake: Lake, first: int, messages: Sequence[Message]) -> None:
    landing = Landing(lake.landing)
    file = land_messages(landing, "b1", first, messages)
    Ingest(spark, lake, landing, lambda taken: None).take_files([file])


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_toml", ".toml").replace("_sql", ".sql")).write_text(text)
    return folder


def refreshed(spark: SparkSession, lake: Lake, folder: Path) -> tuple[list[str], list[str]]:
    said: list[str] = []
    return refresh_own(spark, lake, read_models(folder), said.append), said


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    declare_own(lake)
    found: list[dict[str, Any]] = lake.arrow(name).to_pylist()
    return found


def twin(lake: Lake) -> dict[tuple[Any, ...], tuple[int, float | None]]:
    found: dict[tuple[Any, ...], list[float | None]] = defaultdict(list)
    for row in lake.arrow("messages").to_pylist():
        moment = row["time"]
        start = moment - timedelta(minutes=moment.minute % 5, seconds=moment.second, microseconds=moment.microsecond)
        if row["kind"] == "publish":
            found[start, row["topic"], row["broker"]].append(row["value"])
    most = {key: max((value for value in values if value is not None), default=None) for key, values in found.items()}
    return {key: (len(values), most[key]) for key, values in found.items()}


def as_twin(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[int, float | None]]:
    return {(row["window_start"], row["topic"], row["broker"]): (row["messages"], row["most"]) for row in rows}


def test_a_model_follows_what_is_new(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    folder = write(tmp_path / "models", busy_sql=HOURLY, per_day_sql=DAILY)
    take(spark, lake, 0, [plain_message(f"t{n % 3}", T0_US + n * MINUTE_US, payload=b"%d" % n) for n in range(12)])
    assert refreshed(spark, lake, folder) == (["busy", "per_day"], [])
    assert as_twin(rows_of(lake, "busy")) == twin(lake)
    assert refreshed(spark, lake, folder) == ([], [])
    before = {file.path for file in lake.files("busy")}
    late = [plain_message("t0", T0_US + MINUTE_US, payload=b"99"), plain_message("t9", T0_US + DAY_US, payload=b"x")]
    take(spark, lake, 12, late)
    assert refreshed(spark, lake, folder) == (["busy", "per_day"], [])
    assert as_twin(rows_of(lake, "busy")) == twin(lake)
    assert before != {file.path for file in lake.files("busy")}
    assert [row["messages"] for row in sorted(rows_of(lake, "per_day"), key=lambda row: row["day"])] == [13, 1]
    assert ask_quickly(lake, "SELECT sum(messages) AS n FROM busy", 9, "1g").rows == [{"n": 14}]


def test_windows_that_did_not_change_are_not_read_again(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "models", busy_sql=HOURLY)
    take(spark, lake, 0, [plain_message("a", T0_US)])
    refreshed(spark, lake, folder)
    take(spark, lake, 1, [plain_message("a", T0_US + DAY_US)])
    read: list[int] = []
    whole = Lake.read

    def spied(self: Lake, spark: SparkSession, name: str, files: Any = None) -> Any:
        if name == "messages" and files:
            read.append(sum(file.rows for file in files))
        return whole(self, spark, name, files)

    monkeypatch.setattr(Lake, "read", spied)
    refreshed(spark, lake, folder)
    assert read == [1]
    assert as_twin(rows_of(lake, "busy")) == twin(lake)


def test_another_select_makes_the_table_anew(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    folder = write(tmp_path / "models", busy_sql=HOURLY)
    take(spark, lake, 0, [plain_message("a", T0_US), plain_message("b", T0_US)])
    refreshed(spark, lake, folder)
    write(folder, busy_sql=HOURLY.replace("count(*) AS messages", "count(*) AS many").replace("5m", "1h"))
    assert refreshed(spark, lake, folder) == (["busy"], [])
    assert sorted(rows_of(lake, "busy")[0]) == ["broker", "day", "many", "most", "topic", "window_start"]
    assert len(rows_of(lake, "busy")) == 2
    assert refreshed(spark, lake, folder) == ([], [])


def test_a_bad_model_is_told_and_stops_no_other(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    take(spark, lake, 0, [plain_message("a", T0_US), plain_message("b", T0_US)])
    head = "-- key: broker\n-- window: 1h\n"
    folder = write(
        tmp_path / "models",
        a_wrong_sql=f"{head}SELECT window_start, broker, nonsense FROM messages",
        b_double_sql=f"{head}SELECT window_start, broker FROM messages",
        c_no_window_sql=f"{head}SELECT broker FROM messages",
        d_no_source_sql=f"{head}SELECT 1",
        e_twice_sql=f"{head}SELECT window_start, broker, 1 AS x, 2 AS X FROM messages",
        f_interval_sql=f"{head}SELECT window_start, broker, max(time) - min(time) AS x FROM messages GROUP BY ALL",
        good_sql=HOURLY,
    )
    changed, said = refreshed(spark, lake, folder)
    assert changed == ["good"]
    wanted = [
        "nonsense",
        "its key is not a key: 2 rows have window_start",
        "no column window_start",
        "reads no table",
        "two columns x; give one another name",
        "can hold the column x of the SELECT, which is duration",
    ]
    assert [part in text for part, text in zip(wanted, said, strict=True)] == [True] * 6


PAYLOADS = [
    (b'{"pm10": 1.5, "count": 3, "unit": "ug", "ok": true, "more": [1]}', None),
    (b'{"pm10": 7}', None),
    (b'{"pm10": null, "unit": "ug"}', "pm10 is missing"),
    (b'{"unit": "ug"}', "pm10 is missing"),
    (b'{"pm10": "high"}', "pm10 is no double"),
    (b'{"pm10": 1, "count": 1.5}', "count is no bigint"),
    (b'{"pm10": 1, "ok": "yes"}', "ok is no boolean"),
    (b'{"pm10": 1, "pm10": 2}', "a name twice"),
    (b'{"pm10": NaN}', "not JSON"),
    (b"[1]", "no object"),
    (b"7", "no object"),
    (b"on", "not JSON"),
    (b"\xff", "not JSON"),
    (b"", "not JSON"),
]


def test_payloads_as_columns_and_those_that_do_not_fit(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    folder = write(tmp_path / "models", air_toml=AIR)
    topics = ["a/air/x", "b/air", "b/air/y/z", "b/airy", "$SYS/air/x", "air/x", "c/d/air", "/air/"]
    messages = [
        plain_message(topic, T0_US + number * 1_000_000, payload=payload)
        for number, (topic, payload) in enumerate((topic, payload) for topic in topics for payload, _ in PAYLOADS)
    ]
    take(spark, lake, 0, messages[:40])
    assert refreshed(spark, lake, folder) == (["air", "air_rejected"], [])
    take(spark, lake, 40, messages[40:])
    assert refreshed(spark, lake, folder)[0]
    wanted = [message for message in messages if matches("+/air/#", message.topic)]
    assert 0 < len(wanted) < len(messages)
    reasons = dict(PAYLOADS)
    fitting = {row["offset"]: row for row in rows_of(lake, "air")}
    others = {row["offset"]: row for row in rows_of(lake, "air_rejected")}
    assert fitting.keys() | others.keys() == {messages.index(message) for message in wanted}
    for number, row in fitting.items():
        assert reasons[messages[number].payload] is None
        said = json.loads(messages[number].payload)
        assert {name: row[name] for name in ("pm10", "count", "unit", "ok")} == {
            name: said.get(name) for name in ("pm10", "count", "unit", "ok")
        }
        assert (row["topic"], row["broker"]) == (messages[number].topic, "b1")
    for number, row in others.items():
        assert str(reasons[messages[number].payload]) in row["reason"]
        assert row["payload"] == messages[number].payload


def test_own_tables_are_listed_merged_and_expired(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    folder = write(tmp_path / "models", busy_sql=HOURLY)
    for number in range(3):
        take(spark, lake, number, [plain_message(f"t{number}", T0_US + number * 10 * MINUTE_US)])
        refreshed(spark, lake, folder)
    assert [(item.table, item.rows, item.own) for item in tables(lake)] == [("messages", 3, False), ("busy", 3, True)]
    assert {item.table: item.files_after for item in compact(lake)}["busy"] == 1
    now = lake.arrow("messages").to_pylist()[0]["time"] + timedelta(days=9)
    assert {item.table: item.rows for item in expire(lake, timedelta(days=2), now, statistics=True)}["busy"] == 3


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"busy_sql": "SELECT 1"}, "busy.sql: has no key; write a line such as `-- key: topic, broker`"),
        ({"busy_sql": "-- key: a\nSELECT 1"}, "has no window"),
        ({"busy_sql": "-- key: a\n-- window: 7h\nSELECT 1"}, "window '7h' must be"),
        ({"busy_sql": "-- key: a\n-- window: soon\nSELECT 1"}, "window 'soon' must be"),
        ({"Bad-Name_sql": HOURLY}, "the name of a table"),
        ({"traffic_sql": HOURLY}, "already a table traffic"),
        ({"air_sql": HOURLY, "air_toml": AIR}, "already a table air"),
        ({"air_rejected_sql": HOURLY, "air_toml": AIR}, "already a table air_rejected"),
        ({"air_toml": AIR.replace("double", "float")}, 'columns.pm10: must be one of string.*not "float"'),
        ({"air_toml": AIR.replace("+/air/#", "air/#/x")}, "topics"),
        ({"air_toml": AIR.replace("unit", "topic")}, "columns.topic"),
        ({"air_toml": AIR.replace('["pm10"]', '["pm2"]')}, '"pm2" is not one of the columns'),
        ({"air_toml": "topics = 3"}, "air.toml"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_models(write(tmp_path / "models", **files))


def test_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "models", busy_sql=HOURLY)
    (folder / "busy.sql").write_bytes("-- Zürich\n".encode("latin-1") + HOURLY.encode())
    with pytest.raises(UsageError, match=r"busy\.sql cannot be read as UTF-8"):
        read_models(folder)


def test_what_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "models", busy_sql=HOURLY, air_toml=AIR)
    payloads, model = read_models(folder)
    assert isinstance(payloads, Payloads)
    assert isinstance(model, Model)
    assert (model.key, model.window_minutes) == (("topic", "broker"), 5)
    with pytest.raises(UsageError, match="there is no directory"):
        read_models(tmp_path / "nowhere")


def test_tables_belong_to_their_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Two lakes of one process, each with a table `mine` of other columns; a third has none."""
    lakes = [Lake(tmp_path / name) for name in ("one", "two", "three")]
    for number, lake in enumerate(lakes[:2]):
        take(spark, lake, 0, [plain_message("a", T0_US)])
        select = f"SELECT window_start, topic, count(*) AS n{number} FROM messages GROUP BY 1, 2"
        sql = f"-- key: topic\n-- window: 1h\n{select}"
        _, said = refreshed(spark, lake, write(tmp_path / f"models{number}", mine_sql=sql))
        assert said == []
    for number, lake in enumerate(lakes[:2]):
        assert [row[f"n{number}"] for row in rows_of(lake, "mine")] == [1]
    assert ["mine" in lake.specs for lake in lakes] == [True, True, False]


class Killed(BaseException):
    """As nothing in the code expects."""


@pytest.mark.parametrize("after", [False, True], ids=["before a commit", "after a commit"])
def test_a_refresh_that_was_killed_is_made_again(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """At each of its commits, in turn; the tables end as if nothing had happened."""
    folder = write(tmp_path / "models", busy_sql=HOURLY, air_toml=AIR)
    payloads = [b'{"pm10": 1.5, "count": 2, "unit": "x", "ok": true}', b"nothing of the kind"]
    for number in range(3):
        take(spark, lake, number, [plain_message("1/air", T0_US + number * MINUTE_US, payload=payloads[number % 2])])
        commit, turns = lake.commit, [number]

        def breaks(*given: Any, turns: list[int] = turns, commit: Any = commit, **named: Any) -> None:
            turns[0] -= 1
            if turns[0] < 0 and not after:
                raise Killed
            commit(*given, **named)
            if turns[0] < 0:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(lake, "commit", breaks)
            with pytest.raises(Killed):
                refreshed(spark, lake, folder)
        fresh = Lake(lake.root)  # another process goes on
        assert refreshed(spark, fresh, folder)[1] == []
    again = Lake(lake.root)
    assert sum(row["messages"] for row in rows_of(again, "busy")) == 3
    assert len(rows_of(again, "air")) == 2
    assert len(rows_of(again, "air_rejected")) == 1
