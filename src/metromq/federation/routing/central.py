"""Central: every message visits one broker in the middle, which serves all others."""

from metromq.federation.routing.router import STAY, Audience, Decision, Router, stays_here
from metromq.federation.stages import FINAL, OWNER


class CentralRouter(Router):
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return frozenset((self.city.central,)) - {self.name}

    def decide(self, topic: str, stage: int) -> Decision:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        if self.name == self.city.central:
            return Decision(Audience.INTERESTED)
        return Decision(Audience.NOBODY, ((self.city.central, OWNER),) if stage < OWNER else ())

    def explain(self, topic_or_filter: str) -> tuple[str, ...]:
        return (
            f"{self.city.central} is the broker in the middle: every publication goes there,",
            f"every subscription is known there, and {self.city.central} serves the brokers that want the message.",
        )
