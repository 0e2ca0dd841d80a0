"""The Spark data source `metromq`: journals as replayable streams, and a sink that publishes rows as MQTT messages.

Reading: partitions are brokers, offsets are journal offsets, so that Spark's checkpoint makes replay exact.
Writing: QoS 1, every message acknowledged before the batch commits; a batch that Spark repeats is published again.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from metromq.errors import OffsetsGone, UsageError
from metromq.journal import JournalReader, read_id
from metromq.pipeline.decode import decode_records
from metromq.pipeline.journals import journals
from metromq.pipeline.keys import JournalKey, place_key, place_name
from metromq.pipeline.network import NetworkOptions, NetworkSlice, NobodyAnswers, read_over_network
from metromq.pipeline.option_values import check_spelling, truth, whole_number
from metromq.pipeline.publish import Sink, publish_rows
from metromq.pipeline.schemas import LANDED_MESSAGES

NAME: Final = "metromq"
_CHUNK_ROWS: Final = 50_000
_CHUNK_BYTES: Final = 32 << 20
READ_OPTIONS: Final = (
    "path",
    "broker",
    "brokers",
    "username",
    "password",
    "tls",
    "cafile",
    "startingOffsets",
    "startingTimestamp",
    "maxRowsPerBatch",
    "rowsPerPartition",
    "failOnDataLoss",
)


class JournalSource(DataSource):  # type: ignore[misc]  # pyspark is not followed
    """Options for reading from a disk: path (a broker's data directory, or one that holds several), broker (its name,
    if not the directory's), startingOffsets (earliest or latest, of a stream), maxRowsPerBatch, rowsPerPartition,
    failOnDataLoss.
    Options for reading over the network: brokers (host:port, separated by commas), username, password, tls, cafile,
    startingOffsets (also per broker), startingTimestamp, maxRowsPerBatch, rowsPerPartition, failOnDataLoss.
    Options for writing: host, port, username, password, tls, cafile, qos (1), maxInflight.
    Columns: topic, payload, qos, retain.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> Any:
        return from_arrow_schema(LANDED_MESSAGES)

    def reader(self, schema: Any) -> "JournalBatchReader":
        return JournalBatchReader(self._read_options())

    def streamReader(self, schema: Any) -> "JournalStreamReader":
        return JournalStreamReader(self._read_options())

    def _read_options(self) -> "JournalOptions | NetworkOptions":
        check_spelling(self.options, READ_OPTIONS)
        return NetworkOptions(self.options) if "brokers" in self.options else JournalOptions(self.options)

    def writer(self, schema: Any, overwrite: bool) -> "MessageWriter":
        return MessageWriter(Sink.from_options(dict(self.options)), tuple(schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> "MessageStreamWriter":
        return MessageStreamWriter(Sink.from_options(dict(self.options)), tuple(schema.names))


class JournalOptions:
    """The options of a read, checked."""

    def __init__(self, options: Any) -> None:
        if "path" not in options:
            raise UsageError(
                'format("metromq") needs a path, load("a broker\'s data directory"), or brokers to ask over the'
                ' network, option("brokers", "host:1883")'
            )
        self.path: str = options["path"]
        self.broker: str | None = options.get("broker")
        self.starting: str = options.get("startingOffsets", "earliest")
        if self.starting not in ("earliest", "latest"):
            raise UsageError(f"startingOffsets must be earliest or latest, not {self.starting!r}")
        self.max_rows = whole_number(options, "maxRowsPerBatch", 500_000)
        self.rows_per_partition = whole_number(options, "rowsPerPartition", 250_000)
        self.fail_on_loss = truth(options, "failOnDataLoss", True)

    def initial(self) -> dict[str, int]:
        """Where a new stream starts."""
        return {broker: first for broker, (first, _) in self.whole().items()}

    def bounds(self) -> dict[str, tuple[int, int]]:
        """First offset and end of every journal that ever had something, by its name in offsets; also of those whose
        every record retention removed, since a reader that is behind must hear of it."""
        found: dict[str, tuple[int, int]] = {}
        for broker, folder in journals(self.path, self.broker).items():
            name = place_name(JournalKey(broker, read_id(folder)))
            reader = JournalReader(folder)
            first, end = reader.bounds()
            reader.close()
            if end:
                found[name] = (first, end)
        return found

    def all_bounds(self) -> dict[str, tuple[int, int]]:
        return self.bounds()  # a directory that is not there is an error at once

    def whole(self) -> dict[str, tuple[int, int]]:
        """What a read that comes to an end reads: from where a new stream would start to where journals end now."""
        latest = self.starting == "latest"
        return {name: (end if latest else first, end) for name, (first, end) in self.bounds().items()}

    def bounds_of(self, names: Collection[str]) -> dict[str, tuple[int, int]]:
        return self.bounds()

    def slices(self, spans: dict[str, tuple[int, int]]) -> list["JournalSlice"]:
        """Each journal's offsets, cut so that a long journal keeps more than one core busy."""
        folders = journals(self.path, self.broker)
        keys = {name: place_key(name) for name in spans}
        missing = [key.broker for key in keys.values() if key.broker not in folders]
        if missing:
            raise UsageError(f"{self.path} no longer holds the journal of {', '.join(missing)}")
        return [
            JournalSlice(
                keys[name],
                str(folders[keys[name].broker]),
                low,
                min(low + self.rows_per_partition, end),
                self.fail_on_loss,
            )
            for name, (first, end) in spans.items()
            for low in range(first, end, self.rows_per_partition)
        ]


ReadOptions = JournalOptions | NetworkOptions


class JournalSlice(InputPartition):  # type: ignore[misc]
    """Offsets [start, end) of one journal."""

    def __init__(self, key: JournalKey, folder: str, start: int, end: int, fail_on_loss: bool) -> None:
        self.key = key
        self.folder = folder
        self.start = start
        self.end = end
        self.fail_on_loss = fail_on_loss


class JournalBatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: "ReadOptions") -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._options.slices(self._options.whole())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slice(partition)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """An offset is {broker/journal: next offset in it}; a journal that is not in it yet starts at its beginning.

    So a broker whose data directory was replaced goes on with its new journal.
    """

    def __init__(self, options: "ReadOptions") -> None:
        self._options = options
        self._target: dict[str, tuple[int, int]] | None = None
        self._newest: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        return self._options.initial()

    def reportLatestOffset(self) -> dict[str, int] | None:
        """For the query's progress, where `latestOffset` minus `endOffset` is how far the stream lags behind."""
        return self._newest or None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """What there is now, of every broker. From here on nobody is asked again: a broker that is away later fails the
        read of its part, where one that is left out of a plan would be missing without a word."""
        self._target = self._options.all_bounds()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        try:
            bounds = self._options.bounds() if self._target is None else self._target
        except NobodyAnswers:  # a stream outlives its brokers: it goes on when one is back
            return start
        start = _with_names(start, bounds)
        self._newest = start | {name: end for name, (_, end) in bounds.items()}
        spans = {name: (start.get(name, first), end) for name, (first, end) in bounds.items()}
        waiting = {name: max(end - begin, 0) for name, (begin, end) in spans.items()}
        most = None if isinstance(limit, ReadAllAvailable) else limit.max_rows
        granted = waiting if most is None else share(waiting, most)
        return start | {name: spans[name][0] + rows for name, rows in granted.items() if rows or name in start}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        for name in end:
            broker = place_key(name).broker
            if name != broker and name not in start and broker in start and broker not in end:
                start = start | {
                    name: start[broker]
                }  # the batch in which an older checkpoint learnt the journal's name
        new = [name for name in end if name not in start]
        known = self._target or (self._options.bounds_of(new) if new else {})
        first = {name: low for name, (low, _) in known.items()}
        spans = {name: (start.get(name, first.get(name, 0)), stop) for name, stop in end.items()}
        return self._options.slices({name: span for name, span in spans.items() if span[1] > span[0]})

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slice(partition)


def _with_names(start: dict[str, int], bounds: dict[str, tuple[int, int]]) -> dict[str, int]:
    """An older checkpoint names brokers only: it means their first journal, which reaches as far as it says."""
    named = dict(start)
    for name, (_, end) in bounds.items():
        broker = place_key(name).broker
        if name != broker and name not in start and start.get(broker, end + 1) <= end:
            named[name] = named.pop(broker)
    return named


def share(waiting: dict[str, int], most: int) -> dict[str, int]:
    """Divide a batch between brokers: everyone an equal part, what one does not need goes to the others."""
    granted: dict[str, int] = {}
    for place, broker in enumerate(sorted(waiting, key=lambda name: (waiting[name], name))):
        granted[broker] = min(waiting[broker], most // (len(waiting) - place))
        most -= granted[broker]
    return granted


def read_slice(partition: InputPartition) -> Iterator[Any]:
    """Arrow batches of one slice; offsets that are gone are an error unless the user said otherwise."""
    if isinstance(partition, NetworkSlice):
        yield from read_over_network(partition)
        return
    if not isinstance(partition, JournalSlice):
        return  # Spark makes up a partition where a read has none
    key, folder = partition.key, Path(partition.folder)
    reader = JournalReader(folder)
    position = partition.start
    try:
        while position < partition.end:
            try:
                rows = min(_CHUNK_ROWS, partition.end - position)
                lengths, bodies, count = reader.read_block(position, rows, _CHUNK_BYTES)
            except OffsetsGone as gone:
                if partition.fail_on_loss and not gone.unused:
                    raise UsageError(f"{gone}; set failOnDataLoss=false to continue without them") from gone
                position = gone.first
                continue
            if key.journal and read_id(folder) != key.journal:
                if partition.fail_on_loss:
                    raise UsageError(
                        f"{folder} holds another journal now: offsets {position} to {partition.end - 1} of {key} are "
                        "gone; set failOnDataLoss=false to continue without them"
                    )
                return
            if not count:
                raise UsageError(f"{folder} ends before offset {partition.end}: is it another journal now?")
            offsets = np.arange(position, position + count)
            sizes = np.frombuffer(lengths, np.uint32).astype(np.int64)
            yield from decode_records(key.broker, offsets, sizes, bodies, key.journal).to_batches()
            position += count
    finally:
        reader.close()


class _Published(WriterCommitMessage):  # type: ignore[misc]
    def __init__(self, messages: int) -> None:
        self.messages = messages


class MessageWriter(DataSourceWriter):  # type: ignore[misc]
    """`write` returns when the broker has acknowledged every row."""

    def __init__(self, sink: Sink, columns: tuple[str, ...]) -> None:
        self._sink = sink
        self._columns = sink.check(columns)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Published(publish_rows(self._sink, self._columns, iterator))


class MessageStreamWriter(DataSourceStreamWriter):  # type: ignore[misc]
    """As `MessageWriter`, once per micro-batch."""

    def __init__(self, sink: Sink, columns: tuple[str, ...]) -> None:
        self._sink = sink
        self._columns = sink.check(columns)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Published(publish_rows(self._sink, self._columns, iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """All was acknowledged in `write`: there is nothing left to do."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """What was published cannot be taken back; Spark repeats the batch."""
