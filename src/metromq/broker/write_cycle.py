"""The rhythm of the broker: once per loop turn everything that waits is committed and written."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from metromq.broker.vigil import Vigil
from metromq.journal import GroupCommit
from metromq.protocol.session import Connection, Flusher, Hub, Output

_WALL_NS: Final = time.time_ns
SQUEEZED_BYTES: Final = 1 << 16  # what each lagging client may hold while all together hold too much


@mypyc_attr(allow_interpreted_subclasses=True)
class Writer(Flusher):
    """The shell's end of one client connection."""

    def __init__(self, cycle: "WriteCycle", connection: Connection) -> None:
        self.cycle = cycle
        self.connection = connection
        self.output = connection.output
        self.held_bytes = 0  # what this client counts for in the total
        self.followers: dict[Writer, None] | None = None  # publishers that wait until this client has drained
        self.paused = False
        self.output.owner = self

    def is_open(self) -> bool:
        """Whether the network connection is still there."""
        raise NotImplementedError

    def abort(self) -> None:
        """Ends it without waiting for what is unsent."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Whoever was waited for has drained, is gone, or has had its time."""

    def release(self) -> None:
        """Lets those go on who waited for this client."""
        followers = self.followers
        if followers is not None:
            self.followers = None
            for follower in followers:
                follower.go_on()

    def part(self) -> None:
        """The network connection is gone: its output no longer holds on to this end, nor this end to it for ever."""
        self.output.owner = None

    def account(self, held_bytes: int) -> None:
        """Keeps the total of unsent output and squeezes those who lag while it is too large."""
        cycle = self.cycle
        cycle.held_bytes += held_bytes - self.held_bytes
        self.held_bytes = held_bytes
        limit = cycle.hub.settings.max_outgoing_bytes
        self.output.hard_limit_bytes = limit if cycle.held_bytes < cycle.max_held_bytes else min(limit, SQUEEZED_BYTES)


class WriteCycle:
    """Calls the hub at the right time and writes what it produced."""

    def __init__(
        self,
        hub: Hub,
        loop: asyncio.AbstractEventLoop,
        max_held_bytes: int,
        vigil: Vigil | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hub = hub
        self.loop = loop
        self.clock = clock  # not the loop's, which counts milliseconds
        self.vigil = vigil or Vigil()
        self.awake_until = 0.0
        self.polling = False
        self.polled_at = 0.0
        self.commit: GroupCommit | None = None
        self.max_held_bytes = max_held_bytes
        self.held_bytes = 0
        self.scheduled = False
        self.seen_position = 0

    def now(self) -> None:
        self.hub.at(self.clock(), _WALL_NS() // 1000)

    def worked(self) -> None:
        """After every event: the first of a turn is answered at once, the others together at the turn's end."""
        hub = self.hub
        if hub.commits.position != self.seen_position:
            self.seen_position = hub.commits.position
            if self.commit is not None:
                self.commit.commit_soon(hub.commits.urgent)
            hub.commits.urgent = False
        if not self.scheduled:
            self.scheduled = True
            try:
                self.flush()  # first of all: somebody waits for it
            finally:
                self.loop.call_soon(self.end)

    def listened(self) -> None:
        """As `worked`, after an event that mostly asks for nothing: then the turn is over at once."""
        if self.scheduled or self.hub.dirty or self.hub.commits.position != self.seen_position:
            self.worked()

    def end(self) -> None:
        self.scheduled = False
        self.flush()
        began = self.hub.clock.now
        stay_s = self.vigil.after_turn(began, self.clock())
        self.awake_until = began + stay_s
        if stay_s > 0 and not self.polling:
            self.polling = True
            self.polled_at = 0.0
            self.loop.call_soon(self.poll)

    def poll(self) -> None:
        """Keeps the loop awake for a while after the last event, as the vigil says."""
        now = self.clock()
        before, self.polled_at = self.polled_at, now
        self.polling = now < self.awake_until
        if before:
            self.polling = self.vigil.looked(now - before, now) and self.polling
        if self.polling:
            self.loop.call_soon(self.poll)

    def flush(self) -> None:
        dirty = self.hub.dirty
        while dirty:
            if len(dirty) == 1:  # as it is with little to do: no list is made
                _flush(dirty.pop())
                continue
            batch = dirty[:]
            dirty.clear()
            for output in batch:
                _flush(output)


def _flush(output: Output) -> None:
    output.marked = False
    owner = output.owner
    if owner is not None:
        owner.flush()
