"""One copy of a message for one peer."""

from dataclasses import dataclass

from metromq.federation.stages import HOP_LIMIT, NAMES


@dataclass(frozen=True, slots=True)
class Hop:
    """One copy for one peer."""

    peer: str
    stage: int
    check: bool = False  # the copy may reach the receiver by another way too: mark it CHECK
    served: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()  # shared subscriptions that the peer must serve
    shares_done: tuple[str, ...] = ()
    durable_only: bool = False  # not at QoS 0, whose copies carry no number by which a second one is recognised
    limit: int = HOP_LIMIT  # how many more links it may cross from there
    passed: bool = False  # mark it PASSED
    targets: tuple[str, ...] = ()  # of a relay: the brokers that it brings the message to; none: whoever wants it

    @property
    def stage_name(self) -> str:
        return NAMES[self.stage]
