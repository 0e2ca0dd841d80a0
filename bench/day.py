"""A day of a busy city as table files, in the form that ingest, compaction and refreshes give them, in minutes.

Four brokers record 70,000 messages a minute to 5,000 topics, every tenth a copy from a peer, and write a window of
telemetry every 10 seconds. Rows go through the writer that Spark's workers use, which fills files as `compact` does,
but through no landing area and no Spark. Every minute is like the first, and so are its statistics.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metromq.pipeline.lake import Lake
from metromq.pipeline.landed_rows import message_rows
from metromq.pipeline.refreshing import refresh
from metromq.pipeline.schemas import LANDED_MESSAGES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY: Final = date(2026, 1, 1)
BROKERS: Final = 4
MINUTE_ROWS: Final = 70_000
TOPICS: Final = 5_000
MINUTE_US: Final = 60_000_000
WINDOW_US: Final = 10_000_000
_START_US: Final = int(datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC).timestamp()) * 1_000_000
_NEW_OFFSETS: Final = 10**9  # beyond all that a day has


@dataclass(frozen=True, slots=True)
class Minute:
    """The first of the day: what each broker says, and what a refresh makes of it."""

    messages: list[pa.Table]
    telemetry: pa.Table
    traffic: pa.Table
    hours: pa.Table
    latency: pa.Table


def first_minute(session: "SparkSession", lake: Lake) -> Minute:
    """Made in an empty lake, with the real refresh."""
    messages = [_messages(number) for number in range(BROKERS)]
    telemetry = pa.concat_tables([_telemetry(number) for number in range(BROKERS)])
    for rows in messages:
        lake.commit("messages", lake.write_here(rows.to_batches(), "messages"))
    lake.commit("telemetry", lake.write_here(telemetry.to_batches(), "telemetry"))
    refresh(session, lake)
    return Minute(messages, telemetry, *(lake.arrow(name) for name in ("traffic", "traffic_hours", "latency")))


def _topic(number: int) -> str:
    return f"{number % 4}/{number // 4 % 4}/sensor{number}/temperature"


def _messages(broker: int) -> pa.Table:
    count = MINUTE_ROWS // BROKERS
    numbers = np.arange(count)
    linked = numbers % 10 == 9
    times = _START_US + numbers * MINUTE_US // count
    landed: dict[str, Any] = {
        "broker": [f"b{broker}"] * count,
        "offset": numbers,
        "time": pa.array(times).cast(LANDED_MESSAGES.field("time").type),
        "kind": np.where(linked, "link", "publish"),
        "topic": [_topic((n * BROKERS + broker) % TOPICS) for n in range(count)],
        "payload": [b'{"value": %d.%d, "unit": "C"}' % (n % 40, n % 10) for n in range(count)],
        "qos": [1] * count,
        "retain": [False] * count,
        "publisher": [f"client{n % 1000}" for n in range(count)],
        "origin": np.where(linked, f"b{(broker + 1) % BROKERS}", ""),
        "origin_offset": np.where(linked, numbers, -1),
        "properties": [b""] * count,
        "expires_at": pa.nulls(count),
        "journal": ["bench"] * count,
        "arrived": pa.array(times + 5_000, mask=~linked).cast(LANDED_MESSAGES.field("arrived").type),
    }
    rows = pa.table({item.name: pa.array(landed[item.name]).cast(item.type) for item in LANDED_MESSAGES})
    values = pa.chunked_array([pa.array((numbers % 40) + (numbers % 10) / 10)])
    return message_rows(rows, pa.chunked_array([pa.repeat(pa.scalar(True), count)]), values)


def _telemetry(broker: int) -> pa.Table:
    """Six windows: what clients published per topic, what one topic in five delivered, the site, three clocks."""
    schema = TABLES["telemetry"].schema
    mine = [_topic(number) for number in range(broker, TOPICS, BROKERS)]
    peers = [f"b{number}" for number in range(BROKERS) if number != broker]
    rows: list[dict[str, Any]] = [
        *({"subject": "topic", "name": name, "publications": 2, "publishers": 2, "subscribers": 1} for name in mine),
        *({"subject": "topic-from", "name": name, "detail": f"b{broker}", "deliveries_local": 1} for name in mine[::5]),
        {"subject": "site", "name": f"site{broker}", "opened": 1},
        *({"subject": "clock", "name": peer, "detail": "250"} for peer in peers),
    ]
    same = {"broker": f"b{broker}", "site": f"site{broker}", "window_seconds": 10.0, "day": DAY, "delay_counts": []}
    empty: dict[str, object] = {item.name: "" if pa.types.is_string(item.type) else 0 for item in schema}
    starts = [_START_US + number * WINDOW_US for number in range(MINUTE_US // WINDOW_US)]
    moments = [{"window_start": datetime.fromtimestamp(start / 1e6, UTC), "sequence": 1} for start in starts]
    return pa.Table.from_pylist([empty | same | row | moment for moment in moments for row in rows], schema)


def fill(lake: Lake, first: Minute, minutes: int) -> None:
    """The first minutes of the day, with the statistics that follow the messages minute by minute; those of the day
    are left to the next refresh."""
    for rows in first.messages:
        lake.commit("messages", lake.write_here(_later(rows, minutes), "messages"))
    _put(lake, "telemetry", first.telemetry, minutes)
    seen = {name: int(lake.open(name).version()) for name in ("messages", "telemetry")}
    _put(lake, "traffic", first.traffic, minutes, seen)
    hours = pa.concat_tables([_hour(first.hours, number, minutes) for number in range(-(-minutes // 60))])
    made = {"traffic@1": int(lake.open("traffic").version())}
    lake.commit("traffic_hours", lake.write_here(hours.to_batches(), "traffic_hours"), done=made)
    _put(lake, "latency", first.latency, minutes, {"messages": seen["messages"]})


def _later(rows: pa.Table, minutes: int) -> Iterator[pa.RecordBatch]:
    for minute in range(minutes):
        yield from _numbered(_at(rows, minute), minute * len(rows)).to_batches()


def _put(lake: Lake, name: str, rows: pa.Table, minutes: int, done: dict[str, int] | None = None) -> None:
    batches = (batch for minute in range(minutes) for batch in _at(rows, minute).to_batches())
    lake.commit(name, lake.write_here(batches, name), done=done)


def _at(rows: pa.Table, minute: int) -> pa.Table:
    """The same, in another minute of the day."""
    for column in {"time", "arrived", "window_start"} & set(rows.column_names):
        kind = rows.schema.field(column).type
        moved = pc.add(rows[column], pa.scalar(timedelta(minutes=minute), pa.duration("us"))).cast(kind)
        rows = rows.set_column(rows.column_names.index(column), column, moved)
    return rows


def _numbered(rows: pa.Table, first: int) -> pa.Table:
    offsets = pa.array(np.arange(first, first + len(rows)))
    return rows.set_column(rows.column_names.index("offset"), "offset", offsets)


def _hour(rows: pa.Table, hour: int, minutes: int) -> pa.Table:
    """What is counted adds up over the minutes of the hour; how many there are is the most of any."""
    there = min(60, minutes - hour * 60)
    for column in ("publications", "published_bytes", "deliveries_local", "deliveries_remote", "delivered_bytes"):
        rows = rows.set_column(rows.column_names.index(column), column, pc.multiply(rows[column], there))
    return _at(rows, hour * 60)


def more(lake: Lake, first: Minute, minute: int, batch: int, count: int) -> None:
    """Further messages of a minute, as one batch of the ingest brings them, every broker's from its own landed file."""
    each = count // BROKERS
    some = [_numbered(_at(rows.slice(0, each), minute), _NEW_OFFSETS + batch * MINUTE_ROWS) for rows in first.messages]
    lake.commit("messages", lake.write_here(pa.concat_tables(some).to_batches(), "messages"))
