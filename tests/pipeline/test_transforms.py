"""Every transform against its plain twin, on generated rows."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from metromq.pipeline.landed_rows import message_rows
from metromq.pipeline.schemas import LANDED_MESSAGES, TABLES
from metromq.pipeline.transforms import interest, planner
from metromq.pipeline.transforms.latency import latency
from metromq.pipeline.transforms.messages import to_messages
from metromq.pipeline.transforms.traffic import sites, traffic
from tests.pipeline import twins
from tests.pipeline.twins import Row

pytestmark = pytest.mark.timeout(600)
START = datetime(2026, 3, 1, 23, 57, tzinfo=UTC)


def generated(seed: int) -> tuple[list[Row], list[Row]]:
    """Messages and telemetry of three brokers around midnight; links lead from each to the next."""
    dice = random.Random(seed)
    messages: list[Row] = []
    for broker in ("b0", "b1", "b2"):
        for offset in range(120):
            moment = START + timedelta(seconds=dice.randrange(360), microseconds=dice.randrange(10**6))
            row = dict.fromkeys(TABLES["messages"].schema.names) | {
                "broker": broker,
                "offset": offset,
                "time": moment,
                "day": moment.date(),
                "topic": dice.choice([f"t{min(dice.randrange(9), dice.randrange(9))}"] * 9 + ["$SYS/uptime"]),
                "payload": bytes(dice.randrange(20)),
                "publisher": f"p{dice.randrange(4)}",
                "kind": dice.choice(["publish", "publish", "will", "replay", "link"]),
            }
            if row["kind"] == "link":
                row |= {
                    "origin": f"b{(int(broker[1]) + dice.choice((0, 1, 1, 1))) % 3}",  # or itself, by a detour
                    "origin_offset": dice.choice([None, dice.randrange(150)]),
                }
                row["arrived"] = dice.choice([None, moment + timedelta(microseconds=dice.randrange(10**6))])
            messages.append(row)
    windows = [window_row(dice) for _ in range(80)]
    origins = [row for window in windows for row in origin_rows(dice, window)]
    assert {row["detail"] for row in origins} == {"b0", "b1", "b2"}
    windows += [passed_on(row, topic) for row in windows if row["subject"] == "topic" for topic in ("t0", "t99")]
    return messages, [*windows, *origins]


def origin_rows(dice: random.Random, row: Row) -> list[Row]:
    """Where the deliveries of a window came from; brokers of older versions do not say."""
    if row["subject"] != "topic" or dice.random() < 0.4:
        return []
    cuts = sorted(dice.choices(range(row["deliveries_local"] + 1), k=2))
    counts = (cuts[0], cuts[1] - cuts[0], row["deliveries_local"] - cuts[1])
    none = {name: 0 for name, value in row.items() if isinstance(value, int)}
    return [
        row | none | {"subject": "topic-from", "detail": f"b{number}", "deliveries_local": count}
        for number, count in enumerate(counts)
        if count
    ]


def passed_on(row: Row, topic: str) -> Row:
    """What a broker says of a topic that it only passes on: all zeros."""
    none = {name: 0 for name, value in row.items() if isinstance(value, int)}
    return row | none | {"name": topic}


def window_row(dice: random.Random) -> Row:
    broker = dice.choice(["b0", "b1"])  # b2 sends none: its site is unknown
    seconds = dice.choice([10.0, 10.0, 45.0, 300.0])
    moment = START + timedelta(seconds=10 * dice.randrange(36))
    moment -= timedelta(seconds=moment.timestamp() % seconds)
    subject = dice.choice(["topic"] * 6 + ["link", "service-topic", "service-device"])
    counts = {
        name: dice.randrange(30)
        for name in TABLES["telemetry"].schema.names
        if TABLES["telemetry"].schema.field(name).type == pa.int64()
    }
    return counts | {
        "broker": broker,
        "site": "north",  # both brokers are there
        "window_start": moment,
        "window_seconds": seconds,
        "day": moment.date(),
        "subject": subject,
        "name": "maps"
        if subject.startswith("service")
        else dice.choice(["", "t/#", "+/t", "$SYS/uptime", *(f"t{i}" for i in range(12))]),
        "detail": dice.choice(["x", "y"]),
        "delay_counts": [1, 2],
    }


def frame(spark: SparkSession, name: str, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, TABLES[name].schema))


def result(name: str, rows: DataFrame) -> list[Row]:
    """The rows as the table would hold them, sorted by their text."""
    return ordered(rows.select(*TABLES[name].schema.names).toArrow().cast(TABLES[name].schema).to_pylist())


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [str(row[key]) for key in sorted(row)])


def alike(got: list[Row], wanted: list[Row]) -> None:
    assert len(got) == len(wanted) > 0
    for mine, theirs in zip(got, ordered(wanted), strict=True):
        assert mine == {
            key: pytest.approx(value) if isinstance(value, float) else value for key, value in theirs.items()
        }


@pytest.fixture(scope="module")
def recorded() -> tuple[list[Row], list[Row]]:
    return generated(7)


@pytest.fixture(scope="module")
def flows(recorded: tuple[list[Row], list[Row]]) -> list[Row]:
    return twins.traffic(*recorded)


TOPICS = ("1/2", "1/2\n", "0", "3/", "4/1", "", "1//2", "12/1", "2/x", "/1", "1/2/3/0/bus", "1/2 ", "0/\u0661")
PAYLOADS = (
    b"7",
    b"1e400",
    b'{"value": 2.5}',
    b'{"value": "x"}',
    b"{bad",
    b"",
    b"\xff",
    b'"\xc3\xa9"',
    b"true",
    b"null",
    b"[" * 900 + b"]" * 900,
    b"[" * 100 + b"]" * 100,
)


def test_arrow_makes_the_rows_that_spark_makes(spark: SparkSession) -> None:
    """The ingest takes one way, `repair` the other; columns that older recorders did not know are null."""
    dice = random.Random(3)
    values: dict[str, tuple[Any, ...]] = {
        "kind": (None, "publish", "link"),
        "topic": TOPICS,
        "payload": PAYLOADS,
        "origin": (None, "", "b2"),
        "origin_offset": (None, -1, 0, 5),
        "journal": (None, "", "abc"),
        "properties": (None, b"", b"x"),
        "expires_at": (None, START),
        "arrived": (None, START),
        "time": (START, START + timedelta(minutes=5), datetime(1970, 1, 1, tzinfo=UTC)),
        "qos": (0, 1, 2),
        "retain": (False, True),
        "publisher": ("", "p"),
        "broker": ("b1", "b2"),
    }
    rows = [{name: dice.choice(few) for name, few in values.items()} | {"offset": n} for n in range(500)]
    for name, few in values.items():
        assert {row[name] for row in rows} == set(few)
    landed = pa.Table.from_pylist(rows, LANDED_MESSAGES)
    schema = TABLES["messages"].schema
    theirs = to_messages(spark.createDataFrame(landed)).select(*schema.names).toArrow().cast(schema).sort_by("offset")
    ours = message_rows(landed, theirs["payload_json"].is_valid(), theirs["value"])
    assert ours.to_pylist() == theirs.to_pylist()
    texts = dict(zip(ours["payload"].to_pylist(), ours["payload_json"].to_pylist(), strict=True))
    assert [texts[payload] for payload in PAYLOADS[-2:]] == [None, "[" * 100 + "]" * 100]
    areas = dict(zip(ours["topic"].to_pylist(), ours["area"].to_pylist(), strict=True))
    assert [areas[topic] for topic in TOPICS[:5]] == ["1/2", "1", "0", "3", None]


def test_traffic(spark: SparkSession, recorded: tuple[list[Row], list[Row]]) -> None:
    messages, telemetry = recorded
    counted = frame(spark, "telemetry", telemetry)
    made = traffic(frame(spark, "messages", messages), counted, sites(counted))
    alike(result("traffic", made), twins.traffic(messages, telemetry))


@pytest.mark.parametrize(
    ("name", "make", "twin"),
    [
        ("locality", interest.locality, twins.locality),
        ("popularity", interest.popularity, twins.popularity),
        (
            "delegation_inputs",
            lambda rows: planner.delegation_inputs(rows, 360.0),
            lambda rows: twins.delegation_inputs(rows, 360.0),
        ),
    ],
)
def test_from_traffic(
    spark: SparkSession,
    flows: list[Row],
    name: str,
    make: Callable[[DataFrame], DataFrame],
    twin: Callable[[list[Row]], list[Row]],
) -> None:
    alike(result(name, make(frame(spark, "traffic", flows))), twin(flows))


def test_zipf_is_the_likeliest_exponent(spark: SparkSession, flows: list[Row]) -> None:
    ranked = twins.popularity(flows)
    rows = result("zipf", interest.zipf(frame(spark, "popularity", ranked)))
    assert len(rows) == 2
    for row in rows:
        counts = [item["publications"] for item in ranked if item["day"] == row["day"]]
        best = twins.zipf_likelihood(counts, row["exponent"])
        assert (row["topics"], row["publications"]) == (len(counts), sum(counts))
        for aside in (-0.05, -0.001, 0.001, 0.05):
            assert twins.zipf_likelihood(counts, row["exponent"] + aside) < best


@pytest.mark.parametrize("exponent", [0.3, 1.0, 1.8])
def test_zipf_finds_the_exponent_that_made_the_counts(exponent: float) -> None:
    counts = [round(1e9 * rank**-exponent) for rank in range(1, 2001)]
    weighted = sum(count * log(rank) for rank, count in enumerate(counts, 1))
    assert interest.fit_exponent(len(counts), sum(counts), weighted) == pytest.approx(exponent, abs=1e-4)


def test_similarity_exact(spark: SparkSession, flows: list[Row]) -> None:
    sets = interest.topic_sets(frame(spark, "traffic", flows))
    rows = result("similarity", interest.similarity(sets, exact=True))
    assert {(row["day"], row["left"], row["right"]): pytest.approx(row["jaccard"]) for row in rows} == twins.jaccard(
        flows
    )
    by_topic: dict[Any, set[str]] = {}
    for row in flows:
        if row["publications"] or row["subscribers"]:
            by_topic.setdefault((row["day"], row["topic"]), set()).add(row["site"])
    assert interest.joined_pairs(sets) == sum(len(sites) ** 2 for sites in by_topic.values())


def test_similarity_by_minhash_is_near_the_truth(spark: SparkSession) -> None:
    day = START.date()
    overlap = {"a": range(2000), "b": range(1000, 3000), "c": range(5000, 5100), "d": range(2000)}
    rows = [
        {"day": day, "site": site, "topic": f"t{number}", "publications": 1, "subscribers": 0}
        for site, numbers in overlap.items()
        for number in numbers
    ]
    schema = "day date, site string, topic string, publications bigint, subscribers bigint"
    sets = interest.topic_sets(spark.createDataFrame(rows, schema))
    exact = twins.jaccard(rows)
    for row in result("similarity", interest.similarity(sets, exact=False)):
        truth = exact[row["day"], row["left"], row["right"]]
        assert row["method"] == "minhash"
        assert row["jaccard"] == pytest.approx(truth, abs=0.08 if 0 < truth < 1 else 1e-9)


def test_latency(spark: SparkSession, recorded: tuple[list[Row], list[Row]]) -> None:
    messages, linked = frame(spark, "messages", recorded[0]), [row for row in recorded[0] if row["kind"] == "link"]
    pairs = sorted({(row["origin"], row["broker"], row["arrived"]) for row in linked if row["arrived"] is not None})
    row, clocks = recorded[1][0], list[Row]()
    for number, (origin, broker, arrived) in enumerate(pairs):  # of one pair in three nothing is known, or not when
        shown = [arrived, arrived, arrived - timedelta(days=2)][: number % 4]
        clock = row | {"subject": "clock", "name": origin, "broker": broker, "detail": str(number * 1_000_003)}
        clocks += [clock | {"window_start": at} for at in shown]
    assert clocks
    telemetry = frame(spark, "telemetry", [*recorded[1], *clocks])
    alike(result("latency", latency(messages, telemetry)), twins.latency(recorded[0], [*recorded[1], *clocks]))


def test_planner_inputs(spark: SparkSession, recorded: tuple[list[Row], list[Row]], flows: list[Row]) -> None:
    telemetry = frame(spark, "telemetry", recorded[1])
    cases = {
        "planner_tau": (planner.tau(frame(spark, "traffic", flows), 360.0), twins.tau(flows, 360.0)),
        "planner_dsd": (planner.dsd(telemetry, 360.0), twins.service(recorded[1], "service-device", 360.0)),
        "planner_dst": (planner.dst(telemetry, 360.0), twins.service(recorded[1], "service-topic", 360.0)),
    }
    for name, (made, wanted) in cases.items():
        rows = [tuple(row.values()) for row in result(name, made)]
        assert {row[:2]: pytest.approx(row[2]) for row in rows} == wanted
        assert wanted
