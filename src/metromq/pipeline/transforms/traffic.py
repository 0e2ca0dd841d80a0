"""`traffic`: what each topic did at each site in each minute, from what brokers counted and what they recorded."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WINDOW_SECONDS: Final = 60
_KEY: Final = ["window_start", "broker", "topic"]


def window_of(time: str) -> Column:
    """The minute that a moment lies in."""
    return F.date_trunc("minute", time)


def sites(telemetry: DataFrame) -> DataFrame:
    """Where each broker stood in its newest window."""
    newest = F.max_by("site", "window_start").alias("site")
    return telemetry.groupBy("broker").agg(newest, F.max("window_start").alias("since"))


def traffic(messages: DataFrame, telemetry: DataFrame, sites: DataFrame) -> DataFrame:
    """The count includes QoS 0, the record survives a kill: so the larger of the two is nearer to the truth."""
    where = F.broadcast(sites.select("broker", "site"))
    both = _counted(telemetry).join(_recorded(messages), _KEY, "full").join(where, "broker", "left")

    def larger(column: str) -> Column:
        return F.greatest(F.coalesce(column, F.lit(0)), F.coalesce(f"recorded_{column}", F.lit(0))).cast("bigint")

    def counted(column: str) -> Column:
        return F.coalesce(column, F.lit(0)).cast("bigint")

    return both.select(
        F.to_date("window_start").alias("day"),
        "window_start",
        "topic",
        F.coalesce("site", "broker").alias("site"),
        "broker",
        larger("publications").alias("publications"),
        (larger("publications") / F.lit(float(WINDOW_SECONDS))).alias("rate"),
        larger("published_bytes").alias("published_bytes"),
        larger("publishers").alias("publishers"),
        counted("subscribers").alias("subscribers"),
        counted("deliveries_local").alias("deliveries_local"),
        counted("deliveries_remote").alias("deliveries_remote"),
        counted("delivered_bytes").alias("delivered_bytes"),
        counted("opened").alias("opened"),
        counted("closed").alias("closed"),
    )


def _counted(telemetry: DataFrame) -> DataFrame:
    added = [
        "publications",
        "published_bytes",
        "deliveries_local",
        "deliveries_remote",
        "delivered_bytes",
        "opened",
        "closed",
    ]
    return (
        telemetry.where((F.col("subject") == "topic") & (F.col("name") != ""))
        .groupBy(window_of("window_start").alias("window_start"), "broker", F.col("name").alias("topic"))
        .agg(
            *(F.sum(column).alias(column) for column in added),
            F.max("publishers").alias("publishers"),
            F.max("subscribers").alias("subscribers"),
        )
    )


def _recorded(messages: DataFrame) -> DataFrame:
    """What clients of the broker published; links and replays carry what was published elsewhere or before."""
    return (
        messages.where(F.col("kind").isin("publish", "will"))
        .groupBy(window_of("time").alias("window_start"), "broker", "topic")
        .agg(
            F.count("*").alias("recorded_publications"),
            F.sum(F.length("payload")).alias("recorded_published_bytes"),
            F.count_distinct("publisher").alias("recorded_publishers"),
        )
    )
