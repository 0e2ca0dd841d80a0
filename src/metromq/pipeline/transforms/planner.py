"""The exact inputs of the placement planner and of the delegation policies, from `traffic` and `telemetry`."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from metromq.pipeline.transforms.traffic import per_site


def _mbps(size: Column, seconds: float) -> Column:
    return size * F.lit(8.0) / F.lit(seconds * 1e6)


def tau(traffic: DataFrame, seconds: float) -> DataFrame:
    """Bandwidth of a topic between its broker and clients at a device: what they publish and what they get."""
    size = F.sum(F.col("published_bytes") + F.col("delivered_bytes"))
    rows = traffic.groupBy("topic", F.col("site").alias("device")).agg(_mbps(size, seconds).alias("mbps"))
    return rows.where(F.col("mbps") > 0)


def dsd(telemetry: DataFrame, seconds: float) -> DataFrame:
    """User traffic of a service from clients at a device, as the control plane reported it."""
    return _service(telemetry, "service-device", "device", seconds)


def dst(telemetry: DataFrame, seconds: float) -> DataFrame:
    """MQTT traffic of a topic that a service uses."""
    return _service(telemetry, "service-topic", "topic", seconds)


def _service(telemetry: DataFrame, subject: str, detail: str, seconds: float) -> DataFrame:
    return (
        telemetry.where(F.col("subject") == subject)
        .groupBy(F.col("name").alias("service"), F.col("detail").alias(detail))
        .agg(_mbps(F.sum("bytes"), seconds).alias("mbps"))
    )


def delegation_inputs(traffic: DataFrame, seconds: float) -> DataFrame:
    """Per topic and site with publishers or subscribers of it: how many are there, and everywhere else.

    Counts are the largest of any minute at each broker: a client that is there all day counts once.
    """
    sites = per_site(traffic, [], ["publications"], ["publishers", "subscribers"])
    inside = sites.where("publishers > 0 OR subscribers > 0").select(
        "topic",
        "site",
        F.col("publishers").alias("publishers_inside"),
        F.col("subscribers").alias("subscribers_inside"),
        (F.col("publications") / F.lit(seconds)).alias("publications_per_second"),
    )
    everywhere = inside.groupBy("topic").agg(
        F.sum("publishers_inside").alias("publishers"), F.sum("subscribers_inside").alias("subscribers")
    )
    return inside.join(everywhere, "topic").select(
        "topic",
        "site",
        "publishers_inside",
        (F.col("publishers") - F.col("publishers_inside")).alias("publishers_outside"),
        "subscribers_inside",
        (F.col("subscribers") - F.col("subscribers_inside")).alias("subscribers_outside"),
        "publications_per_second",
    )
