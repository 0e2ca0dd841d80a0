"""`latency`: how long messages took from the broker where they were published to a peer that got them over links."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from metromq.pipeline.transforms.traffic import window_of


def latency(messages: DataFrame) -> DataFrame:
    """A linked row has the origin's time and its own arrival; brokers of older versions did not write the latter down.

    Each is by the clock of its own broker. When brokers measure how far their clocks are apart (a table of skews by
    origin, broker and minute), this is the place to subtract it: join it here and take its value from `took`.
    """
    took = (F.unix_micros("arrived") - F.unix_micros("time")) / F.lit(1000.0)
    measured = messages.where(
        (F.col("kind") == "link") & F.col("origin_offset").isNotNull() & F.col("arrived").isNotNull()
    ).select(window_of("time").alias("window_start"), "origin", "broker", took.alias("ms"))
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
