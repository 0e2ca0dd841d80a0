"""What operators ask and order of a running city at one of its brokers: the pages behind `metromq city`."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from metromq.broker.http_listener import TEXT, HttpAnswer, Order, Page
from metromq.broker.peers.newcomers import NewcomerDesk
from metromq.broker.write_cycle import WriteCycle
from metromq.errors import MetroError
from metromq.federation import Description, delegations_of, differences, plan_of, read_plan
from metromq.federation.host import Host
from metromq.federation.routing import ClusterWays, changes_to
from metromq.reading import read_data

JSON = "application/json"


class CityDesk:
    def __init__(self, host: Host, newcomers: NewcomerDesk, cycle: WriteCycle) -> None:
        self._host = host
        self._newcomers = newcomers
        self._cycle = cycle

    def pages(self) -> dict[str, Page]:
        return {"/city": self._city_page}

    def orders(self) -> dict[str, Order]:
        """Each gets a JSON object, and answers with one."""
        orders: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "/city": self._change,
            "/leave": self._leave,
            "/drain": self._drain,
            "/resume": self._resume,
            "/token": self._token,
            "/delegate": self._delegate,
            "/recluster": self._recluster,
        }
        return {path: self._obeying(act) for path, act in orders.items()}

    def _obeying(self, act: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Order:
        def order(body: bytes) -> HttpAnswer:
            self._cycle.now()
            try:
                asked = json.loads(body or b"{}")
                if not isinstance(asked, dict):
                    raise ValueError("a JSON object is needed")
                answer = act(asked)
            except (MetroError, ValueError, RecursionError) as error:
                return HttpAnswer(f"{error}\n".encode(), TEXT, 400)
            self._cycle.worked()
            return HttpAnswer(json.dumps(answer).encode() + b"\n", JSON)

        return order

    def _city_page(self, query: Mapping[str, str]) -> HttpAnswer:
        self._cycle.now()
        host = self._host
        node = host.node
        versions = [*node.descriptions.earlier, node.description]
        page = {
            **_version(node.description),
            "broker": host.name,
            "plan": plan_of(node.city),
            "following": node.descriptions.followed_by,
            "alive": node.coordinator.alive(int(host.hub.clock.now * 1_000_000)),
            "leaving": {"state": host.leaving.state, "waits_for": host.leaving.waits_for()},
            "history": [
                {**_version(after), "changes": differences(before.city, after.city), "plan": plan_of(after.city)}
                for before, after in zip([versions[0], *versions], versions, strict=False)
            ],
        }
        return HttpAnswer(json.dumps(page).encode() + b"\n", JSON)

    def _change(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        host = self._host
        if asked.get("epoch") != host.node.description.epoch:
            raise MetroError(f"the city has changed meanwhile: it is at epoch {host.node.description.epoch} now")
        city = read_plan(asked.get("plan"), host.city.links)
        host.change_city(city, str(asked.get("author", "")), str(asked.get("note", "")))
        return _version(host.node.description)

    def _leave(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self._host.leaving.leave(str(asked.get("author", "")), _rate(asked))
        return {"state": self._host.leaving.state}

    def _drain(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self._host.leaving.drain(_rate(asked))
        return {"state": self._host.leaving.state}

    def _resume(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self._host.leaving.resume()
        return {"state": self._host.leaving.state}

    def _delegate(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """At the central broker: `filter`, and the `broker` that gets it; without one it goes back."""
        self._host.delegate(str(asked.get("filter", "")), str(asked.get("broker", "")))
        found = delegations_of(self._host.node.table.book)
        return {"delegations": [dataclasses.asdict(delegation) for delegation in found]}

    def _recluster(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """`topics`: clusters, leaders and feeds of each; `apply`: whether it is to be done, or only told."""
        host = self._host
        if host.city.routing != "overlay":
            raise MetroError(f'routing = "{host.city.routing}" has no clusters of publishers; "overlay" has')
        book = host.node.coordinator.book
        facts = tuple(
            fact
            for topic, ways in dict(asked.get("topics", {})).items()
            for fact in changes_to(book, topic, read_data(ClusterWays, ways, "topics"))
        )
        if asked.get("apply") is True and facts:
            now_us = int(host.hub.clock.now * 1_000_000)
            events = host.node.coordinator.propose(facts, now_us)
            host.run(host.node.coordinated(events, now_us))
        return {"changes": [[fact.kind, fact.key, fact.owner, fact.value] for fact in facts]}

    def _token(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        valid_s = min(max(float(asked.get("valid_s", 3600.0)), 1.0), 7 * 86_400.0)
        listen = self._host.city.broker(self._host.name).listen
        return {"token": self._newcomers.token(valid_s), "at": listen, "until": time.time() + valid_s}


def _rate(asked: Mapping[str, Any]) -> float:
    return min(max(float(asked.get("clients_per_s", 50.0)), 0.1), 1e6)


def _version(description: Description) -> dict[str, Any]:
    return {name: getattr(description, name) for name in ("epoch", "author", "time", "note", "at")}
