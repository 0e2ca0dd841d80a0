"""The columns of every file that lands and of every table of the lake, in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

LANDING_VERSION: Final = 3  # 1 had no kind, origin, origin_offset, properties and expires_at; 2 no journal and arrived
VERSION_KEY: Final = b"metromq.landing"

TIME: Final = pa.timestamp("us", tz="UTC")
RAW: Final = ("messages", "telemetry")  # what brokers said; all other tables are made of it
RAW_ROWS: Final = 1_000_000  # of a file of them: it is read in part, and never written again
KINDS: Final = ("publish", "link", "replay", "will")  # in the order of protocol.session.message.KIND_*

LANDED_MESSAGES: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("offset", pa.int64()),
        ("time", TIME),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("publisher", pa.string()),
        ("origin", pa.string()),
        ("origin_offset", pa.int64()),
        ("properties", pa.binary()),
        ("expires_at", TIME),
        ("journal", pa.string()),  # empty: the first of its broker, recorded before journals had names
        ("arrived", TIME),  # of a copy from a peer; `time` is its origin's
    ]
)

LANDED_TELEMETRY: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("site", pa.string()),
        ("window_start", TIME),
        ("window_seconds", pa.float64()),
        ("sequence", pa.int64()),
        ("subject", pa.string()),  # topic, topic-from, site, link, clock, service-topic or service-device
        ("name", pa.string()),  # the topic, the site, the peer or the service
        # Of topic-from: the broker that published; of a clock: how many microseconds it is ahead; of a service: its
        # topic or device.
        ("detail", pa.string()),
        ("publications", pa.int64()),
        ("published_bytes", pa.int64()),
        ("publishers", pa.int64()),
        ("subscribers", pa.int64()),
        ("deliveries_local", pa.int64()),
        ("deliveries_remote", pa.int64()),
        ("delivered_bytes", pa.int64()),
        ("opened", pa.int64()),
        ("closed", pa.int64()),
        ("connects", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("delay_counts", pa.list_(pa.int64())),  # queueing delay: bucket i counts delays in [2^(i-1), 2^i) microseconds
    ]
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table of the lake: `stats` are the columns whose smallest and largest value each file carries.

    Who wants some minutes of a table reads the files that have some of them, and who replaces some writes the rest of
    these files again. So that this costs what is new, and not what is there, files are small, and in order of time.
    """

    name: str
    purpose: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()  # rows of these subjects are many, and in files of their own
    file_rows: int = 250_000  # no file has more

    @property
    def time(self) -> str | None:
        """The column of time that files are in order of."""
        return next((name for name in ("time", "window_start") if name in self.stats), None)

    @property
    def replaced(self) -> bool:
        """Whether minutes of it are made again."""
        return self.time is not None and self.name not in RAW


def _table(name: str, purpose: str, columns: list[tuple[str, pa.DataType]], by: str = "", stats: str = "") -> TableSpec:
    spec = TableSpec(name, purpose, pa.schema(columns), tuple(by.split()), tuple(stats.split()))
    return replace(spec, file_rows=RAW_ROWS) if name in RAW else spec


_WINDOW: Final = [("day", pa.date32()), ("window_start", TIME), ("topic", pa.string()), ("site", pa.string())]

TABLES: Final[Mapping[str, TableSpec]] = {
    spec.name: spec
    for spec in (
        _table(
            "messages",
            "every recorded message, once, by (broker, journal, offset)",
            [
                ("offset", pa.int64()),
                ("time", TIME),
                ("kind", pa.string()),
                ("topic", pa.string()),
                ("area", pa.string()),
                ("cell", pa.string()),
                ("payload", pa.binary()),
                ("payload_json", pa.string()),
                ("value", pa.float64()),
                ("qos", pa.int32()),
                ("retain", pa.bool_()),
                ("publisher", pa.string()),
                ("origin", pa.string()),
                ("origin_offset", pa.int64()),
                ("properties", pa.binary()),
                ("expires_at", TIME),
                ("journal", pa.string()),
                ("arrived", TIME),
                ("day", pa.date32()),
                ("broker", pa.string()),
            ],
            by="day broker",
            stats="offset time journal",
        ),
        TableSpec(
            "telemetry",
            "what each broker counted, by (broker, window, sequence)",
            pa.schema([*LANDED_TELEMETRY, ("day", pa.date32())]),
            ("day",),
            ("window_start", "window_seconds", "subject"),
            ("topic", "topic-from"),
            RAW_ROWS,
        ),
        _table(
            "sites",
            "where each broker stands, as it last said",
            [("broker", pa.string()), ("site", pa.string()), ("since", TIME)],
        ),
        _table(
            "traffic",
            "topic x broker x minute: publications, bytes, who, how far",
            [
                *_WINDOW,
                ("broker", pa.string()),
                ("publications", pa.int64()),
                ("rate", pa.float64()),
                ("published_bytes", pa.int64()),
                ("publishers", pa.int64()),
                ("subscribers", pa.int64()),
                ("deliveries_local", pa.int64()),
                ("deliveries_remote", pa.int64()),
                ("delivered_bytes", pa.int64()),
                ("opened", pa.int64()),
                ("closed", pa.int64()),
            ],
            by="day",
            stats="window_start",
        ),
        _table(
            "traffic_hours",
            "topic x broker x hour: the same added up, so that a day is small",
            [
                *_WINDOW,
                ("broker", pa.string()),
                ("publications", pa.int64()),
                ("published_bytes", pa.int64()),
                ("publishers", pa.int64()),
                ("subscribers", pa.int64()),
                ("deliveries_local", pa.int64()),
                ("deliveries_remote", pa.int64()),
                ("delivered_bytes", pa.int64()),
            ],
            by="day",
            stats="window_start",
        ),
        _table(
            "locality",
            "site x day: how much of what is wanted is made near by",
            [
                ("day", pa.date32()),
                ("site", pa.string()),
                ("deliveries_local", pa.int64()),
                ("deliveries_remote", pa.int64()),
                ("delivery_locality", pa.float64()),
                ("topics_subscribed", pa.int64()),
                ("topics_local", pa.int64()),
                ("subscription_locality", pa.float64()),
            ],
            by="day",
        ),
        _table(
            "popularity",
            "topic x day: rank by publications",
            [
                ("day", pa.date32()),
                ("topic", pa.string()),
                ("publications", pa.int64()),
                ("subscribers", pa.int64()),
                ("rank", pa.int64()),
                ("share", pa.float64()),
            ],
            by="day",
        ),
        _table(
            "zipf",
            "day: the Zipf exponent that fits the popularity of topics best",
            [
                ("day", pa.date32()),
                ("topics", pa.int64()),
                ("publications", pa.int64()),
                ("exponent", pa.float64()),
            ],
            by="day",
        ),
        _table(
            "similarity",
            "site x site x day: Jaccard index of the topics in use",
            [
                ("day", pa.date32()),
                ("left", pa.string()),
                ("right", pa.string()),
                ("jaccard", pa.float64()),
                ("method", pa.string()),
            ],
            by="day",
        ),
        _table(
            "latency",
            "link x minute: milliseconds from origin to broker",
            [
                ("day", pa.date32()),
                ("window_start", TIME),
                ("origin", pa.string()),
                ("broker", pa.string()),
                ("messages", pa.int64()),
                ("p50_ms", pa.float64()),
                ("p95_ms", pa.float64()),
                ("p99_ms", pa.float64()),
            ],
            by="day",
            stats="window_start",
        ),
        _table(
            "planner_tau",
            "tau[t,d]: bandwidth of topic t between the broker and clients at device d",
            [("topic", pa.string()), ("device", pa.string()), ("mbps", pa.float64())],
        ),
        _table(
            "planner_dsd",
            "dsd[s,d]: user bandwidth of service s from clients at device d",
            [("service", pa.string()), ("device", pa.string()), ("mbps", pa.float64())],
        ),
        _table(
            "planner_dst",
            "dst[s,t]: bandwidth of topic t used by service s",
            [("service", pa.string()), ("topic", pa.string()), ("mbps", pa.float64())],
        ),
        _table(
            "delegation_inputs",
            "topic x site: publishers and subscribers inside and outside",
            [
                ("topic", pa.string()),
                ("site", pa.string()),
                ("publishers_inside", pa.int64()),
                ("publishers_outside", pa.int64()),
                ("subscribers_inside", pa.int64()),
                ("subscribers_outside", pa.int64()),
                ("publications_per_second", pa.float64()),
            ],
        ),
        _table(
            "expired",
            "offsets that `expire` took out on purpose, so that `check` does not miss them",
            [
                ("broker", pa.string()),
                ("first", pa.int64()),
                ("last", pa.int64()),
                ("at", TIME),
                ("journal", pa.string()),
            ],
        ),
    )
}

BUILT_IN: Final = frozenset(TABLES)
