"""Flood subscriptions: every broker knows what the others want, and sends each message straight to those brokers."""

from metromq.federation.routing.router import STAY, Audience, Decision, Router, stays_here
from metromq.federation.stages import CLIENT


class FloodSubscriptionsRouter(Router):
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return self.others

    def decide(self, topic: str, stage: int) -> Decision:
        if stays_here(topic) or stage > CLIENT:
            return STAY
        return Decision(Audience.INTERESTED)

    def explain(self, topic_or_filter: str) -> tuple[str, ...]:
        return (
            "Every subscription is announced to every other broker.",
            "A message goes from the publisher's broker straight to the brokers that want it.",
        )
