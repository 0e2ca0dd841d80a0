"""Journals read over the network: brokers are asked for ranges of records, so that a cluster needs no broker's disk.

A record is (broker, journal, offset), as it is on disk, and its row has the same columns.
"""

import json
import time
from collections.abc import Collection, Iterator
from logging import getLogger
from typing import Any, Final

import numpy as np
from pyspark.sql.datasource import InputPartition

from metromq.errors import ConnectRefused, MqttError, UsageError
from metromq.moments import time_of
from metromq.pipeline.broker_lines import BrokerLine, BrokerPlace, ask_once, give_back, take_line
from metromq.pipeline.decode import decode_records
from metromq.pipeline.keys import JournalKey, place_key, place_name
from metromq.pipeline.option_values import truth, whole_number
from metromq.protocol import reasons
from metromq.protocol.replay import BUSY, GONE, OTHER_JOURNAL, FetchAnswer, FetchRequest

FETCH_BYTES: Final = 256 << 10  # more saves little, and while a broker passes on an answer its clients wait
BATCH_BYTES: Final = 1 << 20  # of answers decoded together: each batch has its price, larger ones leave the cache
PATIENCE_S: Final = 60.0  # a broker may restart while it is asked, or while a batch is read
RETRY_S: Final = 0.5
_LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999
_PASSING_REFUSALS: Final = (
    reasons.SERVER_UNAVAILABLE,
    reasons.SERVER_BUSY,
    reasons.QUOTA_EXCEEDED,
    reasons.CONNECTION_RATE_EXCEEDED,
)
_LOG: Final = getLogger("metromq")


class NobodyAnswers(UsageError):
    """None of the brokers can be asked now."""


class _Busy(MqttError):
    """The broker answered that it has no time to answer."""


class NetworkOptions:
    """The options of a read, checked; asks brokers where their journals stand."""

    def __init__(self, options: Any) -> None:
        self.places = [_place(text, options) for text in options["brokers"].split(",")]
        self.max_rows = whole_number(options, "maxRowsPerBatch", 500_000)
        self.rows_per_partition = whole_number(options, "rowsPerPartition", 250_000)
        self.fail_on_loss = truth(options, "failOnDataLoss", True)
        self.starting = _starting(options.get("startingOffsets", "earliest"))
        stamp = options.get("startingTimestamp")
        if stamp is not None and "startingOffsets" in options:
            raise UsageError("a stream starts at startingOffsets or at startingTimestamp, not at both")
        self.since_us = None if stamp is None else _timestamp(stamp)
        self._by_broker: dict[str, BrokerPlace] = {}

    def initial(self) -> dict[str, int]:
        """Where a new stream starts: every broker must answer, or nobody knows where it would have started."""
        return {name: first for name, (first, _) in self._starts().items()}

    def whole(self) -> dict[str, tuple[int, int]]:
        """What a read that comes to an end reads: from where a new stream would start to where journals end now."""
        return {name: span for name, span in self._starts().items() if span[1]}

    def _starts(self) -> dict[str, tuple[int, int]]:
        answers = self._all_statuses(self.since_us if self.since_us is not None else -1)
        found = {_name(answer): (self._first(answer), answer.end) for answer in answers}
        self._check_names(found)
        return found

    def _first(self, answer: FetchAnswer) -> int:
        wanted = self.starting.get(answer.broker, self.starting.get("", "earliest"))
        if isinstance(wanted, int):
            if wanted > answer.end:
                raise UsageError(
                    f"startingOffsets says {wanted} for {answer.broker}, whose journal ends at {answer.end}"
                )
            return wanted
        if wanted == "latest":
            return answer.end
        return answer.next if self.since_us is not None else answer.first

    def _check_names(self, found: Collection[str]) -> None:
        known = {place_key(name).broker for name in found}
        strange = [broker for broker in self.starting if broker and broker not in known]
        if strange:
            raise UsageError(f"startingOffsets names {', '.join(strange)}; the brokers are {', '.join(sorted(known))}")

    def bounds(self) -> dict[str, tuple[int, int]]:
        """First offset and end of every journal that ever had something. A broker that is away is left out: the stream
        goes on with the others, and with this one when it is back."""
        answers, problems = self._answers_now()
        if not answers:
            raise NobodyAnswers(f"no broker can be asked: {problems}")
        return _spans(answers)

    def _answers_now(self) -> tuple[list[FetchAnswer], str]:
        """Of the brokers that can be asked, and what is the matter with the others."""
        answers: list[FetchAnswer] = []
        problems: list[str] = []
        for place in self.places:
            try:
                answers.append(self._status(place))
            except MqttError as error:
                if not _may_pass(error):
                    raise UsageError(f"{place} refuses to be asked: {error}") from error
                problems.append(f"{place}: {error}")
                _LOG.warning("a broker cannot be asked now: %s", problems[-1])
        return answers, "; ".join(problems)

    def bounds_of(self, names: Collection[str]) -> dict[str, tuple[int, int]]:
        """The same when the brokers of these journals have answered: a plan that was made before is being read."""
        wanted = {place_key(name).broker for name in names}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answers, problems = self._answers_now()
            missing = wanted - {answer.broker for answer in answers}
            if not missing:
                return _spans(answers)
            if not problems or time.monotonic() > deadline:
                places = ", ".join(map(str, self.places))
                raise UsageError(
                    f"none of {places} is the broker {', '.join(sorted(missing))}" + (f" ({problems})" * bool(problems))
                )
            time.sleep(RETRY_S)

    def all_bounds(self) -> dict[str, tuple[int, int]]:
        """The same of all brokers without exception, for reads that are to be complete and come to an end."""
        return _spans(self._all_statuses())

    def _all_statuses(self, since_us: int = -1) -> list[FetchAnswer]:
        deadline = time.monotonic() + PATIENCE_S
        return [self._patient_status(place, since_us, deadline) for place in self.places]

    def _patient_status(self, place: BrokerPlace, since_us: int, deadline: float) -> FetchAnswer:
        while True:
            try:
                return self._status(place, since_us)
            except MqttError as error:
                if time.monotonic() > deadline or not _may_pass(error):
                    raise UsageError(
                        f"{place} cannot be asked: {error}; nothing was read, since what this broker has would be"
                        " missing. Start it, or leave it out of `brokers`"
                    ) from error
            time.sleep(RETRY_S)

    def _status(self, place: BrokerPlace, since_us: int = -1) -> FetchAnswer:
        answer = ask_once(place, FetchRequest(since_us=since_us, max_bytes=0))
        if answer.code == BUSY:
            raise _Busy(answer.error)
        if answer.code:
            raise UsageError(f"{place}: {answer.error}")
        if self._by_broker.setdefault(answer.broker, place) != place:
            raise UsageError(f"{place} and {self._by_broker[answer.broker]} are both the broker {answer.broker}")
        return answer

    def slices(self, spans: dict[str, tuple[int, int]]) -> list["NetworkSlice"]:
        """Each journal's offsets, cut so that a long journal keeps more than one core busy."""
        keys = {name: place_key(name) for name in spans}
        if any(key.broker not in self._by_broker for key in keys.values()):
            self.bounds_of(spans)
        return [
            NetworkSlice(
                keys[name],
                self._by_broker[keys[name].broker],
                low,
                min(low + self.rows_per_partition, end),
                self.fail_on_loss,
            )
            for name, (first, end) in spans.items()
            for low in range(first, end, self.rows_per_partition)
        ]


class NetworkSlice(InputPartition):  # type: ignore[misc]  # pyspark is not followed
    """Offsets [start, end) of one journal, and where its broker is."""

    def __init__(self, key: JournalKey, place: BrokerPlace, start: int, end: int, fail_on_loss: bool) -> None:
        self.key = key
        self.place = place
        self.start = start
        self.end = end
        self.fail_on_loss = fail_on_loss


def read_over_network(part: NetworkSlice) -> Iterator[Any]:
    """Arrow batches of one slice. While a batch is decoded and taken, the broker reads the next."""
    position = part.start
    held: list[FetchAnswer] = []
    held_bytes = 0
    deadline = time.monotonic() + PATIENCE_S
    while position < part.end:
        try:
            for answer in _answers(part, position):
                deadline = time.monotonic() + PATIENCE_S
                if answer.code == BUSY:
                    time.sleep(RETRY_S)
                    break
                position = _after(part, position, answer)
                if answer.lengths:
                    held.append(answer)
                    held_bytes += len(answer.bodies)
                if held_bytes >= BATCH_BYTES:
                    yield from _table(part, held).to_batches()
                    held, held_bytes = [], 0
        except MqttError as error:
            if time.monotonic() > deadline:
                raise UsageError(f"{part.place}, the broker {part.key.broker}, cannot be asked: {error}") from error
            time.sleep(RETRY_S)
    if held:
        yield from _table(part, held).to_batches()


def _answers(part: NetworkSlice, position: int) -> Iterator[FetchAnswer]:
    """One connection's worth of answers; the next request leaves before an answer is worked on."""
    line = take_line(part.place)
    is_whole = False
    try:
        line.ask(_request(part, position))
        while position < part.end:
            answer = line.answer()
            after = part.end if answer.code and answer.code != GONE else answer.next
            if position < after < part.end:
                line.ask(_request(part, after))
            position = after if after > position else part.end
            is_whole = position >= part.end
            yield answer
    finally:
        _finish(part.place, line, is_whole)


def _finish(place: BrokerPlace, line: BrokerLine, is_whole: bool) -> None:
    """A line with a request under way is of no use for the next task."""
    if is_whole:
        give_back(place, line)
    else:
        line.close()


def _request(part: NetworkSlice, position: int) -> FetchRequest:
    return FetchRequest(position, part.end, journal=part.key.journal, max_bytes=FETCH_BYTES)


def _after(part: NetworkSlice, position: int, answer: FetchAnswer) -> int:
    """Where to go on, if nothing is lost or the user does not mind."""
    hint = "set failOnDataLoss=false to continue without them"
    if answer.code == GONE:
        if part.fail_on_loss and not answer.unused:
            raise UsageError(f"{answer.error}; {hint}")
        return min(answer.first, part.end)
    if answer.code == OTHER_JOURNAL:
        if part.fail_on_loss:
            raise UsageError(f"{answer.error}: offsets {position} to {part.end - 1} of {part.key} are gone; {hint}")
        return part.end
    if answer.code:
        raise UsageError(f"{part.place}: {answer.error}")
    if answer.next <= position:
        raise UsageError(f"the journal of {part.key} ends before offset {part.end}: is it another journal now?")
    return answer.next


def _table(part: NetworkSlice, answers: list[FetchAnswer]) -> Any:
    offsets = np.frombuffer(b"".join([answer.offsets for answer in answers]), np.int64)
    lengths = np.frombuffer(b"".join([answer.lengths for answer in answers]), np.uint32).astype(np.int64)
    bodies = b"".join([answer.bodies for answer in answers])
    return decode_records(part.key.broker, offsets, lengths, bodies, part.key.journal)


def _spans(answers: list[FetchAnswer]) -> dict[str, tuple[int, int]]:
    """Also of journals whose every record retention removed: a reader that is behind must hear of it."""
    return {_name(answer): (answer.first, answer.end) for answer in answers if answer.end}


def _may_pass(error: MqttError) -> bool:
    return not isinstance(error, ConnectRefused) or error.reason_code in _PASSING_REFUSALS


def _name(answer: FetchAnswer) -> str:
    return place_name(JournalKey(answer.broker, answer.journal))


def _place(text: str, options: Any) -> BrokerPlace:
    host, _, port = text.strip().rpartition(":")
    tls = truth(options, "tls", "cafile" in options)
    if not host or not port.isdigit():
        host, port = text.strip(), "8883" if tls else "1883"
    if not host or not port.isascii() or not 0 < int(port) < 65536:
        raise UsageError(f'brokers must look like "host1:1883,host2:1883", not {options["brokers"]!r}')
    host = host.removeprefix("[").removesuffix("]")
    return BrokerPlace(host, int(port), options.get("username"), options.get("password"), tls, options.get("cafile"))


def _starting(text: str) -> dict[str, int | str]:
    """By broker; the empty name stands for all others."""
    if text in ("earliest", "latest"):
        return {"": text}
    try:
        given = json.loads(text)
        good = isinstance(given, dict) and all(_is_start(value) for value in given.values())
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            'startingOffsets must be earliest, latest, or one of these or an offset per broker, {"b1": 1200, "b2":'
            f' "latest"}}, not {text!r}'
        )
    return dict(given)


def _is_start(value: object) -> bool:
    return value in ("earliest", "latest") or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _timestamp(text: str) -> int:
    """ISO 8601, or milliseconds since 1970 as Spark's own sources take them."""
    try:
        return _whole_ms(text) * 1000 if text.isdecimal() else time_of(text)
    except UsageError:
        raise UsageError(
            f"startingTimestamp must be a time such as 2026-11-17T08:00:00Z, or milliseconds since 1970, not {text!r}"
        ) from None


def _whole_ms(text: str) -> int:
    return whole_number({"startingTimestamp": text}, "startingTimestamp", 0, least=0, most=_LAST_MS)
