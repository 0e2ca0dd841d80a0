"""Takes landed files into `messages` and `telemetry`: whatever comes twice, late, old or broken, each row once."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from deltalake.transaction import AddAction
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from metromq.errors import MetroError
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landed_rows import completing, judged, landed
from metromq.pipeline.landing import GONE, MESSAGES, TELEMETRY, LandedFile, Landing, Rejected, parse_path
from metromq.pipeline.patience import Say, patiently
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import LANDED_TELEMETRY
from metromq.pipeline.table_files import Part, read_files

INGEST = "metromq-ingest"  # an application whose number counts the commits of all runs
NAMED = 5  # files that an error names
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a landed file that the lake does not hold yet."""

    file: LandedFile
    ranges: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> bool:
        return self.ranges == ((self.file.first, self.file.last),)

    @property
    def rows(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch."""

    messages: int
    telemetry_files: int
    repeated_files: int
    rejected: tuple[Rejected, ...]
    brokers: dict[str, int] = field(default_factory=dict)  # messages, by broker


def fresh_slices(files: Iterable[LandedFile], covered: dict[JournalKey, Ranges]) -> list[Slice]:
    """Per file the offsets that neither the lake nor an earlier file of the batch has; files with none are left out."""
    seen: dict[JournalKey, Ranges] = {}
    slices: list[Slice] = []
    for file in files:
        before = covered.get(file.key, Ranges())
        batch = seen.setdefault(file.key, Ranges())
        ranges = [part for first, last in before.missing(file.first, file.last) for part in batch.missing(first, last)]
        if ranges:
            batch.add(file.first, file.last)
            slices.append(Slice(file, tuple(ranges)))
    return slices


class Ingest:
    """Knows what the lake covers, so that a batch costs no look at the table; one per lake (see `jobs.lake_lock`).

    Each commit counts on in the table's log, so that of two at work on a lake one is refused its next commit: what it
    knows of the table is no longer true.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        landing: Landing,
        report: Callable[[Taken], None],
        say: Say = lambda text: None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._landing = landing
        self._report = report
        self._say = say
        self._turn = lake.done("messages", INGEST)  # before the next line: what comes between them is a conflict
        self._covered = lake.coverage()
        self._windows: dict[str, set[tuple[str, int, int]]] = {}  # of telemetry, by file

    def take(self, names: DataFrame, batch: int) -> None:
        """For `foreachBatch`: one Delta transaction per table and batch, then the landed files go."""
        files = [file for row in names.collect() if (file := parse_path(row["path"])) is not None]
        if files:  # the first batch of a new checkpoint may be empty
            self._report(self.take_files(files))

    def take_files(self, files: Sequence[LandedFile]) -> Taken:
        present, rejected = self._inspect(files)
        messages = sorted(
            (file for file in present if file.kind == MESSAGES),
            key=lambda file: (file.broker, file.journal, file.first),
        )
        telemetry = [file for file in present if file.kind == TELEMETRY]
        slices = self._take_messages(messages, rejected)
        windows = self._take_telemetry(telemetry, rejected)
        aside = {item.path for item in rejected}
        kept = [file for file in present if file.path not in aside]
        self._landing.remove(kept)
        brokers: Counter[str] = Counter()
        for item in slices:
            brokers[item.file.broker] += item.rows
        repeated = len(kept) - len(slices) - windows
        return Taken(brokers.total(), windows, repeated, tuple(rejected), dict(brokers))

    def _inspect(self, files: Sequence[LandedFile], deep: bool = False) -> tuple[list[LandedFile], list[Rejected]]:
        """Files that are gone were taken in by a run that was killed before it could say so."""
        problems = self._landing.store.each(lambda file: self._landing.problem(file, deep), files)
        judged = [(file, problem) for file, problem in zip(files, problems, strict=True) if problem != GONE]
        good = [file for file, problem in judged if problem is None]
        return good, [self._landing.set_aside(file, problem) for file, problem in judged if problem is not None]

    def _write(
        self,
        files: list[LandedFile],
        write: Callable[[list[LandedFile]], list[AddAction]],
        rejected: list[Rejected],
    ) -> tuple[list[AddAction], list[LandedFile]]:
        """Write the rows of the files; if the job fails, set the broken files aside and write the others."""
        while files:
            try:
                return patiently(lambda: write(files), self._say), files  # noqa: B023
            except (Py4JJavaError, PySparkException) as error:
                good, broken = self._inspect(files, deep=True)
                if not broken:  # every page of every file can be read, and is what it should be
                    names = ", ".join(file.path for file in files[:NAMED])
                    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
                    raise MetroError(f"cannot load {names}{more}: {_reason(error)}") from error
                files = good
                rejected.extend(broken)
        return [], []

    def _take_messages(self, files: list[LandedFile], rejected: list[Rejected]) -> list[Slice]:
        if not fresh_slices(files, self._covered):
            return []
        added, good = self._write(
            files, lambda files: self._write_messages(fresh_slices(files, self._covered)), rejected
        )
        slices = fresh_slices(good, self._covered)
        if added:
            self._lake.commit("messages", added, done={INGEST: self._turn + 1}, after={INGEST: self._turn})
            self._turn += 1
        for item in slices:
            for first, last in item.ranges:
                self._covered.setdefault(item.file.key, Ranges()).add(first, last)
        return slices

    def _write_messages(self, slices: list[Slice]) -> list[AddAction]:
        if not slices:
            return []
        parts = [Part(item.file.path, item.file.rows) for item in slices]
        spans = {item.file.path: item.ranges for item in slices if not item.whole}
        files = landed(self._spark, self._landing.store, parts, spans)
        return self._lake.write_files(judged(self._spark, files), "messages", completing(files))

    def _take_telemetry(self, files: list[LandedFile], rejected: list[Rejected]) -> int:
        if not files:
            return 0
        turn = self._lake.done("telemetry", INGEST)
        known = self._known_windows(files)
        fresh = [file for file in files if (file.broker, file.first, file.last) not in known]
        added, good = self._write(fresh, self._write_telemetry, rejected)
        if added:
            self._lake.commit("telemetry", added, done={INGEST: turn + 1}, after={INGEST: turn})
        return len(good)

    def _write_telemetry(self, files: list[LandedFile]) -> list[AddAction]:
        parts = [Part(file.path, file.rows) for file in files]
        rows = read_files(self._spark, self._landing.store, parts, LANDED_TELEMETRY)
        return self._lake.write_files(rows.withColumn("day", F.to_date("window_start")).coalesce(1), "telemetry")

    def _known_windows(self, files: list[LandedFile]) -> set[tuple[str, int, int]]:
        """The (broker, window, sequence) that files of the table have at the moments in question. A file is read once:
        batches come every second, and a day of windows is large."""
        moments = {_EPOCH + timedelta(microseconds=file.first) for file in files}
        live = self._lake.files("telemetry")
        there = [file for file in live if any(file.overlaps("window_start", moment, moment) for moment in moments)]
        paths = {file.path for file in live}
        self._windows = {path: found for path, found in self._windows.items() if path in paths}
        for file in there:
            if file.path not in self._windows:
                table = self._lake.arrow("telemetry", [file], ("broker", "window_start", "sequence"))
                unique = table.group_by(["broker", "window_start", "sequence"]).aggregate([]).to_pylist()
                self._windows[file.path] = {
                    (row["broker"], _microseconds(row["window_start"]), row["sequence"]) for row in unique
                }
        return set().union(*(self._windows[file.path] for file in there))


def _reason(error: Exception) -> str:
    """The first line that says what went wrong; the first of all says only which call it was."""
    lines = str(error).splitlines() or [type(error).__name__]
    return next((line.lstrip(": ") for line in lines if "Exception" in line or "Error" in line), lines[0])


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
