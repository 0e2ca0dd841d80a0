"""Landed messages to rows of `messages`, with Spark's own expressions only: `parsed` is the hot path."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from metromq.pipeline.nesting import is_deep

# Whole levels 0-3 at the start of a topic: `1/0/2/temperature` lies in area 1/0/2. Java and Arrow read this alike.
AREA: Final = r"^([0-3](?:/[0-3])*)(?:/|\z)"


def to_messages(landed: DataFrame) -> DataFrame:
    """Columns that an older recorder did not know yet are null and get their meaning here."""
    named = (
        landed.withColumn("kind", F.coalesce("kind", F.lit("publish")))
        .withColumn("journal", F.coalesce("journal", F.lit("")))
        .withColumn("origin", F.nullif("origin", F.lit("")))
        .withColumn("origin_offset", F.nullif("origin_offset", F.lit(-1).cast("bigint")))
        .withColumn("area", F.nullif(F.regexp_extract("topic", AREA, 1), F.lit("")))
        .withColumn("cell", F.replace("area", F.lit("/"), F.lit("")))
        .withColumn("day", F.to_date("time"))
    )
    deep = F.udf(is_deep, "boolean", useArrow=True)
    return parsed(named.withColumn("_shallow", F.when(~deep("payload"), F.col("payload"))), "_shallow").drop("_shallow")


def parsed(rows: DataFrame, column: str = "payload") -> DataFrame:
    """`payload_json`: the payload when it is JSON. `value`: its number, bare or under the key `value`.

    What is nested too deep must be null in `column`: the functions of VARIANT call themselves for every level.
    Step by step on purpose: a column that later steps share is computed once, an expression repeated in a step twice.
    """
    kind = F.schema_of_variant("_number")
    number = kind.isin("BIGINT", "DOUBLE") | kind.startswith("DECIMAL")
    return (
        rows.withColumn("_text", F.try_validate_utf8(F.col(column).cast("string")))
        .withColumn("_json", F.try_parse_json("_text"))
        .withColumn("_number", F.coalesce(F.try_variant_get("_json", "$.value", "variant"), F.col("_json")))
        .withColumn("payload_json", F.when(F.col("_json").isNotNull(), F.col("_text")))
        .withColumn("value", F.when(number, F.try_variant_get("_number", "$", "double")))
        .withColumn("value", F.when(F.abs("value") < F.lit(float("inf")), F.col("value")))  # 1e400 is none
        .drop("_text", "_json", "_number")
    )
