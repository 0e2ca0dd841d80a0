"""What two brokers learn of each other from their greetings: versions, clocks, how long nobody was heard; no I/O."""

from collections.abc import Callable
from typing import final

from metromq.federation.clock_skew import ClockSkews, Skew
from metromq.federation.coordination.coordinator import Coordinator, Greet
from metromq.federation.descriptions import Descriptions
from metromq.federation.effects import ClockSkewed, Effect, Keep
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.links.frames import ClockCompared, ClockTold, Hello
from metromq.federation.links.versions import COUNTED_SINCE, RUMOURS_SINCE, SAID_SINCE, LinkVersions
from metromq.federation.reach import Reach
from metromq.federation.silences import Silences


@final
class Greetings:
    """`wall_us` is our own clock, `now_us` a monotonic one."""

    def __init__(
        self, coordinator: Coordinator, descriptions: Descriptions, wall_us: Callable[[], int], now_us: int
    ) -> None:
        membership = descriptions.now.city.membership
        self._far_us = membership.hello_interval_ms * membership.far_factor * 1000
        self._greeted_us = now_us  # when guests were
        self.versions = LinkVersions()
        self.clock = HybridClock(wall_us)
        self.skews = ClockSkews()
        self.silences = Silences(2 * self._far_us)  # shorter ones are usual
        self._coordinator = coordinator
        self._descriptions = descriptions
        self._wall_us = wall_us

    # What we say.

    def guests(self, up: Reach, now_us: int) -> list[str]:
        """Peers that have a link for now, when it is time to greet them: they too compare what was announced."""
        if now_us - self._greeted_us < self._far_us:
            return []
        self._greeted_us = now_us
        return self._coordinator.contacts().guests(up)

    def hello(self, event: Greet, interest_digest: int, now_us: int) -> Hello:
        time_us = self.clock.stamp_us()
        echo_us, held_us = self.skews.echo(event.peer, now_us)
        version, descriptions = self.spoken_to(event.peer), self._descriptions
        return Hello(
            version,
            interest_digest,
            event.greeting,
            time_us,
            descriptions.told(event.peer, version),
            self._wall_us(),
            echo_us,
            held_us,
            descriptions.now.epoch,
        )

    def spoken_to(self, peer: str) -> int:
        """The version of the link."""
        return self.versions.to(peer, not self._coordinator.contacts().on_demand)

    def reads_time(self, peer: str) -> bool:
        """Whether the peer would understand that it is told the hybrid time."""
        return self.spoken_to(peer) >= SAID_SINCE

    def reads_rumours(self, peer: str) -> bool:
        """Whether the peer would understand rumours, and that its link rests."""
        return self.spoken_to(peer) >= RUMOURS_SINCE

    def reads_counts(self, peer: str) -> bool:
        """Whether the peer would understand who follows the city's description."""
        return self.spoken_to(peer) >= COUNTED_SINCE

    # What we hear.

    def heard(self, peer: str, hello: Hello, now_us: int) -> None:
        """Raises PeerViolation for one of another city, or of a release that we cannot understand."""
        self.versions.check(peer, hello.version)
        self._descriptions.check(peer, hello)
        self.clock.heard(hello.time_us)
        if hello.wall_us:
            self.silences.greeted(peer, hello.wall_us, now_us)

    def compare_clocks(self, peer: str, hello: Hello, now_us: int) -> list[Effect]:
        """Says once that a peer's clock is wrong, and once that it is right again; a restart must know of it."""
        effects: list[Effect] = []
        self.skews.heard(peer, hello.wall_us, hello.echo_us, hello.held_us, self._wall_us(), now_us)
        known = self.skews.of(peer)
        is_sure = self.skews.is_sure(peer)
        if known is not None and is_sure and self.clock.compared(peer, known.ahead_us, known.round_trip_us):
            effects.append(self._kept(peer, self.clock.ahead_of_us(peer)))
        limit_us = self._descriptions.now.city.membership.clock_warning_ms * 1000
        skew = self.skews.news(peer, limit_us)
        if skew is not None:
            effects.append(ClockSkewed(peer, skew.ahead_us, self.skews.is_apart(peer)))
        return effects

    def _kept(self, peer: str, ahead_us: int) -> Keep:
        return Keep(peer, ClockCompared(max(0, ahead_us), max(0, -ahead_us)))

    def restore(self, peer: str, compared: ClockCompared) -> None:
        self.clock.recall(peer, compared.ahead_us - compared.behind_us)

    def snapshot(self) -> list[Keep]:
        return [self._kept(peer, ahead_us) for peer, ahead_us in self.clock.kept().items()]

    def time_told(self, frame: ClockTold) -> list[Effect]:
        self.clock.heard(frame.time_us)
        self.clock.happened(frame.time_us)
        return []

    def ago_us(self, broker: str, time_us: int) -> int:
        """How long ago a broker's clock showed `time_us`, at least; -1: its clock was not compared yet."""
        skew = Skew(0, 0) if broker == self._coordinator.name else self.skews.of(broker)
        return -1 if skew is None else max(0, self._wall_us() + skew.ahead_us - time_us - skew.round_trip_us)

    def rests(self, peer: str) -> list[Effect]:
        self.silences.rests(peer)
        return []

    def member_left(self, peer: str) -> None:
        self.skews.forget(peer)
        self.clock.forget(peer)
        self.versions.forget(peer)
