"""Makes the user's own tables and keeps them up to date, window by window, as the built-in statistics are."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import Schema, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from metromq.errors import UsageError
from metromq.pipeline.known_tables import declare_own, own_spec
from metromq.pipeline.lake import Lake
from metromq.pipeline.models import FIXED, REJECTED, Model, Payloads
from metromq.pipeline.refreshing import refresh_windows
from metromq.pipeline.schemas import BUILT_IN, TableSpec

_MOMENTS: Final = {
    "messages": "time",
    "telemetry": "window_start",
    "traffic": "window_start",
    "latency": "window_start",
}
_WHOLE: Final = ("sites",)  # small, and of no time
_BAD: Final = "_bad"
_KEY: Final = ("broker", "journal", "offset")


def refresh_own(
    spark: SparkSession, lake: Lake, models: Sequence[Model | Payloads], say: Callable[[str], None]
) -> list[str]:
    """Brings every table up to date, in this order; one that fails is told, and does not stop the others."""
    changed: list[str] = []
    for model in models:
        try:
            step = _refresh_payloads if isinstance(model, Payloads) else _refresh
            changed += step(spark, lake, model)  # type: ignore[arg-type]
        except (PySparkException, UsageError) as error:
            say(f"the table {model.name} could not be made: {str(error).splitlines()[0]}")
    return changed


def _refresh(spark: SparkSession, lake: Lake, model: Model) -> list[str]:
    declare_own(lake)
    sources = _sources(lake, model)
    done = _keep_up(spark, lake, model, model.name, model.key, sources, lambda rows: _ask(spark, lake, model, rows))
    return [model.name] if done else []


def _sources(lake: Lake, model: Model) -> dict[str, str]:
    """The tables that the text names, and the columns that say when."""
    words = {word for word in re.findall(r"[a-z_][a-z0-9_]*", model.sql.lower()) if word != model.name}
    own = {name: "window_start" for name in lake.specs if name not in BUILT_IN}
    found = {name: column for name, column in (_MOMENTS | own).items() if name in words and lake.exists(name)}
    if not found:
        known = ", ".join(sorted(_MOMENTS | own))
        raise UsageError(f"{model.name}.sql reads no table that has a time and rows; those that may have: {known}")
    return found


def _ask(spark: SparkSession, lake: Lake, model: Model, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The answer to the SELECT on these windows of its sources, where `window_start` is that of the model."""
    for name, frame in rows.items():
        _windowed(frame, _moment_of(name), model.window_minutes).createOrReplaceTempView(name)
    for name in _WHOLE:
        if lake.exists(name):
            lake.read(spark, name).createOrReplaceTempView(name)
    answer = spark.sql(model.sql)
    missing = [name for name in ("window_start", *model.key) if name not in answer.columns]
    if missing:
        raise UsageError(f"the SELECT has no column {missing[0]}; it needs window_start and the key")
    return answer


def _moment_of(name: str) -> str:
    return _MOMENTS.get(name, "window_start")


def _windowed(frame: DataFrame, moment: str, minutes: int) -> DataFrame:
    seconds = F.unix_seconds(moment)
    return frame.withColumn("window_start", F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(60 * minutes))))


def _keep_up(
    spark: SparkSession,
    lake: Lake,
    model: Model | Payloads,
    name: str,
    key: Sequence[str],
    sources: Mapping[str, str],
    make: Callable[[Mapping[str, DataFrame]], DataFrame],
) -> bool:
    def dated(rows: Mapping[str, DataFrame]) -> DataFrame:
        return make(rows).withColumn("day", F.to_date("window_start"))

    def checked(rows: Mapping[str, DataFrame]) -> DataFrame:
        made = dated(rows)
        twice = made.groupBy("window_start", *key).count().where(F.col("count") > 1).first()
        if twice is not None:
            values = ", ".join(f"{column} {twice[column]}" for column in ("window_start", *key))
            raise UsageError(f"its key is not a key: {twice['count']} rows have {values}")
        return made

    none = {source: lake.read(spark, source, []) for source in sources}
    _make_room(lake, own_spec(name, _arrow(dated(none))), [f"{source}@{model.way}" for source in sources])
    return refresh_windows(spark, lake, name, sources, model.window_minutes, model.way, checked)


def _arrow(frame: DataFrame) -> pa.Schema:
    """The columns of an answer. What a table cannot hold is said here, since delta-rs ends a write with errors that
    belong to nobody."""
    names = [name.lower() for name in frame.columns]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"the SELECT has two columns {twice[0]}; give one another name with AS")
    found = [item.with_nullable(True) for item in to_arrow_schema(frame.schema, timezone="UTC")]
    for item in found:
        try:
            Schema.from_arrow(pa.schema([item]))
        except Exception as error:
            raise UsageError(
                f"no table can hold the column {item.name} of the SELECT, which is {item.type}: cast it"
            ) from error
    return pa.schema(found)


def _make_room(lake: Lake, spec: TableSpec, applications: Sequence[str]) -> None:
    """The table with these columns; what another SELECT made of it before goes."""
    lake.declare(spec)
    if lake.exists(spec.name) and all(lake.done(spec.name, each) < 0 for each in applications):
        empty = pa.Table.from_pylist([], spec.schema)
        write_deltalake(
            lake.open(spec.name), empty, mode="overwrite", schema_mode="overwrite", partition_by=list(spec.partition_by)
        )


def _refresh_payloads(spark: SparkSession, lake: Lake, model: Payloads) -> list[str]:
    """Two tables of the same windows: payloads as columns, and those that do not fit."""
    sources = {"messages": "time"}

    def fitting(rows: Mapping[str, DataFrame]) -> DataFrame:
        fields = [F.col(f"_fields.{name}").alias(name) for name in model.declared.columns]
        return _judged(rows["messages"], model).where(F.col("reason").isNull()).select(*_places(), *fields)

    def others(rows: Mapping[str, DataFrame]) -> DataFrame:
        return (
            _judged(rows["messages"], model).where(F.col("reason").isNotNull()).select(*_places(), "payload", "reason")
        )

    made = {model.name: fitting, model.name + REJECTED: others}
    if not lake.exists("messages"):
        return []
    return [name for name, make in made.items() if _keep_up(spark, lake, model, name, _KEY, sources, make)]


def _places() -> list[str]:
    return [name for name in FIXED if name != "day"]


def _judged(messages: DataFrame, model: Payloads) -> DataFrame:
    """What clients published to these topics, with its fields, and the reason why it does not fit."""
    declared = model.declared
    schema = ", ".join([*(f"{name} {kind}" for name, kind in declared.columns.items()), f"{_BAD} string"])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD, "allowNonNumericNumbers": "false"}
    published = messages.where(F.col("kind").isin("publish", "will") & _matches(declared.topics))
    rows = _windowed(published, "time", model.window_minutes).withColumn(
        "_fields", F.from_json("payload_json", schema, options)
    )
    bad = F.col(f"_fields.{_BAD}").isNotNull()
    reason = F.when(F.col("payload_json").isNull(), "it is not JSON, has a name twice or is nested too deep").when(
        ~F.col("payload_json").rlike(r"^\s*\{"), "it is no object"
    )
    for name, kind in declared.columns.items():
        alone = F.from_json("payload_json", f"{name} {kind}, {_BAD} string", options)
        reason = reason.when(bad & alone[_BAD].isNotNull(), f"{name} is no {kind}")
    for name in declared.required:
        reason = reason.when(F.col(f"_fields.{name}").isNull(), f"{name} is missing")
    return rows.withColumn("reason", reason)


def _matches(topics: str) -> Column:
    """An MQTT topic filter as a condition [MQTT-4.7.1-2, MQTT-4.7.1-3, MQTT-4.7.2-1]."""
    levels = topics.split("/")
    deep = levels[-1] == "#"
    parts = ["[^/]*" if level == "+" else rf"\Q{level}\E" for level in (levels[:-1] if deep else levels)]
    pattern = "/".join(parts) + ("(/.*)?" if deep and parts else ".*" if deep else "")
    wanted = F.col("topic").rlike(f"(?s)^{pattern}$")
    return wanted & ~F.col("topic").startswith("$") if topics[0] in "+#" else wanted
