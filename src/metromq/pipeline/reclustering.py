"""Proposes clusters for an overlay from a recorded day, and says what they would save; only what changed is counted."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metromq.documents import read_document
from metromq.errors import UsageError
from metromq.federation import City
from metromq.files import replace_file
from metromq.pipeline.lake import Lake
from metromq.pipeline.whatif import recorded_days
from metromq.reading import read_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TopicClusters:
    """One topic: its clusters, who leads them, whom subscribers get it from, and what changes by it."""

    topic: str
    fingerprint: int  # of who uses the topic, and how much
    clusters: Mapping[str, str]  # broker that publishes it -> founder of its cluster
    leaders: Mapping[str, str]  # founder -> leader
    feeds: Mapping[str, str]  # broker that wants it -> broker that it gets it from
    copies_before: float
    copies_after: float
    km_before: float
    km_after: float
    deliveries: float

    @property
    def is_better(self) -> bool:
        return self.copies_after < self.copies_before or self.km_after < self.km_before


@dataclass(frozen=True, slots=True)
class Proposal:
    """All topics of a day. `counted` are those whose use has changed since the proposal before."""

    day: str
    city: str
    counted: int
    topics: tuple[TopicClusters, ...]

    @property
    def gain(self) -> "Gain":
        return gain(self.topics)


@dataclass(frozen=True, slots=True)
class Gain:
    topics: int
    better: int
    copies_before: float
    copies_after: float
    mean_km_before: float
    mean_km_after: float

    @property
    def sentence(self) -> str:
        if not self.better:
            return f"The clusters that arrival order gives to {self.topics} topics cannot be bettered."
        saved = 1 - self.copies_after / self.copies_before if self.copies_before else 0.0
        nearer = 1 - self.mean_km_after / self.mean_km_before if self.mean_km_before else 0.0
        return (
            f"{self.better} of {self.topics} topics get better clusters: {saved:.1%} fewer copies between brokers, "
            f"and messages travel {nearer:.1%} less far on average than with clusters by order of arrival."
        )


def gain(topics: Iterable[TopicClusters]) -> Gain:
    every = tuple(topics)
    deliveries = sum(one.deliveries for one in every) or 1.0
    return Gain(
        len(every),
        sum(one.is_better for one in every),
        sum(one.copies_before for one in every),
        sum(one.copies_after for one in every),
        sum(one.km_before for one in every) / deliveries,
        sum(one.km_after for one in every) / deliveries,
    )


def propose_clusters(
    spark: "SparkSession", lake: Lake, city: City, day: date | None = None, before: Proposal | None = None
) -> Proposal:
    """From `traffic` and `similarity` of a recorded day, the newest unless said otherwise."""
    from metromq.pipeline.transforms.clusters import usage

    if city.routing != "overlay":
        raise UsageError(f'city {city.name} has routing = "{city.routing}"; only "overlay" has clusters of publishers')
    chosen = recorded_days(lake, day)[-1]
    files = [file for file in lake.files("traffic") if file.partition["day"] == chosen]
    alike = lake.read(spark, "similarity") if lake.exists("similarity") else None
    return proposed(spark, usage(lake.read(spark, "traffic", files)), alike, city, str(chosen), before)


def proposed(
    spark: "SparkSession",
    used: "DataFrame",
    similarity: "DataFrame | None",
    city: City,
    day: str,
    before: Proposal | None = None,
) -> Proposal:
    """Topics that are used as in the proposal before keep what that says."""
    from pyspark.sql import functions as F

    from metromq.pipeline.transforms.clusters import proposals

    alike = similarity.where(F.col("day") == day) if similarity is not None else None
    if alike is None:
        alike = spark.createDataFrame([], "left string, right string, jaccard double")
    known = {one.topic: one for one in before.topics} if before is not None and before.city == city.identity else {}
    kept: list[TopicClusters] = []
    if known:
        same = spark.createDataFrame(
            [(one.topic, one.fingerprint) for one in known.values()], "topic string, mark long"
        )
        joined = used.join(same, "topic", "left")
        is_same = F.col("mark") == F.col("fingerprint")
        kept = [known[row["topic"]] for row in joined.where(is_same).select("topic").collect()]
        used = joined.where(F.coalesce(~is_same, F.lit(True))).drop("mark")
    fresh = [_read(row.asDict()) for row in proposals(used, alike, city).collect()]
    topics = sorted([*kept, *fresh], key=lambda one: one.topic)
    return Proposal(day, city.identity, len(fresh), tuple(topics))


def _read(row: dict[str, Any]) -> TopicClusters:
    return TopicClusters(**row)


def save_proposal(proposal: Proposal, file: Path) -> None:
    import json

    replace_file(file, json.dumps(asdict(proposal)) + "\n", mode=0o644)


def read_proposal(file: Path) -> Proposal:
    return read_data(Proposal, read_document(file))
