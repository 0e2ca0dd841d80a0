"""Flood publications: every message goes to every broker, so plain subscriptions stay where they are made."""

from metromq.federation.interest import SHARE_PREFIX
from metromq.federation.routing.router import STAY, Audience, Router, Suggestion, stays_here
from metromq.federation.stages import CLIENT


class FloodPublicationsRouter(Router):
    sends_unasked = True

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        # The publisher's broker chooses the one member of a shared subscription, so it must know them all.
        return self.others if topic_filter.startswith(SHARE_PREFIX) else frozenset()

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage > CLIENT:
            return STAY
        return Suggestion(Audience.EVERYONE)

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        if peer:
            return ("must know every subscription",)
        return (
            "Every message goes from the publisher's broker to every other broker, wanted or not.",
            "A subscription is known only to the subscriber's broker; a shared one is announced to every broker.",
        )
