"""`locality`, `popularity`, `zipf` and `similarity`: who wants what, how near it is made, how alike sites are."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from metromq.pipeline.transforms.traffic import per_site

MINHASH_BUCKETS: Final = 1024  # standard error of an estimated Jaccard index: at most 1 / (2 * sqrt(1024)) = 1.6 %
EXACT_PAIRS: Final = 50_000_000  # so many joined rows take a minute; beyond, MinHash
_EXPONENTS: Final = (0.0, 20.0)


def locality(traffic: DataFrame) -> DataFrame:
    """Per day and site: deliveries near and far, and how many subscribed topics the site itself publishes."""
    topics = per_site(traffic, ["day"], ["publications", "deliveries_local", "deliveries_remote"], ["subscribers"])
    wanted = F.col("subscribers") > 0
    rows = topics.groupBy("day", "site").agg(
        F.sum("deliveries_local").alias("deliveries_local"),
        F.sum("deliveries_remote").alias("deliveries_remote"),
        F.count_if(wanted).alias("topics_subscribed"),
        F.count_if(wanted & (F.col("publications") > 0)).alias("topics_local"),
    )
    return rows.withColumn(
        "delivery_locality", F.try_divide("deliveries_local", F.col("deliveries_local") + F.col("deliveries_remote"))
    ).withColumn("subscription_locality", F.try_divide("topics_local", "topics_subscribed"))


def popularity(traffic: DataFrame) -> DataFrame:
    """Topics of a day by publications, the most popular first; topics nobody published have no rank."""
    topics = (
        per_site(traffic, ["day"], ["publications"], ["subscribers"])
        .groupBy("day", "topic")
        .agg(F.sum("publications").alias("publications"), F.sum("subscribers").alias("subscribers"))
        .where(F.col("publications") > 0)
    )
    order = Window.partitionBy("day").orderBy(F.desc("publications"), "topic")
    return topics.withColumn("rank", F.row_number().over(order).cast("bigint")).withColumn(
        "share", F.col("publications") / F.sum("publications").over(Window.partitionBy("day"))
    )


def zipf(popularity: DataFrame) -> DataFrame:
    """The exponent K of 1/rank^K that makes a day's publications likeliest, over the topics seen."""
    sums = popularity.groupBy("day").agg(
        F.count("*").alias("topics"),
        F.sum("publications").alias("publications"),
        F.sum(F.col("publications") * F.log("rank")).alias("weighted"),
    )
    return sums.mapInArrow(_fit_batches, "day date, topics bigint, publications bigint, exponent double")


def _fit_batches(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        exponents = [fit_exponent(row["topics"], row["publications"], row["weighted"]) for row in batch.to_pylist()]
        columns = [batch.column(name) for name in ("day", "topics", "publications")]
        yield pa.RecordBatch.from_arrays(
            [*columns, pa.array(exponents, pa.float64())], names=["day", "topics", "publications", "exponent"]
        )


def fit_exponent(topics: int, publications: int, weighted: float) -> float:
    """At the maximum the mean log rank equals that of the Zipf law, which falls as the exponent grows: bisect."""
    logs = np.log(np.arange(1, topics + 1))
    mean = weighted / publications
    low, high = _EXPONENTS
    for _ in range(60):
        middle = (low + high) / 2
        weights = np.exp(-middle * logs)
        if float((weights * logs).sum() / weights.sum()) > mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def topic_sets(traffic: DataFrame) -> DataFrame:
    """The topics in use at each site on each day: published or subscribed."""
    used = (F.col("publications") > 0) | (F.col("subscribers") > 0)
    return traffic.where(used).select("day", "site", "topic").distinct()


def joined_pairs(sets: DataFrame) -> int:
    """How many rows the exact way would join."""
    squares = sets.groupBy("day", "topic").count().agg(F.sum(F.col("count") * F.col("count"))).first()
    return int((squares[0] if squares is not None else 0) or 0)


def similarity(sets: DataFrame, exact: bool) -> DataFrame:
    """Jaccard index of every two sites on each day: exact by a join, or by MinHash when the sets are large."""
    if exact:
        return _jaccard(sets.select("day", "site", F.col("topic").alias("element"), F.lit(0).alias("mark")), "exact")
    # One hash, many buckets: in a bucket that either site has, the smallest hashes agree as often as the sets overlap.
    hashed = sets.select("day", "site", F.xxhash64("topic").alias("hash"))
    bucket = F.pmod("hash", F.lit(MINHASH_BUCKETS)).alias("element")
    return _jaccard(hashed.groupBy("day", "site", bucket).agg(F.min("hash").alias("mark")), "minhash")


def _jaccard(elements: DataFrame, method: str) -> DataFrame:
    """Shared elements with the same mark, over all elements of both."""
    sizes = elements.groupBy("day", "site").agg(F.count("*").alias("size"))
    left = elements.select("day", "element", F.col("site").alias("left"), F.col("mark").alias("left_mark"))
    right = elements.select("day", "element", F.col("site").alias("right"), F.col("mark").alias("right_mark"))
    shared = (
        left.join(right, ["day", "element"])
        .where(F.col("left") < F.col("right"))
        .groupBy("day", "left", "right")
        .agg(F.count("*").alias("both"), F.count_if(F.col("left_mark") == F.col("right_mark")).alias("same"))
    )
    pairs = _pairs(sizes, "size").join(shared, ["day", "left", "right"], "left")
    union = F.col("left_size") + F.col("right_size") - F.coalesce("both", F.lit(0))
    index = F.coalesce("same", F.lit(0)) / union
    return pairs.select("day", "left", "right", index.alias("jaccard"), F.lit(method).alias("method"))


def _pairs(sites: DataFrame, column: str) -> DataFrame:
    """Every two sites of a day, with a column of each."""
    left = sites.select("day", F.col("site").alias("left"), F.col(column).alias(f"left_{column}"))
    right = sites.select("day", F.col("site").alias("right"), F.col(column).alias(f"right_{column}"))
    return left.join(right, "day").where(F.col("left") < F.col("right"))
