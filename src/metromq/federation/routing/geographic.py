"""Geographic: each area has a responsible broker, at which all others publish and subscribe by proxy.

Topics without an area are routed by interest, as flood-subscriptions does. While a stand-in is responsible for an
area, it also hands every message to the broker that is at home there, and subscriptions stay announced at both. So one
sentence holds through takeover, split and return: every message of an area reaches its home broker, who knows everybody
that wants it, and serves whoever was not served yet.
"""

from metromq.federation.interest import plain_filter
from metromq.federation.routing.router import STAY, Audience, Decision, Router, stays_here
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, OWNER
from metromq.protocol.topics.areas import area_of, areas_touched, reaches_beyond_areas


class GeographicRouter(Router):
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        topic_filter = plain_filter(topic_filter)
        if reaches_beyond_areas(topic_filter):
            return self.others
        brokers: set[str] = set()
        for area in areas_touched(topic_filter, self.city.areas.l_b):
            brokers.add(self.table.owner(area))
            brokers.add(self.table.home(area))
        return frozenset(brokers) - {self.name}

    def decide(self, topic: str, stage: int) -> Decision:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        area = area_of(topic, self.city.areas.l_b)
        if area is None:
            return Decision(Audience.INTERESTED) if stage == CLIENT else STAY
        owner, home = self.table.owner(area), self.table.home(area)
        if stage == HANDOVER:
            return Decision(Audience.INTERESTED)
        if owner == self.name:
            return Decision(Audience.INTERESTED, () if home == self.name else ((home, HANDOVER),))
        if stage == CLIENT:
            return Decision(Audience.NOBODY, ((owner, OWNER),))
        # The sender's table is older or newer than ours. Whoever is responsible or at home serves it.
        if home == self.name:
            return Decision(Audience.INTERESTED)
        return Decision(Audience.NOBODY, tuple((name, HANDOVER) for name in dict.fromkeys((owner, home))))

    def explain(self, topic_or_filter: str) -> tuple[str, ...]:
        if "+" in topic_or_filter or "#" in topic_or_filter:
            return self._explain_filter(topic_or_filter)
        area = area_of(topic_or_filter, self.city.areas.l_b)
        if area is None:
            return (
                f"{topic_or_filter} does not start with a digit, so it has no area and is routed by interest:",
                "its subscriptions are announced to every broker, and it goes straight to the brokers that want it.",
            )
        owner, home = self.table.owner(area), self.table.home(area)
        lines = [f"{topic_or_filter} belongs to area {area}; {owner} is responsible (epoch {self.table.epoch(area)})."]
        if owner != home:
            lines.append(f"{owner} has taken over from {home}, the home broker, and hands every message over to it.")
        if owner == self.name:
            lines.append(f"{owner} sends the message on to the brokers that subscribed at {owner} for their clients.")
        else:
            lines.append(f"{self.name} publishes and subscribes at {owner} for its clients.")
        return tuple(lines)

    def _explain_filter(self, topic_filter: str) -> tuple[str, ...]:
        areas = areas_touched(plain_filter(topic_filter), self.city.areas.l_b)
        lines = [f"{topic_filter} covers topics in {len(areas)} of {len(self.table.homes)} areas."]
        lines += [f"area {area}: subscribed at {self.table.owner(area)}" for area in areas]
        if reaches_beyond_areas(plain_filter(topic_filter)):
            lines.append("It can also match topics without an area, so it is announced to every broker.")
        return tuple(lines)

    def serves(self, topic: str) -> bool:
        area = area_of(topic, self.city.areas.l_b)
        return area is not None and self.name in (self.table.owner(area), self.table.home(area))
