"""Gives topics of a running city other clusters, through one of its brokers; the coordinator tells the others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from metromq.control.changing import city_now, give_order

AT_ONCE: Final = 200  # topics in an order


class ClusterChange(NamedTuple):
    kind: str
    broker: str
    topic: str
    owner: str
    value: str

    @property
    def sentence(self) -> str:
        if self.kind == "cluster":
            return f"{self.topic}: {self.owner} leads the cluster {self.broker}"
        if self.kind == "publisher":
            return f"{self.topic}: {self.broker} joins the cluster {self.value}"
        return f"{self.topic}: {self.broker} gets it from {self.value}"


async def recluster(data: Path, topics: Mapping[str, Mapping[str, Any]], apply: bool) -> list[ClusterChange]:
    """What has changed, or would."""
    place = (await city_now(data)).place
    found: list[ClusterChange] = []
    names = sorted(topics)
    for start in range(0, len(names), AT_ONCE):
        some = {name: topics[name] for name in names[start : start + AT_ONCE]}
        answer = await give_order(data, place, "/recluster", topics=some, apply=apply)
        for kind, key, owner, value in answer["changes"]:
            broker, _, topic = key.partition("/")
            found.append(ClusterChange(kind, broker, topic, owner, value))
    return found
