"""Flood subscriptions: every broker knows what the others want, and sends each message straight to those brokers."""

from metromq.federation.routing.router import STAY, Audience, Router, Suggestion, stays_here
from metromq.federation.stages import CLIENT


class FloodSubscriptionsRouter(Router):
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return self.others

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage > CLIENT:
            return STAY
        return Suggestion(Audience.INTERESTED)

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        if peer:
            return ("must know every subscription",)
        return (
            "Every subscription is announced to every other broker.",
            "A message goes from the publisher's broker straight to the brokers that want it.",
        )
