"""`latency`: how long messages took from the broker where they were published to a peer that got them over links."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from metromq.pipeline.transforms.traffic import window_of
from metromq.telemetry import CLOCK


def latency(messages: DataFrame, telemetry: DataFrame) -> DataFrame:
    """A linked row has the origin's time and its own arrival; brokers of older versions did not write the latter down.

    Each is by the clock of its own broker, so what that broker has measured of the origin's clock is added. Wills are
    left out: whoever fires one, they have the name of the broker that is lost. So is a message that the owner of its
    filter sent back to the central broker where it was published, for the others: its clients did not wait for that.
    """
    linked = messages.where(
        (F.col("kind") == "link")
        & F.col("origin_offset").isNotNull()
        & F.col("arrived").isNotNull()
        & ~F.col("origin").endswith("/will")
        & (F.col("origin") != F.col("broker"))
    ).select(
        window_of("time").alias("window_start"),
        "origin",
        "broker",
        window_of("arrived").alias("minute"),
        (F.unix_micros("arrived") - F.unix_micros("time")).alias("took_us"),
    )
    by_minute, by_pair = _clocks(telemetry)
    ahead_us = F.coalesce("minute_ahead_us", "pair_ahead_us", F.lit(0.0))
    measured = (
        linked.join(F.broadcast(by_minute), ["origin", "broker", "minute"], "left")
        .join(F.broadcast(by_pair), ["origin", "broker"], "left")
        .select("window_start", "origin", "broker", ((F.col("took_us") + ahead_us) / F.lit(1000.0)).alias("ms"))
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


def _clocks(telemetry: DataFrame) -> tuple[DataFrame, DataFrame]:
    """How far the origin's clock is ahead of the broker's: in each minute, and altogether, where nothing else is."""
    said = telemetry.where(F.col("subject") == CLOCK).select(
        F.col("name").alias("origin"),
        "broker",
        window_of("window_start").alias("minute"),
        F.col("detail").cast("double").alias("ahead_us"),
    )
    by_minute = said.groupBy("origin", "broker", "minute").agg(F.avg("ahead_us").alias("minute_ahead_us"))
    by_pair = said.groupBy("origin", "broker").agg(F.median("ahead_us").alias("pair_ahead_us"))
    return by_minute, by_pair
