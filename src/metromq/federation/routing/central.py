"""Central: every message visits the central broker, which serves all others."""

from metromq.federation.routing.router import STAY, Audience, Onward, Router, Suggestion, stays_here
from metromq.federation.stages import FINAL, OWNER


class CentralRouter(Router):
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return frozenset((self.city.central,)) - {self.name}

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        if self.name == self.city.central:
            return Suggestion(Audience.INTERESTED)
        if stage >= OWNER:
            return STAY
        return Suggestion(Audience.NOBODY, (Onward(self.city.central, OWNER, "distributes every message"),))

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        if peer:
            return ("is the broker in the middle",)
        return (
            f"{self.city.central} is the central broker: it gets every message and knows every subscription.",
            f"{self.city.central} sends the message on to the brokers that want it.",
        )
