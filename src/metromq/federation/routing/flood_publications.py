"""Flood publications: every message goes to every broker, so plain subscriptions stay where they are made."""

from metromq.federation.interest import SHARE_PREFIX
from metromq.federation.routing.router import STAY, Audience, Decision, Router, stays_here
from metromq.federation.stages import CLIENT


class FloodPublicationsRouter(Router):
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        # The publisher's broker chooses the one member of a shared subscription, so it must know them all.
        return self.others if topic_filter.startswith(SHARE_PREFIX) else frozenset()

    def decide(self, topic: str, stage: int) -> Decision:
        if stays_here(topic) or stage > CLIENT:
            return STAY
        return Decision(Audience.EVERYONE)

    def explain(self, topic_or_filter: str) -> tuple[str, ...]:
        return (
            "Every message goes from the publisher's broker to every other broker, wanted or not.",
            "A subscription is known only to the subscriber's broker; a shared one is announced to every broker.",
        )
