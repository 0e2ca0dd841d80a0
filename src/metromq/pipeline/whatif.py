"""What if the city were routed otherwise? Takes a recorded day and counts what every choice would have cost."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metromq.errors import UsageError
from metromq.federation import City
from metromq.pipeline.counting import CHOICES, ENTRY_BYTES, TOPIC_BYTES, demand
from metromq.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOUD: Final = "(cloud)"
_ROWS_PER_TASK: Final = 4_000_000
_COLUMNS: Final = ("messages_in", "messages_out", "between", "table_topics", "table_entries")
_RESULT: Final = "choice string, site int, " + ", ".join(f"{name} double" for name in _COLUMNS)


@dataclass(frozen=True, slots=True)
class SiteCost:
    """What one site's broker would have to do in the day."""

    site: str
    messages_in: float
    messages_out: float
    messages_between: float
    table_topics: int
    table_entries: int

    @property
    def table_bytes(self) -> int:
        return TOPIC_BYTES * self.table_topics + ENTRY_BYTES * self.table_entries


@dataclass(frozen=True, slots=True)
class ChoiceCost:
    """One routing choice or delegation policy."""

    choice: str
    sites: tuple[SiteCost, ...]
    cloud: SiteCost

    @property
    def messages_between(self) -> float:
        return sum(site.messages_between for site in self.sites) + self.cloud.messages_between

    def mean(self, value: Callable[[SiteCost], float]) -> float:
        return sum(map(value, self.sites)) / len(self.sites)

    def most(self, value: Callable[[SiteCost], float]) -> float:
        return max(map(value, self.sites))


@dataclass(frozen=True, slots=True)
class Places:
    """The sites by number, the one in the middle, and who is responsible for which area."""

    sites: tuple[str, ...]
    central: int
    areas: dict[str, int]
    level: int  # digits of an area


def what_if(
    spark: "SparkSession",
    lake: Lake,
    choices: Sequence[str],
    day: date | None = None,
    city: City | None = None,
) -> list[ChoiceCost]:
    """Count a recorded day, the newest unless said otherwise."""
    check_choices(choices)
    chosen = recorded_days(lake, day)[-1]
    files = [file for file in lake.files("traffic") if file.partition["day"] == chosen]
    traffic = placed(lake.read(spark, "traffic", files), city)
    tasks = max(2, -(-sum(file.rows for file in files) // _ROWS_PER_TASK))
    return count(traffic, choices, places(traffic, city), tasks)


def check_choices(choices: Sequence[str]) -> None:
    unknown = [choice for choice in choices if choice not in CHOICES]
    if unknown:
        raise UsageError(f"unknown choice {', '.join(unknown)}; the choices are {', '.join(CHOICES)}")


def recorded_days(lake: Lake, last: date | None = None) -> list[date]:
    """The days that `traffic` has, up to `last`, which it must have; oldest first."""
    if last is None:
        days = lake.days("traffic")
    else:
        every = {file.partition["day"] for file in lake.files("traffic")} if lake.exists("traffic") else set()
        days = sorted(day for day in every if day <= last)
    if not days or (last is not None and last != days[-1]):
        raise UsageError(f"{lake.root} has no traffic for {last or 'any day'}; run `metromq pipeline run` first")
    return days


def placed(traffic: "DataFrame", city: City | None) -> "DataFrame":
    """A city's file says where its brokers stand, whatever they said when they recorded."""
    from pyspark.sql import functions as F

    if city is None:
        return traffic
    pairs = [F.lit(text) for spec in city.brokers for text in (spec.name, spec.site or spec.name)]
    return traffic.withColumn("site", F.coalesce(F.create_map(*pairs)[F.col("broker")], "site"))


def places(traffic: "DataFrame", city: City | None = None) -> Places:
    """From the city's file; without one the busiest site is in the middle, and the busiest of each area owns it."""
    from pyspark.sql import functions as F

    level = city.areas.l_b if city is not None else 2
    area = _area("topic", level)
    cells = traffic.groupBy("site", area.alias("area")).agg(F.sum("publications").alias("publications")).collect()
    seen = {row["site"] for row in cells}
    if city is not None:
        where = {spec.name: spec.site or spec.name for spec in city.brokers}
        names = tuple(dict.fromkeys([*where.values(), *sorted(seen)]))
        number = {name: index for index, name in enumerate(names)}
        homes = {area: number[where[broker]] for area, broker in city.homes.items()}
        central = number[where.get(city.central, names[0])]
        return Places(names, central, homes, level)
    names = tuple(sorted(seen))
    number = {name: index for index, name in enumerate(names)}
    busiest: dict[str, tuple[int, str]] = {}
    total: dict[str, int] = {}
    for row in cells:
        total[row["site"]] = total.get(row["site"], 0) + row["publications"]
        if row["area"] is not None:
            busiest[row["area"]] = max(busiest.get(row["area"], (-1, "")), (row["publications"], row["site"]))
    central = number[max(names, key=lambda name: (total[name], name))]
    return Places(names, central, {name: number[site] for name, (_, site) in busiest.items()}, level)


def _area(topic: str, level: int) -> Any:
    """The area at a level: a topic with fewer digits belongs to the first area inside its own, as in topics.areas."""
    from pyspark.sql import functions as F

    digits = F.regexp_extract(topic, rf"^([0-3](?:/[0-3]){{0,{level - 1}}})(?:/|$)", 1)
    padded = F.rpad(digits, 2 * level - 1, "/0")
    return F.when(digits != "", padded)


def count(traffic: "DataFrame", choices: Sequence[str], where: Places, tasks: int) -> list[ChoiceCost]:
    """One shuffle brings every topic's rows together; numpy counts; a small sum joins the tasks."""
    from pyspark.sql import functions as F

    # A hash of the topic stands for it: 8 bytes travel instead of a text, and two of 100 million topics meet once in
    # 4,000 runs, to no visible effect on a sum over all of them.
    rows = (
        traffic.select(
            F.xxhash64("topic").alias("topic"),
            "site",
            "broker",
            "publications",
            "subscribers",
            _area("topic", where.level).alias("area"),
        )
        .repartition(tasks, "topic")
        .groupBy("topic", "site", "broker")
        .agg(
            F.sum("publications").alias("publications"),
            F.max("subscribers").alias("subscribers"),
            F.first("area").alias("area"),
        )
        .groupBy("topic", "site")
        .agg(*(F.sum(name).alias(name) for name in ("publications", "subscribers")), F.first("area").alias("area"))
    )
    wanted = tuple(choices)

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        held = list(batches)
        if sum(batch.num_rows for batch in held):
            yield _count_table(pa.Table.from_batches(held), wanted, where)

    parts = rows.mapInArrow(task, _RESULT)
    sums = parts.groupBy("choice", "site").agg(*(F.sum(name).alias(name) for name in _COLUMNS)).collect()
    found = {(row["choice"], row["site"]): row for row in sums}
    return [
        ChoiceCost(
            choice,
            tuple(_site_cost(name, found[choice, index]) for index, name in enumerate(where.sites)),
            _site_cost(CLOUD, found[choice, len(where.sites)]),
        )
        for choice in choices
    ]


def _site_cost(name: str, row: Any) -> SiteCost:
    return SiteCost(
        name,
        row["messages_in"],
        row["messages_out"],
        row["between"],
        round(row["table_topics"]),
        round(row["table_entries"]),
    )


def _count_table(table: Any, choices: Sequence[str], where: Places) -> Any:
    """All choices for the topics of one task."""
    site = pc.index_in(table["site"], value_set=pa.array(where.sites)).to_numpy().astype(np.int64)
    areas = list(where.areas)
    place = pc.fill_null(pc.index_in(table["area"], value_set=pa.array(areas, pa.string())), -1).to_numpy()
    owner = np.array([*where.areas.values(), -1], np.int64)[place]
    rows = demand(
        len(where.sites),
        table["topic"].to_numpy(),
        site,
        table["publications"].to_numpy().astype(np.float64),
        table["subscribers"].to_numpy().astype(np.float64),
        owner,
    )
    count = len(where.sites) + 1
    names: list[str] = []
    columns: list[list[Any]] = [[] for _ in _COLUMNS]
    for choice in choices:
        cost = CHOICES[choice](rows, where.central)
        names += [choice] * count
        for column, name in zip(columns, _COLUMNS, strict=True):
            column.append(getattr(cost, name))
    numbers = np.tile(np.arange(count, dtype=np.int32), len(choices))
    arrays = [pa.array(names), pa.array(numbers), *(pa.array(np.concatenate(column)) for column in columns)]
    return pa.RecordBatch.from_arrays(arrays, names=["choice", "site", *_COLUMNS])
