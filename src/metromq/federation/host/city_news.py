"""What the log of a broker says about its city: facts, clocks that differ, changes of the description."""

from typing import final

from metromq.federation.description import differences
from metromq.federation.effects import CityFollowed, ClockSkewed, FactsLearnt
from metromq.federation.host.roaming import Reporting


@final
class CityNews:
    def __init__(self, name: str, report: Reporting) -> None:
        self._name = name
        self._report = report

    def facts_learnt(self, effect: FactsLearnt) -> None:
        for fact in effect.facts:
            self._report("info", "fact", kind=fact.kind, key=fact.key, owner=fact.owner, epoch=fact.epoch)

    def clock_skewed(self, effect: ClockSkewed) -> None:
        seconds = round(effect.ahead_us / 1e6, 3)
        if effect.apart:
            self._report("warning", "clocks differ; set one of them right", peer=effect.peer, peer_is_ahead_s=seconds)
        else:
            self._report("info", "clocks agree again", peer=effect.peer, peer_is_ahead_s=seconds)

    def city_followed(self, effect: CityFollowed) -> None:
        before, after = effect.before, effect.after
        details = {"epoch": after.epoch, "author": after.author, "at": after.at}
        if effect.overruled:
            self._report(
                "error", "two changes of the city met; apply the lost one again", lost=before.author, **details
            )
        if self._name not in after.city.by_name:
            self._report("error", "this broker is no member of the city any more", **details)
        for line in differences(before.city, after.city):
            self._report("info", "the city changes", change=line, **details)
