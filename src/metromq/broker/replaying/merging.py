"""Old messages of a whole city, in the order of their times, each once: of every broker what its clients published.

A message that travelled is in several journals, and in that of its origin in any case, so every broker is asked for its
own only. If one is out of reach, the others are asked for the copies that came to them, which are recognised by origin
and offset.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from metromq.errors import MetroError
from metromq.moments import text_of
from metromq.protocol.replay import GONE, OWN, FetchAnswer, FetchRequest
from metromq.protocol.session import Replayed, replayed

Ask = Callable[[FetchRequest], Awaitable[FetchAnswer]]
CLOCKS_APART_US = 60_000_000  # a copy may have come to another broker this much before its time, by that one's clock


class BrokerAway(MetroError):
    """A broker cannot be asked (any more)."""


@dataclass(slots=True)
class Stream:
    """What one journal still has to give."""

    broker: str
    ask: Ask
    request: FetchRequest  # its `start` is where to go on
    copies_of: str = ""  # another broker's name: what came from there
    end: int = 0  # so far it is read
    heads: deque[Replayed] = field(default_factory=deque)
    last_us: int = 0
    is_lost: bool = False  # only its heads are left

    def rest(self) -> bool:
        return self.request.start < self.end

    async def refill(self) -> str:
        """The next messages; returns what must be told of them."""
        self.request.to = self.end
        answer = await self.ask(self.request)
        if answer.code == GONE:
            self.request.start = answer.first
            return "" if answer.unused else answer.error
        if answer.code:
            raise BrokerAway(answer.error)
        if answer.next <= self.request.start:
            raise BrokerAway(f"the journal of {self.broker} ends before offset {self.end}")
        self.request.start = answer.next
        self.heads.extend(replayed(self.broker, offset, body) for offset, body in answer.bodies_list())
        return ""


@dataclass(slots=True)
class Merge:
    """One replay over a city. `offset` -1: everything since `since_us`, of all brokers; else from that offset on in the
    journal of `name`, whatever its origin."""

    name: str
    brokers: dict[str, Ask]
    topic_filter: str
    since_us: int
    offset: int = -1
    streams: list[Stream] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    away: dict[str, int] = field(default_factory=dict)  # brokers out of reach: from which offset on theirs is missing
    seen: set[tuple[str, int]] = field(default_factory=set)  # of those, what was found elsewhere

    async def open(self) -> None:
        """Finds where each journal begins for us, and how far it reaches now."""
        if self.offset >= 0:
            await self._open(self.name, FetchRequest(self.offset, topic_filter=self.topic_filter, since_us=-1))
            return
        away: dict[str, str] = {}
        for broker in self.brokers:
            request = FetchRequest(since_us=self.since_us, topic_filter=self.topic_filter, origin=OWN)
            try:
                await self._open(broker, request)
            except BrokerAway as error:
                away[broker] = str(error)
        for broker, why in away.items():  # when it is known who can be asked instead
            await self._miss(broker, 0, self.since_us, why)

    async def _open(self, broker: str, request: FetchRequest) -> None:
        ask = self.brokers[broker]
        request.max_bytes, most = 0, request.max_bytes
        answer = await ask(request)
        if answer.code:
            raise BrokerAway(answer.error)
        if answer.kept_since_us:
            self.notices.append(
                f"{broker} holds messages from {text_of(answer.kept_since_us)} on only: retention removed older ones"
            )
        request.max_bytes = most
        request.start = answer.next
        request.journal = answer.journal
        copies = request.origin if request.origin != OWN else ""
        self.streams.append(Stream(broker, ask, request, copies, answer.end))

    async def _miss(self, broker: str, position: int, since_us: int, why: str) -> None:
        """Looks for a broker's messages at the others."""
        if broker == self.name:
            raise BrokerAway(why)
        self.notices.append(f"{why}; messages of {broker} come as far as other brokers have them")
        self.away[broker] = position
        for other in [stream.broker for stream in self.streams if not stream.copies_of and not stream.is_lost]:
            request = FetchRequest(since_us=max(0, since_us), topic_filter=self.topic_filter, origin=broker)
            try:
                await self._open(other, request)
            except BrokerAway:
                continue  # its own stream will tell

    async def reach(self, ends: dict[str, int]) -> None:
        """From now on the journals are read as far as these offsets, or as far as they reach now."""
        for stream in [stream for stream in self.streams if not stream.is_lost]:
            if stream.broker in ends:
                stream.end = max(stream.end, ends[stream.broker])
                continue
            try:
                answer = await stream.ask(FetchRequest(max_bytes=0, journal=stream.request.journal))
                if answer.code:
                    raise BrokerAway(answer.error)
                stream.end = max(stream.end, answer.end)
            except BrokerAway as error:
                await self._lost(stream, str(error))

    async def _lost(self, stream: Stream, why: str) -> None:
        """What it gave already still counts."""
        stream.is_lost = True
        stream.end = stream.request.start
        last_us = stream.heads[-1].time_us if stream.heads else stream.last_us
        if not stream.copies_of:
            since_us = last_us - CLOCKS_APART_US if last_us else self.since_us
            await self._miss(stream.broker, stream.end, max(since_us, self.since_us), why)

    async def messages(self) -> AsyncIterator[Replayed]:
        """Everything up to where `reach` said, in order."""
        while True:
            for stream in list(self.streams):
                while not stream.heads and stream.rest():
                    try:
                        notice = await stream.refill()
                        if notice:
                            self.notices.append(notice)
                    except BrokerAway as error:
                        await self._lost(stream, str(error))
                        break
            if any(not stream.heads and stream.rest() for stream in self.streams):
                continue  # one was lost, and others were opened instead
            ready = [stream for stream in self.streams if stream.heads]
            if not ready:
                return
            first = min(ready, key=_time)
            limit = min((_time(stream) for stream in ready if stream is not first), default=1 << 62)
            while first.heads and first.heads[0].time_us <= limit:
                message = first.heads.popleft()
                first.last_us = message.time_us
                if self._is_new(message):
                    yield message

    def _is_new(self, message: Replayed) -> bool:
        if self.offset >= 0 or message.origin not in self.away:
            return True
        if message.offset >= 0 and message.offset < self.away[message.origin]:
            return False
        key = (message.origin, message.offset)
        if message.offset < 0 or key in self.seen:
            return False
        self.seen.add(key)
        return True

    def limits(self) -> dict[str, int]:
        """Per origin the offset before which everything has been replayed."""
        if self.offset >= 0:
            return {}
        reached = [stream for stream in self.streams if not stream.copies_of and not stream.is_lost]
        return self.away | {stream.broker: stream.end for stream in reached}


def _time(stream: Stream) -> int:
    return stream.heads[0].time_us
