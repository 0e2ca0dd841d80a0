"""Central: every message visits the central broker, which serves all others."""

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
            f"{self.city.central} is the central broker: it gets every message and knows every subscription.",
            f"{self.city.central} sends the message on to the brokers that want it.",
        )

    def serves(self, topic: str) -> bool:
        return self.name == self.city.central and not stays_here(topic)
