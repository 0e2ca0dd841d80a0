"""Answers requests for records from one broker's journal, as its files show it to any process."""

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metromq.errors import JournalError, OffsetsGone
from metromq.journal import JournalReader, read_id
from metromq.protocol.replay import BAD, GONE, OTHER_JOURNAL, FetchAnswer, FetchRequest, failed, hold
from metromq.protocol.session import Selection, local_time_us

# Retained messages carry logical times, and clocks are set back now and then: a search by time starts this much early.
MARGIN_US: Final = 5_000_000
MOST_ROWS: Final = 50_000  # of one answer
SPARSE_READS: Final = 8  # blocks that are read for one answer when hardly anything in them is asked for


class ReplayReader:
    """Knows the broker's name; every answer tells the journal's."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._reader = JournalReader(directory)
        self.read_bytes = 0  # so far, of which a rate is made

    def answer(self, request: FetchRequest, may_read: Callable[[str], bool] | None) -> FetchAnswer:
        try:
            return self._answer(request, may_read)
        except OffsetsGone as gone:
            found = failed(GONE, f"{self._name}: {str(gone).removeprefix(f'{self._directory}: ')}")
            found.first = found.next = gone.first
            found.unused = gone.unused
            return self._named(found)
        except JournalError as error:
            return self._named(failed(BAD, f"{self._name}: {error}"))

    def _named(self, answer: FetchAnswer) -> FetchAnswer:
        answer.broker = self._name
        answer.journal = read_id(self._directory)
        return answer

    def _answer(self, request: FetchRequest, may_read: Callable[[str], bool] | None) -> FetchAnswer:
        answer = self._named(FetchAnswer())
        answer.first, answer.end = self._reader.bounds()
        if request.journal and request.journal != answer.journal:
            answer.code = OTHER_JOURNAL
            answer.error = f"{self._name} has another journal now, {answer.journal}, not {request.journal}"
            return answer
        answer.next = request.start
        if request.start < 0:
            answer.next = self._start(answer, request.since_us)
        selection = Selection(request.topic_filter, request.origin, request.since_us, may_read)
        if request.max_bytes:
            self._read(answer, request, selection)
        return answer

    def _read(self, answer: FetchAnswer, request: FetchRequest, selection: Selection) -> None:
        to = answer.end if request.to < 0 else min(request.to, answer.end)
        if selection.takes_all():
            self._hold_block(answer, request, to)
            return
        found: list[tuple[int, bytes]] = []
        size = 0
        begin = answer.next
        for _ in range(SPARSE_READS):
            try:
                records = self._block(answer, request, to)
            except OffsetsGone:
                if answer.next == begin:
                    raise
                break  # what was found before the gap comes first; the next request meets it again
            self.read_bytes += sum([len(body) for _, body in records])
            chosen = selection.of(records)
            found += chosen
            size += sum([len(body) for _, body in chosen])
            if not records or size >= request.max_bytes // 2:
                break
        hold(answer, found)

    def _hold_block(self, answer: FetchAnswer, request: FetchRequest, to: int) -> None:
        """The next records as they are: nobody has to look into them."""
        start = answer.next
        if start >= to:
            return
        answer.lengths, answer.bodies, count = self._reader.read_block(
            start, min(MOST_ROWS, to - start), request.max_bytes
        )
        answer.next = start + count
        answer.offsets = array("q", list(range(start, answer.next))).tobytes()  # a list is taken faster than a range
        self.read_bytes += len(answer.bodies)

    def _block(self, answer: FetchAnswer, request: FetchRequest, to: int) -> list[tuple[int, bytes]]:
        """The next records; `answer` goes on behind them."""
        if answer.next >= to:
            return []
        records = self._reader.read(answer.next, min(MOST_ROWS, to - answer.next), request.max_bytes)
        if records:
            answer.next = records[-1][0] + 1
        return records

    def _start(self, answer: FetchAnswer, since_us: int) -> int:
        """The offset at which to begin for everything since a time."""
        if since_us < 0 or answer.end <= answer.first:
            return answer.first
        if answer.first > 0 and self._time(answer.first, answer.end) > since_us:
            answer.kept_since_us = self._time(answer.first, answer.end)
            return answer.first
        low, high = answer.first, answer.end
        while low < high:
            middle = (low + high) // 2
            if self._time(middle, high) < since_us - MARGIN_US:
                low = middle + 1
            else:
                high = middle
        return low

    def _time(self, offset: int, end: int) -> int:
        """When the first message from `offset` on was written; the end of time if there is none before `end`."""
        while offset < end:
            try:
                records = self._reader.read(offset, 1)
                return local_time_us(records[0][1]) if records else 1 << 62
            except OffsetsGone as gone:
                offset = gone.first
        return 1 << 62

    def close(self) -> None:
        self._reader.close()
