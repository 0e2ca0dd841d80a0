"""DuckDB's answers against Spark's, on the same lake: where both may answer, both say the same."""

import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.pipeline import plain_sql, quick
from metromq.pipeline.ingest import Ingest
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import ask
from metromq.pipeline.plain_sql import NotPlain
from metromq.pipeline.quick import ask_quickly
from metromq.pipeline.refreshing import refresh
from metromq.protocol.session.message import Message
from metromq.telemetry.windows import TelemetryRow
from tests.pipeline.data import DAY_US, T0_US, land, land_messages, land_window, window

LIMIT = 1000


@pytest.fixture(scope="module")
def full(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Several brokers, days and files; odd topics; nulls in most columns."""
    lake = Lake(tmp_path_factory.mktemp("quick") / "lake")
    landing = Landing(lake.landing)
    files = [land(landing, broker, first, 60, seed) for seed, broker in enumerate(("b1", "b2")) for first in (0, 60)]
    odd = [
        Message(topic, payload, 1, False, time_us=T0_US + DAY_US + number * 7_000_000, publisher="é")
        for number, (topic, payload) in enumerate(
            [("straße/😀", b"1e400"), ("a_b/100%", b"-0.5"), ("a/b", b"9007199254740993"), ("a/b", b"0.1")]
        )
    ]
    files.append(land_messages(landing, "b1", 120, odd))
    files.append(
        land_window(landing, window("b2", T0_US, [TelemetryRow("topic", "a/b", publications=9, subscribers=2)]))
    )
    Ingest(spark, lake, landing, lambda taken: None).take_files(files)
    refresh(spark, lake)
    return lake


def same(spark: SparkSession, lake: Lake, query: str) -> list[dict[str, Any]]:
    quickly, slowly = ask_quickly(lake, query, LIMIT, "1g"), ask(spark, lake, query, LIMIT)
    assert quickly.columns == slowly.columns
    if "ORDER BY" in query and "OVER" not in query:
        assert quickly.rows == slowly.rows, query
    else:
        assert sorted(map(repr, quickly.rows)) == sorted(map(repr, slowly.rows)), query
    return quickly.rows


PLAIN = [
    "SELECT * FROM messages",
    "SELECT topic, count(*), avg(value) FROM messages GROUP BY topic",
    "SELECT topic, count(*) AS n FROM messages GROUP BY topic ORDER BY n DESC, topic LIMIT 3",
    "select Topic, COUNT(DISTINCT publisher), max(time) from Messages group by 1 order by 1",
    "SELECT broker, day, sum(qos), sum(offset) AS offsets FROM messages GROUP BY broker, day",
    "SELECT value FROM messages ORDER BY value, topic, broker, offset",
    "SELECT value, area FROM messages ORDER BY value DESC, area, broker, offset LIMIT 40",
    "SELECT topic, time FROM messages WHERE time > '2024-10-04 00:00:30' AND time <= TIMESTAMP '2024-10-04 00:01:00'",
    "SELECT count(*) AS n FROM messages WHERE day = DATE '2024-10-05' OR day = '2024-10-04'",
    "SELECT count(*) AS n FROM messages WHERE time > now() - INTERVAL 10 MINUTES",
    "SELECT time - INTERVAL 1 DAY AS before, date_trunc('hour', time) AS hour FROM messages",
    "SELECT date_trunc('minute', time) AS minute, count(*) AS n FROM messages GROUP BY 1 ORDER BY minute",
    "SELECT date_trunc('week', time) AS week, hour(time) AS h, minute(time) AS m FROM messages GROUP BY 1, 2, 3",
    "SELECT topic FROM messages WHERE topic LIKE 'a_b/%' OR topic NOT LIKE '%sensor%'",
    "SELECT split_part(topic, '/', 1) AS first, split_part(topic, '/', 9) AS last, length(topic) AS n FROM messages",
    "SELECT qos / 2 AS half, offset % 7 AS seventh, offset / 1000 AS k, abs(value) FROM messages",
    "SELECT avg(qos) AS a, avg(offset) AS b, min(topic) AS c, max(payload_json) AS d FROM messages",
    "SELECT value * 2 + 1 AS v, value > 0.5 AS big, -value AS minus FROM messages",
    "SELECT value * 1.8 + 32 AS fahrenheit FROM messages WHERE value IS NOT NULL",
    "SELECT coalesce(area, 'none') AS area, nullif(kind, 'publish') AS kind, payload FROM messages",
    "SELECT greatest(value, 3.0, NULL) AS g, least(offset, 3) AS l FROM messages",
    "SELECT kind IN ('publish', 'will') AS own, topic BETWEEN 'a' AND 'b' AS between_, NOT retain AS r FROM messages",
    "SELECT CASE WHEN value > 7 THEN 'hot' WHEN value IS NULL THEN 'none' ELSE 'cold' END AS w FROM messages",
    "SELECT count(*) AS n FROM messages GROUP BY topic HAVING count(*) > 5",
    "SELECT count(value) AS n, sum(value) FILTER (WHERE qos = 1) AS one FROM messages WHERE value < 100",
    "SELECT m.topic, t.publications FROM messages m LEFT JOIN traffic t ON m.topic = t.topic AND m.broker = t.broker",
    "SELECT a.topic FROM popularity a JOIN (SELECT max(rank) AS r FROM popularity) b ON a.rank = b.r",
    "WITH busy AS (SELECT topic FROM popularity WHERE rank <= 3) SELECT * FROM busy UNION ALL SELECT site FROM sites",
    "SELECT topic FROM messages WHERE topic IN (SELECT topic FROM popularity WHERE rank = 1)",
    "SELECT DISTINCT broker, kind FROM messages",
    "SELECT topic, rank, row_number() OVER (PARTITION BY day ORDER BY rank) AS n FROM popularity",
    "SELECT topic, sum(publications) OVER (ORDER BY rank) AS running FROM popularity",
    "SELECT * FROM zipf",
    "SELECT offset AS o, 'offset' AS word FROM messages ORDER BY offset, broker LIMIT 5 OFFSET 3",
    "SELECT * FROM traffic ORDER BY day, window_start, topic, broker",
    "SELECT * FROM telemetry WHERE false",
    "SELECT 1 AS one, 'x' AS x, true AS yes",
]


@pytest.mark.parametrize("query", PLAIN)
def test_both_say_the_same(spark: SparkSession, full: Lake, query: str) -> None:
    rows = same(spark, full, query)
    assert rows or "now()" in query or "false" in query


def test_made_up_questions(spark: SparkSession, full: Lake) -> None:
    """Columns, conditions, groups and orders in any combination."""
    random_ = random.Random(7)
    columns = ["topic", "kind", "qos", "value", "area", "time", "broker", "day", "offset", "retain", "publisher"]
    conditions = [
        "value > 7",
        "value IS NULL",
        "topic LIKE '%/sensor3/%'",
        "qos = 1",
        "NOT retain",
        "area IN ('0', '1', '2/3')",
        "time >= '2024-10-04 00:00:20'",
        "day <> '2024-10-05'",
        "offset % 3 = 1",
        "length(topic) > 25",
        "broker = 'b2'",
    ]
    measures = ["count(*)", "min(value)", "max(time)", "count(DISTINCT topic)", "sum(offset)", "avg(qos)", "max(area)"]
    for _ in range(12):
        where = f" {random_.choice(('AND', 'OR'))} ".join(random_.sample(conditions, random_.randint(1, 3)))
        keys = random_.sample(columns, random_.randint(1, 3))
        wanted = ", ".join([*keys, *random_.sample(measures, random_.randint(1, 3))])
        order = ", ".join(f"{key} {random_.choice(('ASC', 'DESC', 'ASC NULLS LAST'))}" for key in keys)
        same(spark, full, f"SELECT {wanted} FROM messages WHERE {where} GROUP BY {', '.join(keys)} ORDER BY {order}")


NOT_PLAIN = {
    "SELECT json:unit::string FROM messages": "a cast",
    "SELECT json FROM messages": "VARIANT",
    'SELECT topic FROM messages WHERE kind = "publish"': "double quotes",
    "SELECT topic FROM messages WHERE topic LIKE 'a\\_b%'": "backslash",
    "SELECT `topic` FROM messages": "backticks",
    "SELECT round(value, 1) AS v FROM messages": "the function round",
    "SELECT upper(topic) AS t FROM messages": "the function upper",
    "SELECT value / qos AS v FROM messages": "by zero",
    "SELECT offset / 0 AS v FROM messages": "by zero",
    "SELECT CAST(value AS INT) AS v FROM messages": "a cast",
    "SELECT count(*) * 0.5 AS v FROM messages": "the type decimal",
    "SELECT max(arrived - time) AS v FROM messages": "the type",
    "SELECT value + 1 FROM messages": "without a name",
    "SELECT *, value + 1 FROM messages": "beside *",
    "SELECT * FROM messages JOIN sites USING (broker)": "a join",
    "SELECT topic, count(*) FROM messages GROUP BY ROLLUP (topic)": "groupings",
    "SELECT count(*) AS n FROM messages TABLESAMPLE (10 PERCENT)": "sample",
    "SELECT percentile(value, 0.5) AS p FROM messages": "percentile",
    "SELECT count(*) AS n FROM read_csv('x.csv')": "TABLE_FUNCTION",
    "DESCRIBE messages": "SHOW_REF",
    "SHOW TABLES": "SHOW_REF",
    "DELETE FROM messages": "does not know",
    "SELECT 1; SELECT 2": "does not know",
    "nonsense": "does not know",
    "SELECT first(topic ORDER BY time) AS f FROM messages": "order",
    "SELECT topic FROM messages WHERE topic = 3": "DuckDB cannot do",
}


@pytest.mark.parametrize(("query", "why"), NOT_PLAIN.items())
def test_what_only_spark_may_answer(full: Lake, query: str, why: str) -> None:
    with pytest.raises(NotPlain, match=why):
        ask_quickly(full, query, LIMIT, "1g")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nowhere", "there is no table nowhere \\(tables: messages, "),
        ("SELECT tpic FROM messages", '"tpic" not found.*columns: messages: offset, time'),
    ],
)
def test_a_slip_of_the_pen_is_told_at_once(full: Lake, query: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ask_quickly(full, query, LIMIT, "1g")


def test_the_twin_would_notice(spark: SparkSession, full: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that the two understand otherwise, if it were on the list."""
    monkeypatch.setattr(plain_sql, "_FUNCTIONS", plain_sql._FUNCTIONS | {"upper", "round"})
    with pytest.raises(AssertionError):
        same(spark, full, "SELECT upper(topic) AS t FROM messages")


def test_moments_have_their_zone_and_rows_a_limit(full: Lake) -> None:
    (row,) = ask_quickly(full, "SELECT time FROM messages ORDER BY time", 1, "512m").rows
    assert row["time"] == datetime.fromisoformat("2024-10-04T00:00:00+00:00")


def test_a_table_without_files_is_empty(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.open("messages")
    assert ask_quickly(lake, "SELECT count(*) FROM messages", 5, "1g").rows == [{"count(1)": 0}]
    assert quick.dataset(lake, "messages").num_rows == 0
    assert json.dumps(ask_quickly(lake, "SELECT * FROM messages", 5, "1g").columns)
