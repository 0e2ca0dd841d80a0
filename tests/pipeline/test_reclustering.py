"""Clusters proposed on Spark: as counted in plain Python, never worse, and only for what has changed."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.federation.city import BrokerSpec, City, LinkSecurity, grid_city
from metromq.federation.routing import Usage, improved
from metromq.pipeline.lake import Lake
from metromq.pipeline.reclustering import propose_clusters, proposed, read_proposal, save_proposal
from metromq.pipeline.schemas import TABLES
from metromq.pipeline.transforms.clusters import Ground, by_arrival, usage

pytestmark = pytest.mark.timeout(600)
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = "2026-03-01"


def city() -> City:
    dice = Random(3)
    specs = tuple(
        BrokerSpec(f"b{one}", latitude=35 + dice.random() / 2, longitude=139 + dice.random() / 2) for one in range(20)
    )
    return City(specs, routing="overlay", links=LinkSecurity(secret="a secret for tests"))


def minutes(seed: int) -> list[dict[str, object]]:
    dice = Random(seed)
    rows: list[dict[str, object]] = []
    for number in range(8):
        for broker in dice.sample(range(20), 12):
            row = dict.fromkeys(TABLES["traffic"].schema.names) | {
                "window_start": START + timedelta(minutes=dice.randrange(60)),
                "day": date(2026, 3, 1),
                "topic": f"t{number}",
                "site": f"b{broker}",
                "broker": f"b{broker}",
                "publications": dice.choice((0, 1, 5, 40)),
                "subscribers": dice.choice((0, 0, 2)),
            }
            rows.append(row)
    return rows


def frame(spark: SparkSession, seed: int) -> object:
    return spark.createDataFrame(pa.Table.from_pylist(minutes(seed), TABLES["traffic"].schema))


def test_a_proposal_is_what_plain_python_counts_and_only_changes_are_counted_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    town, alike = city(), {("b1", "b2"): 0.5}
    similar = spark.createDataFrame(
        [(date(2026, 3, 1), "b1", "b2", 0.5)], "day date, left string, right string, jaccard double"
    )
    found = proposed(spark, usage(frame(spark, 1)), similar, town, DAY)
    ground = Ground({name: (name, *town.place_of(name)) for name in town.names}, alike)
    rows = minutes(1)
    for one in found.topics:
        used = sorted(
            (row for row in rows if row["topic"] == one.topic), key=lambda row: (row["window_start"], row["broker"])
        )
        rates = {str(row["broker"]): float(row["publications"]) for row in used if row["publications"]}  # type: ignore[arg-type]
        wanting = frozenset(str(row["broker"]) for row in used if row["subscribers"])
        start = by_arrival(list(rates), wanting, ground, 10.0)
        best, before, after = improved(Usage(rates, wanting), start, ground.distance_km, 10.0)
        assert (one.clusters, one.leaders, one.feeds) == (best.clusters, best.leaders, best.feeds)
        assert (one.copies_before, one.copies_after) == pytest.approx((before.copies, after.copies))
        assert (one.km_before, one.km_after) == pytest.approx((before.km, after.km))
    gain = found.gain
    assert (found.counted, gain.topics) == (8, 8)
    assert gain.better > 2
    assert gain.copies_after < gain.copies_before
    assert gain.mean_km_after <= gain.mean_km_before
    assert "fewer copies" in gain.sentence
    save_proposal(found, tmp_path / "clusters.json")
    kept = read_proposal(tmp_path / "clusters.json")
    assert kept == found
    again = proposed(spark, usage(frame(spark, 1)), similar, town, DAY, kept)
    assert (again.counted, again.topics) == (0, found.topics)
    changed = usage(frame(spark, 1)).where("topic != 't3'").union(usage(frame(spark, 2)).where("topic = 't3'"))
    assert proposed(spark, changed, similar, town, DAY, kept).counted == 1


def test_only_an_overlay_has_clusters(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(UsageError, match='only "overlay"'):
        propose_clusters(spark, lake, grid_city())
