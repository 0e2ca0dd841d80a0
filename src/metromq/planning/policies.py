"""Which topics to delegate: the paper's policies LP, NS and EP as functions of the statistics, within a budget.

Each policy contains the one before it. When capacity is short, topics that keep the largest share of their traffic
inside go first. Every broker does the same work per Mbps, so that share is also what a unit of workload saves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from metromq.errors import UsageError
from metromq.planning.model import Problem, Topic, TopicStatistics

Policy = Literal["LP", "NS", "EP"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True, slots=True)
class Choice:
    """The topics that a policy hands to distributed brokers, in the order of their worth, and those it leaves."""

    delegated: tuple[str, ...]
    no_room: tuple[str, ...]  # the policy would, the budget would not
    not_wanted: tuple[str, ...]
    workload: float


def wants(policy: Policy, seen: TopicStatistics) -> bool:
    """Whether the policy delegates a topic with these publishers and subscribers."""
    if seen.publishers_inside and seen.subscribers_inside:
        return True  # LP: a pair inside the network
    if policy == "LP":
        return False
    if seen.publishers_inside and not seen.subscribers_inside and not seen.subscribers_outside:
        return True  # NS: nobody listens, so the cloud need not hear it
    if policy == "NS":
        return False
    return seen.publishers_outside > 0 and seen.subscribers_inside >= 2  # EP: one copy comes in instead of several


def saved_share(seen: TopicStatistics) -> float:
    """The share of a topic's central traffic that stays inside: copies over the boundary, before and after.

    Before: one per publisher inside, one per delivery inside. After: one up if anybody outside listens, one down per
    publisher outside if anybody inside listens. Publishers are taken to be equally busy.
    """
    publishers = seen.publishers_inside + seen.publishers_outside
    if not publishers:
        return 0.0
    before = seen.publishers_inside + publishers * seen.subscribers_inside
    up = seen.publishers_inside if seen.subscribers_outside else 0
    down = seen.publishers_outside if seen.subscribers_inside else 0
    return (before - up - down) / before if before else 0.0


def topic_workloads(problem: Problem) -> dict[str, float]:
    """The workload of each topic's broker, equation (5)."""
    used = dict.fromkeys((topic.name for topic in problem.topics), 0.0)
    for service in problem.services:
        for name, mbps in service.topic_mbps.items():
            used[name] += mbps
    return {
        t.name: problem.broker_workload_per_mbps * (sum(t.client_mbps.values()) + used[t.name]) for t in problem.topics
    }


def service_workload(problem: Problem) -> float:
    """The workload of all services, equation (6); it does not depend on which topics are delegated."""
    return sum(
        s.mqtt_workload_per_mbps * (sum(s.topic_mbps.values()) + s.cloud_mbps)
        + s.user_workload_per_mbps * sum(s.user_mbps.values())
        for s in problem.services
    )


def statistics_of(problem: Problem) -> dict[str, TopicStatistics]:
    """What the file says, or else what traffic shows: devices with clients publish and listen, services listen."""
    services: dict[str, int] = {}
    for service in problem.services:
        for name, mbps in service.topic_mbps.items():
            services[name] = services.get(name, 0) + (mbps > 0)
    return {topic.name: topic.statistics or _guess(topic, services.get(topic.name, 0)) for topic in problem.topics}


def _guess(topic: Topic, services: int) -> TopicStatistics:
    active = sum(1 for mbps in topic.client_mbps.values() if mbps > 0)
    return TopicStatistics(publishers_inside=active, subscribers_inside=services)


def choose(problem: Problem, policy: Policy, budget_workload: float, seen: Mapping[str, TopicStatistics]) -> Choice:
    """Takes the wanted topics by the share they save while the budget lasts; of equals the largest, then by name.

    The largest first, because small ones fill what they leave.
    """
    if policy not in POLICIES:
        raise UsageError(f"unknown policy {policy!r}; the policies are {', '.join(POLICIES)}")
    if not budget_workload >= 0:
        raise UsageError(f"the budget must be a workload of 0 or more, not {budget_workload}")
    need = topic_workloads(problem)
    wanted = [topic.name for topic in problem.topics if wants(policy, seen[topic.name])]
    delegated: list[str] = []
    no_room: list[str] = []
    left = budget_workload
    for name in sorted(wanted, key=lambda name: (-saved_share(seen[name]), -need[name], name)):
        fits = need[name] <= left * (1 + 1e-9)
        (delegated if fits else no_room).append(name)
        left -= need[name] if fits else 0.0
    chosen = set(wanted)
    rest = tuple(topic.name for topic in problem.topics if topic.name not in chosen)
    return Choice(tuple(delegated), tuple(no_room), rest, sum(need[name] for name in delegated))


def delegating(problem: Problem, choice: Choice) -> Problem:
    """The problem with the chosen topics only; what services use of the others stays with the central broker."""
    kept = set(choice.delegated)
    services = tuple(
        replace(
            service,
            topic_mbps={name: mbps for name, mbps in service.topic_mbps.items() if name in kept},
            cloud_mbps=service.cloud_mbps + sum(m for name, m in service.topic_mbps.items() if name not in kept),
        )
        for service in problem.services
    )
    return replace(problem, topics=tuple(t for t in problem.topics if t.name in kept), services=services)
