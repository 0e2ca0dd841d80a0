"""A user's own Spark program: the journals under a directory, read by the source `metromq`, as lines of JSON.

Spark finds the source by itself, also where no virtual environment is activated.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from metromq.pipeline import spark as spark_start


def main(data: str, settings: list[str]) -> None:
    spark = spark_start.start("local[1]", settings=dict(setting.split("=", 1) for setting in settings))
    try:
        for row in rows_of(spark, data):
            print(json.dumps(row))
    finally:
        spark_start.stop(spark)


def rows_of(spark: SparkSession, data: str) -> Iterator[dict[str, Any]]:
    """As JSON would have them."""
    for row in spark.read.format("metromq").load(data).collect():
        plain = row.asDict()
        for name in ("payload", "properties"):
            plain[name] = bytes(plain[name]).hex()
        yield json.loads(json.dumps(plain, default=str))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
