"""`usage` and proposals: which brokers publish and want each topic, and better clusters than arrival order gave."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from metromq.federation import City, haversine_km
from metromq.federation.routing import ClusterWays, Usage, improved

PROPOSAL = pa.schema(
    [
        ("topic", pa.string()),
        ("fingerprint", pa.int64()),
        ("clusters", pa.map_(pa.string(), pa.string())),
        ("leaders", pa.map_(pa.string(), pa.string())),
        ("feeds", pa.map_(pa.string(), pa.string())),
        ("copies_before", pa.float64()),
        ("copies_after", pa.float64()),
        ("km_before", pa.float64()),
        ("km_after", pa.float64()),
        ("deliveries", pa.float64()),
    ]
)
DDL = (
    "topic string, fingerprint bigint, clusters map<string,string>, leaders map<string,string>, "
    "feeds map<string,string>, copies_before double, copies_after double, km_before double, km_after double, "
    "deliveries double"
)


def usage(traffic: DataFrame) -> DataFrame:
    """Per topic: its brokers with what they published, whether they want it, and since when, in order of arrival.

    The fingerprint changes with who publishes and who wants the topic, and when somebody publishes twice as much.
    """
    is_wanted = F.max("subscribers") > 0
    rows = traffic.groupBy("topic", "broker").agg(
        F.sum("publications").cast("double").alias("publications"),
        is_wanted.alias("wanted"),
        F.min("window_start").alias("since"),
    )
    used = rows.where((F.col("publications") > 0) | F.col("wanted"))
    one = F.struct("since", "broker", "publications", "wanted")
    mark = F.xxhash64("broker", "wanted", F.floor(F.log2(F.col("publications") + 1)))
    return used.groupBy("topic").agg(
        F.array_sort(F.collect_list(one)).alias("brokers"), F.sum(mark % (1 << 40)).alias("fingerprint")
    )


def proposals(usage: DataFrame, similarity: DataFrame, city: City) -> DataFrame:
    """For every topic that is published: the clusters that arrival order gives, improved, and what both cost.

    `similarity` has rows (left, right, jaccard) of sites.
    """
    alike = {(row["left"], row["right"]): row["jaccard"] for row in similarity.collect()}
    places = {spec.name: (spec.site or spec.name, *city.place_of(spec.name)) for spec in city.brokers}
    known = F.filter("brokers", lambda one: one["broker"].isin(list(places)))
    rows = usage.withColumn("brokers", known).where(F.exists("brokers", lambda one: one["publications"] > 0))
    return rows.mapInArrow(_propose(places, alike, city.overlay.max_distance_km), DDL)


Places = Mapping[str, tuple[str, float, float]]  # of brokers: site, latitude, longitude
Batches = Callable[[Iterable[Any]], Iterator[Any]]


def _propose(places: Places, alike: Mapping[tuple[str, str], float], most_km: float) -> Batches:
    def work(batches: Iterable[Any]) -> Iterator[Any]:
        ground = Ground(places, alike)
        for batch in batches:
            found = [_row(item, ground, most_km) for item in batch.to_pylist()]
            if found:
                yield pa.RecordBatch.from_pylist(found, schema=PROPOSAL)

    return work


def _row(item: Mapping[str, Any], ground: "Ground", most_km: float) -> dict[str, Any]:
    brokers = item["brokers"]
    rates = {one["broker"]: one["publications"] for one in brokers if one["publications"] > 0}
    used = Usage(rates, frozenset(one["broker"] for one in brokers if one["wanted"]))
    start = by_arrival(list(rates), used.wanting, ground, most_km)
    best, before, after = improved(used, start, ground.distance_km, most_km)
    return {
        "topic": item["topic"],
        "fingerprint": item["fingerprint"],
        "clusters": list(best.clusters.items()),
        "leaders": list(best.leaders.items()),
        "feeds": list(best.feeds.items()),
        "copies_before": before.copies,
        "copies_after": after.copies,
        "km_before": before.km,
        "km_after": after.km,
        "deliveries": after.deliveries,
    }


def by_arrival(publishers: list[str], wanting: AbstractSet[str], ground: "Ground", most_km: float) -> ClusterWays:
    """What the overlay's algorithms give when brokers come in this order, with `similarity` for what both want."""
    clusters: dict[str, str] = {}
    leaders: dict[str, str] = {}
    feeds: dict[str, str] = {}
    ways = ClusterWays(clusters, leaders, feeds)

    def near(broker: str, founder: str) -> float:
        members = ways.members(founder)
        return sum(ground.distance_km(broker, one) for one in members) / len(members)

    def utility(broker: str, founder: str) -> float:
        members = ways.members(founder)
        return sum(ground.alike(broker, one) for one in members) / len(members) / max(near(broker, founder), 0.001)

    for publisher in publishers:
        founders = [one for one in dict.fromkeys(clusters.values()) if near(publisher, one) <= most_km]
        order = sorted(founders, key=lambda one: (-utility(publisher, one), near(publisher, one), one))
        founder = order[0] if order else publisher
        clusters[publisher] = founder
        leaders.setdefault(founder, founder)
    founders = list(leaders)
    for subscriber in sorted(wanting - clusters.keys()):
        nearest = min(founders, key=lambda one: (near(subscriber, one), one))
        feeds[subscriber] = min(
            ways.members(nearest),
            key=lambda one: (-ground.alike(subscriber, one), ground.distance_km(subscriber, one), one),
        )
    return ways


class Ground:
    """Distances from the map, and how alike brokers are."""

    def __init__(self, places: Places, alike: Mapping[tuple[str, str], float]) -> None:
        self._places, self._alike = places, alike
        self._km: dict[tuple[str, str], float] = {}

    def distance_km(self, one: str, other: str) -> float:
        pair = (one, other) if one < other else (other, one)
        found = self._km.get(pair)
        if found is None:
            found = self._km[pair] = haversine_km(*self._places[one][1:], *self._places[other][1:])
        return found

    def alike(self, one: str, other: str) -> float:
        left, right = sorted((self._places[one][0], self._places[other][0]))
        return 1.0 if left == right else self._alike.get((left, right), 0.0)
