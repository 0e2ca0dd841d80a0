"""A Spark stream of the names of landed files. An offset carries the names of its batch, so that a replay is exact.

Spark's own file source skips files whose modification time is old (a broker that was away for days) or, told not to,
remembers every file for ever. Here a file is new as long as it is there: the ingest removes what it has taken in.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from metromq.pipeline.landing import LandedFile, Landing

NAME: Final = "metromq-landing"


def landing_source(landing: Landing, max_rows: int, max_files: int) -> type[DataSource]:
    """A source of one landing area, with so many rows and files per micro-batch.

    The area is part of the class and not an option: Spark shows options to everyone, and passwords are in it.
    """

    class LandingSource(DataSource):  # type: ignore[misc]  # pyspark is not followed
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "path string"

        def streamReader(self, schema: Any) -> LandingReader:
            return LandingReader(landing, max_rows, max_files)

    return LandingSource


class _Names(InputPartition):  # type: ignore[misc]  # pyspark is not followed
    def __init__(self, names: list[str]) -> None:
        self.names = names


class LandingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not followed
    def __init__(self, landing: Landing, max_rows: int, max_files: int) -> None:
        self._landing = landing
        self._max_rows = max_rows
        self._max_files = max_files
        self._target: set[str] | None = None  # all that was there when an `availableNow` run began

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0, "files": "[]"}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {file.path for file in self._landing.files()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        taken = set(json.loads(start["files"]))
        waiting = [
            file
            for file in self._landing.files()
            if file.path not in taken and (self._target is None or file.path in self._target)
        ]
        chosen = choose(waiting, self._max_rows, self._max_files)
        if not chosen:
            return start
        return {"batch": start["batch"] + 1, "files": json.dumps([file.path for file in chosen])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Names(json.loads(end["files"]))] if end != start else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        assert isinstance(partition, _Names)
        return iter([(name,) for name in partition.names])


def choose(waiting: Sequence[LandedFile], max_rows: int, max_files: int) -> list[LandedFile]:
    """Brokers take turns, each in the order of its offsets: one that is back with a week of files delays no other."""
    queues: dict[tuple[str, str], list[LandedFile]] = {}
    for file in waiting:
        queues.setdefault((file.kind, file.broker), []).append(file)
    turns = [iter(queue) for queue in queues.values()]
    chosen: list[LandedFile] = []
    rows = 0
    while turns and rows < max_rows and len(chosen) < max_files:
        for turn in list(turns):
            if rows >= max_rows or len(chosen) >= max_files:
                break
            following = next(turn, None)
            if following is None:
                turns.remove(turn)
            else:
                chosen.append(following)
                rows += following.rows
    return chosen
