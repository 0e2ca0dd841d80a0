"""Settings of Spark for tests."""

from metromq.pipeline import spark as spark_start

LIGHT = spark_start.light_settings(rows=0)

# Compiling queries pays for millions of rows, not for tens; the tests of the command, kills and cluster do compile.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    **LIGHT,
}
