"""Geographic: each area has a responsible broker, at which all others publish and subscribe by proxy.

Topics without an area are routed by interest, as flood-subscriptions does. While a stand-in is responsible for an
area, it also hands every message to the broker that is at home there, and subscriptions stay announced at both. So one
sentence holds through takeover, split and return: every message of an area reaches its home broker, who knows everybody
that wants it, and serves whoever was not served yet.
"""

from typing import Final, final

from metromq.federation.city import City
from metromq.federation.coordination.facts import AREA, Fact
from metromq.federation.coordination.sharing import Shared
from metromq.federation.coordination.succession import Living, Succession
from metromq.federation.interest import plain_filter
from metromq.federation.routing.router import STAY, Audience, Onward, Router, Suggestion, stays_here
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, OWNER
from metromq.protocol.topics import area_of, areas_touched, reaches_beyond_areas

ORDERLY_UP_TO: Final = 100  # brokers: everybody has a part in every step by which an area changes hands


class GeographicRouter(Router):
    def key(self, topic: str) -> str | None:
        return area_of(topic, self.city.areas.l_b)

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        topic_filter = plain_filter(topic_filter)
        if reaches_beyond_areas(topic_filter):
            return self.others
        brokers: set[str] = set()
        for area in areas_touched(topic_filter, self.city.areas.l_b):
            brokers.add(self.table.owner(area))
            brokers.add(self.table.home(area))
            brokers.add(self.table.candidate(area))
            brokers |= self.city.former_homes.get(area, frozenset()) & self.others
        return frozenset(brokers) - {self.name, ""}

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        area = self.key(topic)
        if area is None:
            return Suggestion(Audience.INTERESTED) if stage == CLIENT else STAY
        owner, home = self.table.owner(area), self.table.home(area)
        if stage == HANDOVER:
            return Suggestion(Audience.INTERESTED)
        if owner == self.name:
            return Suggestion(Audience.INTERESTED, () if home == self.name else self._pass_on(area, HANDOVER, home))
        if stage == CLIENT:
            return Suggestion(Audience.NOBODY, self._pass_on(area, OWNER, owner))
        # The sender's table is older or newer than ours. Whoever is responsible or at home serves it.
        if home == self.name:
            return Suggestion(Audience.INTERESTED)
        return Suggestion(Audience.NOBODY, self._pass_on(area, HANDOVER, *dict.fromkeys((owner, home))))

    def _pass_on(self, area: str, stage: int, *peers: str) -> tuple[Onward, ...]:
        at_home = self.table.home(area) if stage == HANDOVER else ""
        roles = ((peer, "the home broker of" if peer == at_home else "responsible for") for peer in peers)
        return tuple(Onward(peer, stage, f"is {role} area {area}") for peer, role in roles)

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        if peer:
            return (self._why_told(topic_or_filter, peer),)
        if "+" in topic_or_filter or "#" in topic_or_filter:
            return self._explain_filter(topic_or_filter)
        area = self.key(topic_or_filter)
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
        lines = [f"{topic_filter} covers topics in {len(areas)} of {len(self.table.entries())} areas."]
        if reaches_beyond_areas(plain_filter(topic_filter)):
            lines.append("It can also match topics without an area, so it is announced to every broker.")
        return tuple(lines)

    def _why_told(self, topic_filter: str, peer: str) -> str:
        touched = areas_touched(plain_filter(topic_filter), self.city.areas.l_b)
        areas = [area for area in touched if peer in (self.table.owner(area), self.table.home(area))]
        if areas:
            return f"area {', '.join(areas)}"
        former = [area for area in touched if peer in self.city.former_homes.get(area, ())]
        return f"until lately area {', '.join(former)}" if former else "topics without an area may be published there"


@final
class AreaSuccession(Succession):
    """At the start everybody owns its home. The heir is the nearest (or least loaded) living member of the home's
    cluster, or, when the whole cluster is gone, of the city: a site that is cut off serves every area."""

    kind = AREA
    fixed = frozenset((AREA,))

    def __init__(self, city: City) -> None:
        self._city = city
        self.is_orderly = len(city.brokers) <= ORDERLY_UP_TO
        self.heir_varies = city.membership.takeover == "least-loaded"

    def first(self) -> tuple[Fact, ...]:
        return _FIRST.of(self._city)

    def astray(self) -> tuple[Fact, ...]:
        return _ASTRAY.of(self._city)

    def hands_over(self, fact: Fact) -> bool:
        return self.is_orderly and fact.owner in self._city.former_homes.get(fact.key, ())

    def inherited(self, fact: Fact) -> str:
        return "" if fact.kind == AREA else fact.value  # who claims an area is in no change

    def home(self, fact: Fact) -> str:
        return self._city.homes.get(fact.key, "") if fact.kind == AREA else ""

    def heir(self, fact: Fact, living: Living) -> str:
        home = self.home(fact)
        if not home or home in living:
            return home
        city = self._city
        heirs = [name for name in city.cluster_members[city.cluster_of(home)] if name in living]
        if not heirs and not self.heir_varies:  # to compare all members of a large city for each area would take long
            near = next((name for name in city.nearest_to(home) if name in living), "")
            if near:
                return near
        # A broker that joined later has no place on the map, and inherits only where nobody else is.
        heirs = heirs or sorted(name for name in living if name in city.by_name) or sorted(living)
        if self.heir_varies and all(living[name] >= 0 for name in heirs):
            return min(heirs, key=lambda name: (living[name], name))
        if heirs[0] not in city.by_name:
            return heirs[0]
        return min(heirs, key=lambda name: (city.distance_km(home, name), name))

    def filters(self, key: str) -> tuple[str, ...]:
        return (f"{key}/#",)


def _first(city: City) -> tuple[Fact, ...]:
    """Where the home has changed lately, a newcomer takes the broker for responsible that was at home before."""
    owners = {**city.homes, **city.last_homes}
    return tuple(Fact(AREA, area, owners[area], 0) for area in sorted(city.homes))


def _astray(city: City) -> tuple[Fact, ...]:
    return tuple(fact for fact in _FIRST.of(city) if fact.owner != city.homes[fact.key])


_FIRST: Final = Shared(_first)
_ASTRAY: Final = Shared(_astray)
