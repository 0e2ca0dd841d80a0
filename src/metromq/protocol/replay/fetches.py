"""The words of replay: what is asked of a broker's journal over MQTT, and how it answers.

A fetch is a PUBLISH to FETCH_TOPIC with a Response Topic; its payload is a JSON object (`FetchRequest`). It has one
answer, a PUBLISH to the Response Topic: a JSON head, then the offsets, the lengths and the bodies of journal records,
as the broker wrote them. A replay for people is a SUBSCRIBE to SINCE_PREFIX, a time or offset, and a topic filter.
"""

import json
import struct
from typing import Final, final

from metromq.errors import MalformedPacket, UsageError

ROOT: Final = "$replay"
FETCH_TOPIC: Final = "$replay/fetch"  # a user of the access list needs `write` on it
SINCE_RIGHT: Final = "$replay/since"  # and `read` on this one for replays by subscription
SINCE_PREFIX: Final = "$replay/since/"
NOTICE_TOPIC: Final = "$replay/notice"  # what a replay has to say of itself, such as what is missing
READER_PREFIX: Final = "$replay/"  # client identifiers of peer brokers that read this one's journal
ID_PROPERTY: Final = "metromq-id"  # user properties of messages of a replay: origin/offset,
TIME_PROPERTY: Final = "metromq-time"  # and when it was published there

OWN: Final = "own"  # as `origin` of a request: what clients published at the broker itself
DEFAULT_BYTES: Final = 1 << 19
LARGEST_BYTES: Final = 8 << 20

# What an error's `code` may be.
OFF: Final = "off"
DENIED: Final = "denied"
GONE: Final = "gone"
OTHER_JOURNAL: Final = "journal"
BAD: Final = "bad"
BUSY: Final = "busy"

NOT_SHARED: Final = "a shared subscription cannot be replayed: leave $share/GROUP/ out"

_COUNT: Final = struct.Struct("<II")  # bytes of the head, records


def split_since(name: str) -> tuple[str, str]:
    """The start and the topic filter of `$replay/since/10m/city/#`."""
    start, slash, topic_filter = name.removeprefix(SINCE_PREFIX).partition("/")
    if not slash or not topic_filter or not start:
        raise UsageError(f"{name} lacks something: it is {SINCE_PREFIX}10m/FILTER")
    if topic_filter.startswith("$share/"):
        raise UsageError(NOT_SHARED)
    return start, topic_filter


@final
class FetchRequest:
    """What is asked of one journal."""

    def __init__(
        self,
        start: int = -1,
        to: int = -1,
        since_us: int = -1,
        topic_filter: str = "",
        origin: str = "",
        journal: str = "",
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self.start = start  # the first offset; -1: by `since_us`, or the oldest there is
        self.to = to  # the offset after the last; -1: the end of the journal
        self.since_us = since_us  # nothing that was published before; -1: everything
        self.topic_filter = topic_filter  # empty: every topic
        self.origin = origin  # empty: every record; OWN, or the name of the broker whose messages came here over links
        self.journal = journal  # the journal that is meant; empty: whichever it is
        self.max_bytes = max_bytes  # of bodies in the answer; 0: only its head is wanted

    def encode(self) -> bytes:
        given: dict[str, object] = {"max_bytes": self.max_bytes}
        for name, number in (("from", self.start), ("to", self.to), ("since_us", self.since_us)):
            if number >= 0:
                given[name] = number
        for name, text in (("filter", self.topic_filter), ("origin", self.origin), ("journal", self.journal)):
            if text:
                given[name] = text
        return json.dumps(given).encode()


_NUMBERS: Final = ("from", "to", "since_us", "max_bytes")
_TEXTS: Final = ("filter", "origin", "journal")


def decode_request(data: bytes) -> FetchRequest:
    """UsageError says what is wrong."""
    try:
        given = json.loads(data or b"{}")
    except ValueError as error:
        raise UsageError(f"the request is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise UsageError("the request must be a JSON object")
    for name, value in given.items():
        if name in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
                raise UsageError(f"{name} must be a whole number from 0 on, not {value!r}")
        elif name not in _TEXTS:
            raise UsageError(f"{name!r} is none of {', '.join(_NUMBERS + _TEXTS)}")
        elif not isinstance(value, str):
            raise UsageError(f"{name} must be text, not {value!r}")
    return FetchRequest(
        given.get("from", -1),
        given.get("to", -1),
        given.get("since_us", -1),
        given.get("filter", ""),
        given.get("origin", ""),
        given.get("journal", ""),
        min(given.get("max_bytes", DEFAULT_BYTES), LARGEST_BYTES),
    )


@final
class FetchAnswer:
    """Records of one journal, or why there are none."""

    def __init__(self, broker: str = "", journal: str = "") -> None:
        self.broker = broker
        self.journal = journal
        self.first = 0  # the oldest offset that the journal holds
        self.end = 0  # the offset after its newest
        self.next = 0  # where to go on
        self.kept_since_us = 0  # not 0: older messages were asked for, and retention removed them
        self.code = ""  # not empty: an error
        self.error = ""
        self.unused = False  # of GONE: nobody need miss those offsets
        self.lengths = b""  # u32 each
        self.offsets = b""  # i64 each
        self.bodies = b""  # in a row

    def bodies_list(self) -> list[tuple[int, bytes]]:
        """(offset, body) of every record."""
        count = len(self.lengths) // 4
        found: list[tuple[int, bytes]] = []
        position = 0
        offsets = struct.unpack(f"<{count}q", self.offsets)
        for offset, size in zip(offsets, struct.unpack(f"<{count}I", self.lengths), strict=True):
            found.append((offset, self.bodies[position : position + size]))
            position += size
        return found


def failed(code: str, error: str) -> FetchAnswer:
    answer = FetchAnswer()
    answer.code = code
    answer.error = error
    return answer


def hold(answer: FetchAnswer, records: list[tuple[int, bytes]]) -> None:
    """Puts records into an answer."""
    bodies = [body for _, body in records]
    answer.offsets = struct.pack(f"<{len(records)}q", *[offset for offset, _ in records])
    answer.lengths = struct.pack(f"<{len(records)}I", *[len(body) for body in bodies])
    answer.bodies = b"".join(bodies)


def encode_answer(answer: FetchAnswer) -> bytes:
    head: dict[str, object] = {
        "broker": answer.broker,
        "journal": answer.journal,
        "first": answer.first,
        "end": answer.end,
        "next": answer.next,
    }
    if answer.kept_since_us:
        head["kept_since_us"] = answer.kept_since_us
    if answer.code:
        head["code"] = answer.code
        head["error"] = answer.error
        head["unused"] = answer.unused
    text = json.dumps(head).encode()
    count = len(answer.lengths) // 4
    return b"".join([_COUNT.pack(len(text), count), text, answer.offsets, answer.lengths, answer.bodies])


def decode_answer(data: bytes) -> FetchAnswer:
    try:
        size, count = _COUNT.unpack_from(data)
        at = _COUNT.size + size
        head = json.loads(data[_COUNT.size : at])
        answer = FetchAnswer(head["broker"], head["journal"])
        answer.first, answer.end, answer.next = head["first"], head["end"], head["next"]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise MalformedPacket(f"an answer of a replay cannot be read: {error!r}") from error
    answer.kept_since_us = head.get("kept_since_us", 0)
    answer.code, answer.error = head.get("code", ""), head.get("error", "")
    answer.unused = head.get("unused", False)
    answer.offsets = data[at : at + 8 * count]
    answer.lengths = data[at + 8 * count : at + 12 * count]
    answer.bodies = data[at + 12 * count :]
    return answer
