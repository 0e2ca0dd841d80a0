"""The pages /status, /explain and /delegations: what a broker tells of itself."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping

from metromq import __version__
from metromq.broker.http_listener import TEXT, HttpAnswer, Page
from metromq.broker.hub_storage import HubStorage
from metromq.broker.meter import Meter
from metromq.broker.write_cycle import WriteCycle
from metromq.config import Config
from metromq.errors import PeerViolation
from metromq.federation import (
    DOWN,
    RESTING,
    UP,
    AreaStatus,
    BrokerStatus,
    LinkStatus,
    Traffic,
    clusters_led,
    delegations_of,
    explain_step,
    stages,
    step_to_json,
    to_json,
    with_ways,
)
from metromq.federation.coordination import Coordinator, ZooKeeperCoordinator
from metromq.federation.host import Host
from metromq.federation.links import Link
from metromq.protocol.session import Backlog, decode_message
from metromq.protocol.topics import split_shared

JSON = "application/json"
TRAFFIC = ("messages_received", "messages_sent", "publish_bytes_received", "publish_bytes_sent")


class Reporter:
    """Keeps the samples for rates; everything else is read when someone asks."""

    def __init__(
        self,
        config: Config,
        cycle: WriteCycle,
        host: Host | None,
        listen: str,
        gauges: Callable[[], dict[str, float]],
        keeper: HubStorage | None,
    ) -> None:
        self._config = config
        self._cycle = cycle
        self._hub = cycle.hub
        self._host = host
        self._listen = listen
        self._gauges = gauges
        self._keeper = keeper
        self._started = cycle.hub.clock.now
        self._meter = Meter()
        self.http = ""

    def sample(self) -> None:
        """Call once a second."""
        self._meter.sample(self._hub.clock.now, self._numbers())

    def pages(self) -> dict[str, Page]:
        return {
            "/healthz": self._health_page,
            "/metrics": self._metrics_page,
            "/status": self._status_page,
            "/explain": self._explain_page,
            "/delegations": self._delegations_page,
        }

    def _health_page(self, query: Mapping[str, str]) -> HttpAnswer:
        problem = self._keeper.failure if self._keeper is not None else ""  # a full disk is not mended by a restart
        return HttpAnswer((problem or "ok").encode() + b"\n", TEXT, 503 if problem else 200)

    def _metrics_page(self, query: Mapping[str, str]) -> HttpAnswer:
        from metromq.broker.metrics import metrics_page  # a slow import that few brokers need

        self._cycle.now()
        return metrics_page(self.status(), self._hub.counters, self._gauges())

    def _numbers(self) -> dict[str, int]:
        counters = self._hub.counters
        numbers: dict[str, int] = {name: getattr(counters, name) for name in TRAFFIC}
        if self._host is not None:
            for peer, link in self._host.links.items():
                numbers[f"{peer} messages_sent"] = link.sent_messages
                numbers[f"{peer} bytes_sent"] = link.sent_bytes
                numbers[f"{peer} messages_received"] = self._host.receiving.messages.get(peer, 0)
                numbers[f"{peer} bytes_received"] = self._host.receiving.bytes.get(peer, 0)
        return numbers

    # --- /status --------------------------------------------------------------------------------------------------

    def _status_page(self, query: Mapping[str, str]) -> HttpAnswer:
        self._cycle.now()
        return HttpAnswer(json.dumps(to_json(self.status())).encode() + b"\n", JSON)

    def status(self) -> BrokerStatus:
        hub, host, config = self._hub, self._host, self._config
        sessions = hub.sessions.by_client_id.values()
        spec = host.city.by_name.get(host.name) if host is not None else None
        node = host.node if host is not None else None
        return BrokerStatus(
            name=config.name,
            state=UP,
            listen=self._listen,
            area=spec.area if spec is not None else "",
            site=spec.site if spec is not None else "",
            pid=os.getpid(),
            http=self.http,
            problem=self._problem(),
            version=__version__,
            uptime_s=round(hub.clock.now - self._started, 3),
            durability=config.durability,
            clients=hub.sessions.connected(),
            sessions=len(sessions),
            subscriptions=hub.routes.count,
            subscribes=hub.counters.subscribes,
            interest_received=node.counters.interest_in if node is not None else 0,
            interest_sent=node.counters.interest_out if node is not None else 0,
            retained_messages=len(hub.retained.messages),
            retained_bytes=hub.retained.bytes,
            queued_messages=sum(session.backlog.waiting() for session in sessions),
            traffic=self._traffic(),
            areas=self._areas(),
            clusters=clusters_led(node.table.book, node.name) if node is not None else (),
            worker=node.coordinator.worker if node is not None else "",
            workers=node.coordinator.workers if node is not None else (),
            alive=node.coordinator.alive(int(hub.clock.now * 1_000_000)) if node is not None else (),
            table=f"{node.table.digest():014x}" if node is not None else "",
            links=tuple(self._link(link) for link in host.links.values()) if host is not None else (),
        )

    def _problem(self) -> str:
        problem = self._keeper.problem if self._keeper is not None else ""
        return problem or ("" if self._host is None else _without_ensemble(self._host.node.coordinator))

    def _traffic(self) -> Traffic:
        counters, rate = self._hub.counters, self._meter.rate
        return Traffic(
            counters.messages_received,
            counters.messages_sent,
            counters.dropped,
            counters.publish_bytes_received,
            counters.publish_bytes_sent,
            *(round(rate(name), 1) for name in TRAFFIC),
        )

    def _areas(self) -> tuple[AreaStatus, ...]:
        if self._host is None:
            return ()
        table, name = self._host.node.table, self._host.name
        return tuple(AreaStatus(area, table.epoch(area), table.home(area) == name) for area in table.owned_by(name))

    def _link(self, link: Link) -> LinkStatus:
        assert self._host is not None
        peer, backlog = link.peer, link.backlog
        waiting, in_flight = backlog.waiting(), backlog.under_way()
        skew = self._host.node.greetings.skews.of(peer)
        return LinkStatus(
            peer,
            UP if link.up else RESTING if link.resting else DOWN,
            link.problem or self._host.problem(peer),
            waiting,
            in_flight,
            backlog.unsettled(),
            round(self._lag_s(backlog), 3),
            link.sent_messages,
            link.sent_bytes,
            self._host.receiving.messages.get(peer, 0),
            self._host.receiving.bytes.get(peer, 0),
            *self._rates(peer),
            self._host.via(peer),
            skew.ahead_us / 1e6 if skew is not None else None,
            skew.round_trip_us / 2e6 if skew is not None else None,
        )

    def _rates(self, peer: str) -> tuple[float, float, float, float]:
        sent, sent_bytes, received, received_bytes = (
            round(self._meter.rate(f"{peer} {name}"), 1)
            for name in ("messages_sent", "bytes_sent", "messages_received", "bytes_received")
        )
        return sent, sent_bytes, received, received_bytes

    def _lag_s(self, backlog: Backlog) -> float:
        """The age of the oldest message that waits for an acknowledgement or for its turn."""
        hub = self._hub
        first = next(iter(backlog.inflight.values()), None)
        if first is None and len(backlog.queue):
            first = backlog.queue.first()
        if first is not None:
            time_us = hub.backlogs.load(first).time_us
        elif backlog.spilled and hub.commits.log is not None:
            time_us = decode_message(hub.commits.log.read(backlog.spill_offset), backlog.spill_offset).message.time_us
        else:
            return 0.0
        return max(0.0, (hub.clock.wall_us - time_us) / 1e6)

    # --- /explain -------------------------------------------------------------------------------------------------

    def _explain_page(self, query: Mapping[str, str]) -> HttpAnswer:
        if self._host is None:
            return HttpAnswer(b"this broker is alone: what is published here stays here\n", status=404)
        topic = query.get("topic", "")
        stage = query.get("stage", stages.NAMES[0])
        if not topic or stage not in stages.NAMES:
            return HttpAnswer(b"ask as /explain?topic=1/0/2/1/temperature\n", status=400)
        served, targets = (
            tuple(name for name in query.get(field, "").split(",") if name) for field in ("served", "targets")
        )
        try:
            step = explain_step(
                self._host.node,
                topic,
                stages.NAMES.index(stage),
                query.get("origin", ""),
                served,
                self._subscribers(topic),
                targets=targets,
            )
        except PeerViolation as error:
            return HttpAnswer(f"{error}\n".encode(), status=400)
        return HttpAnswer(json.dumps(step_to_json(with_ways(step, self._host))).encode() + b"\n", JSON)

    # --- /delegations ---------------------------------------------------------------------------------------------

    def _delegations_page(self, query: Mapping[str, str]) -> HttpAnswer:
        found = delegations_of(self._host.node.table.book) if self._host is not None else ()
        body = json.dumps({"delegations": [dataclasses.asdict(delegation) for delegation in found]})
        return HttpAnswer(body.encode() + b"\n", JSON)

    def _subscribers(self, topic: str) -> int:
        """Sessions here that get a message of the topic, or subscriptions to exactly this filter."""
        if "+" in topic or "#" in topic or topic.startswith("$share/"):
            share, filter = split_shared(topic)
            return self._hub.routes.subscriptions(filter, share)
        route = self._hub.routes.find(topic.encode())
        return len(route.targets) + len(route.groups)


def _without_ensemble(coordinator: Coordinator) -> str:
    """A broker without it is healthy: its clients are served."""
    is_away = isinstance(coordinator, ZooKeeperCoordinator) and not coordinator.is_connected
    return "the ZooKeeper ensemble is away; known routes are used, and what is new waits" if is_away else ""
