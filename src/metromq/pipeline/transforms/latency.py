"""`latency`: how long messages took from the broker where they were published to a peer that got them over a link."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from metromq.pipeline.transforms.traffic import window_of


def latency(linked: DataFrame, origins: DataFrame) -> DataFrame:
    """Both are rows of `messages`; the two brokers' clocks are compared as they are, so keep them in step."""
    started = origins.select(
        F.col("broker").alias("origin"), F.col("offset").alias("origin_offset"), F.col("time").alias("started")
    )
    took = (F.unix_micros("time") - F.unix_micros("started")) / F.lit(1000.0)
    measured = (
        linked.where(F.col("kind") == "link")
        .join(started, ["origin", "origin_offset"])
        .select(window_of("time").alias("window_start"), "origin", "broker", took.alias("ms"))
    )
    shares = F.percentile("ms", F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
    rows = measured.groupBy("window_start", "origin", "broker").agg(
        F.count("*").alias("messages"), shares.alias("shares")
    )
    return rows.select(
        F.to_date("window_start").alias("day"),
        "window_start",
        "origin",
        "broker",
        "messages",
        *(F.col("shares")[index].alias(name) for index, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))),
    )
