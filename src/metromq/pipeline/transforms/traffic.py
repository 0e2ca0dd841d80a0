"""`traffic`: what each topic did at each site in each minute, from what brokers counted and what they recorded."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WINDOW_SECONDS: Final = 60
_MINUTE: Final = ["window_start", "broker", "topic"]
_WINDOW: Final = ["broker", "topic", "start", "length"]  # of a broker's own windows, in microseconds
_OTHERS: Final = ("delivered_bytes", "opened", "closed")
_COUNTS: Final = (
    "publications",
    "published_bytes",
    "publishers",
    "subscribers",
    "deliveries_local",
    "deliveries_remote",
    *_OTHERS,
)


def window_of(time: str) -> Column:
    """The minute that a moment lies in."""
    return F.date_trunc("minute", time)


def sites(telemetry: DataFrame) -> DataFrame:
    """Where each broker stood in its newest window."""
    newest = F.max_by("site", "window_start").alias("site")
    return telemetry.groupBy("broker").agg(newest, F.max("window_start").alias("since"))


def is_topic(name: str) -> Column:
    """A topic of clients: brokers also count filters with wildcards, and their own topics, which begin with `$`."""
    column = F.col(name)
    return (column != "") & ~column.rlike("[+#]") & ~column.startswith("$")


def traffic(messages: DataFrame, telemetry: DataFrame, sites: DataFrame) -> DataFrame:
    """The record survives a kill, the count includes QoS 0: what a window counted beyond what was recorded in it is
    added, in the minute in which the window begins."""
    where = F.broadcast(sites.select("broker", "site"))
    windows = _windows(telemetry)
    published = messages.where(F.col("kind").isin("publish", "will") & is_topic("topic"))
    made = _placed(_recorded(published).join(_beyond(windows, published), _MINUTE, "full"), where)
    made = made.select(
        *_MINUTE,
        "site",
        *(_sum(name, f"more_{name}").alias(name) for name in ("publications", "published_bytes")),
        F.greatest(_zero("publishers"), _zero("more_publishers")).alias("publishers"),
    )
    both = made.drop("site").join(_delivered(telemetry, windows, made, where), _MINUTE, "full")
    counts = [_zero(name).alias(name) for name in _COUNTS]
    return (
        _placed(both, where)
        .select("window_start", "topic", "site", "broker", *counts)
        .where(" OR ".join(f"{name} > 0" for name in _COUNTS))  # a broker that only passes a topic on counts nothing
        .withColumn("day", F.to_date("window_start"))
        .withColumn("rate", F.col("publications") / F.lit(float(WINDOW_SECONDS)))
    )


def _placed(rows: DataFrame, where: DataFrame) -> DataFrame:
    return rows.join(where, "broker", "left").withColumn("site", F.coalesce("site", "broker"))


def _zero(column: str) -> Column:
    return F.coalesce(column, F.lit(0)).cast("bigint")


def _sum(left: str, right: str) -> Column:
    return _zero(left) + _zero(right)


def _windows(telemetry: DataFrame) -> DataFrame:
    """What a broker counted per topic in each of its windows, over all its lives in that window."""
    return (
        telemetry.where((F.col("subject") == "topic") & is_topic("name"))
        .groupBy(
            "broker",
            F.col("name").alias("topic"),
            F.unix_micros("window_start").alias("start"),
            _length().alias("length"),
        )
        .agg(
            *(F.sum(name).alias(name) for name in ("publications", "published_bytes", *_OTHERS)),
            F.sum("deliveries_local").alias("deliveries"),  # to clients of this broker, wherever it was published
            F.max("publishers").alias("publishers"),
            F.max("subscribers").alias("subscribers"),
        )
    )


def _length() -> Column:
    return F.greatest((F.col("window_seconds") * 1_000_000).cast("bigint"), F.lit(1))


def _minute_of(start: str) -> Column:
    return F.date_trunc("minute", F.timestamp_micros(start))


def _recorded(published: DataFrame) -> DataFrame:
    """What clients of the broker published; links and replays carry what was published elsewhere or before."""
    return published.groupBy(window_of("time").alias("window_start"), "broker", "topic").agg(
        F.count("*").alias("publications"),
        F.sum(F.length("payload")).alias("published_bytes"),
        F.count_distinct("publisher").alias("publishers"),
    )


def _beyond(windows: DataFrame, published: DataFrame) -> DataFrame:
    """Per minute, what windows that begin in it counted and nobody recorded. They start at multiples of it."""
    lengths = F.broadcast(windows.select("broker", "length").distinct())
    moment = F.unix_micros("time")
    recorded = (
        published.join(lengths, "broker")
        .withColumn("start", moment - F.pmod(moment, F.col("length")))
        .groupBy(*_WINDOW)
        .agg(F.count("*").alias("in_publications"), F.sum(F.length("payload")).alias("in_published_bytes"))
    )

    def more(name: str) -> Column:
        return F.sum(F.greatest(F.col(name) - _zero(f"in_{name}"), F.lit(0))).alias(f"more_{name}")

    return (
        windows.join(recorded, _WINDOW, "left")
        .groupBy(_minute_of("start").alias("window_start"), "broker", "topic")
        .agg(more("publications"), more("published_bytes"), F.max("publishers").alias("more_publishers"))
    )


def _delivered(telemetry: DataFrame, windows: DataFrame, made: DataFrame, where: DataFrame) -> DataFrame:
    """Deliveries to clients, divided between those of messages from this site and from others.

    Brokers count them by the broker of the publisher. Older ones did not; while the subscribers stay the same, each
    publication of a topic is delivered as often as any other, so that theirs divide as publications in the window do.
    """
    estimate = F.round(F.coalesce(F.col("deliveries") * F.try_divide("here", "everywhere"), F.lit(0.0))).cast("bigint")
    local = F.when(F.col("known") == F.col("deliveries"), F.col("near")).otherwise(estimate)
    divided = (
        windows.join(_shares(windows, made, where), _WINDOW, "left")
        .join(_near(telemetry, where), _WINDOW, "left")
        .withColumn("local", local)
    )
    return divided.groupBy(_minute_of("start").alias("window_start"), "broker", "topic").agg(
        F.max("subscribers").alias("subscribers"),
        F.sum("local").alias("deliveries_local"),
        F.sum(F.col("deliveries") - F.col("local")).alias("deliveries_remote"),
        *(F.sum(name).alias(name) for name in _OTHERS),
    )


def _near(telemetry: DataFrame, where: DataFrame) -> DataFrame:
    """Per window, the deliveries whose publisher is known, and those of them that were published at this site."""
    rows = telemetry.where((F.col("subject") == "topic-from") & is_topic("name")).select(
        "broker",
        F.col("name").alias("topic"),
        F.unix_micros("window_start").alias("start"),
        _length().alias("length"),
        F.col("detail").alias("origin"),
        F.col("deliveries_local").alias("count"),
    )
    origins = where.select(F.col("broker").alias("origin"), F.col("site").alias("origin_site"))
    here = F.coalesce("origin_site", "origin") == F.col("site")
    return (
        _placed(rows, where)
        .join(origins, "origin", "left")
        .groupBy(*_WINDOW)
        .agg(F.sum("count").alias("known"), F.sum(F.when(here, F.col("count")).otherwise(0)).alias("near"))
    )


def _shares(windows: DataFrame, made: DataFrame, where: DataFrame) -> DataFrame:
    """Per window, the publications of its topic in the minutes that it touches: at this site, and everywhere."""
    spans = (
        windows.where(F.col("deliveries") > 0)
        .select(
            *_WINDOW,
            F.explode(
                F.sequence(
                    _minute_of("start"),
                    F.date_trunc("minute", F.timestamp_micros(F.col("start") + F.col("length") - 1)),
                    F.expr("INTERVAL 1 MINUTE"),
                )
            ).alias("window_start"),
        )
        .join(where, "broker", "left")
        .withColumn("here", F.coalesce("site", "broker"))
        .drop("site")
    )
    sums = made.groupBy("topic", "window_start", "site").agg(F.sum("publications").alias("published"))
    return (
        spans.join(sums, ["topic", "window_start"])
        .groupBy(*_WINDOW)
        .agg(
            F.sum("published").alias("everywhere"),
            F.sum(F.when(F.col("site") == F.col("here"), F.col("published")).otherwise(0)).alias("here"),
        )
    )


def per_site(traffic: DataFrame, keys: list[str], added: list[str], held: list[str]) -> DataFrame:
    """Rows by `keys`, `site` and `topic`: `added` columns summed; `held` ones the most of any minute at each broker,
    summed over the brokers of the site."""
    by_broker = traffic.groupBy(*keys, "site", "broker", "topic").agg(
        *(F.sum(name).alias(name) for name in added), *(F.max(name).alias(name) for name in held)
    )
    return by_broker.groupBy(*keys, "site", "topic").agg(*(F.sum(name).alias(name) for name in (*added, *held)))


def by_hour(traffic: DataFrame) -> DataFrame:
    """The same sums and largest numbers, by the hour; what is made of days cannot tell them from minutes."""
    hour = F.date_trunc("hour", "window_start").alias("window_start")
    added = ("publications", "published_bytes", "deliveries_local", "deliveries_remote", "delivered_bytes")
    return traffic.groupBy("day", hour, "topic", "site", "broker").agg(
        *(F.sum(name).alias(name) for name in added),
        *(F.max(name).alias(name) for name in ("publishers", "subscribers")),
    )
