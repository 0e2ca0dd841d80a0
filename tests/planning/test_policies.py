"""Which topics LP, NS and EP want, and which come first when the budget is short."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import UsageError
from metromq.planning.arrays import compile_arrays
from metromq.planning.model import Problem, TopicStatistics
from metromq.planning.policies import (
    POLICIES,
    choose,
    delegating,
    saved_share,
    service_workload,
    statistics_of,
    topic_workloads,
    wants,
)
from metromq.planning.problem_files import read_problem
from tests.planning.problems import document, problems

COUNTS = st.integers(0, 3)
SEEN = st.builds(TopicStatistics, COUNTS, COUNTS, COUNTS, COUNTS)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (TopicStatistics(publishers_inside=1, subscribers_inside=1), "LP NS EP"),
        (TopicStatistics(publishers_inside=1), "NS EP"),
        (TopicStatistics(publishers_inside=1, subscribers_outside=1), ""),
        (TopicStatistics(publishers_outside=1, subscribers_inside=2), "EP"),
        (TopicStatistics(publishers_outside=1, subscribers_inside=1), ""),
        (TopicStatistics(subscribers_inside=5), ""),
    ],
)
def test_what_each_policy_wants(seen: TopicStatistics, wanted: str) -> None:
    assert " ".join(policy for policy in POLICIES if wants(policy, seen)) == wanted


@given(SEEN)
def test_each_policy_contains_the_one_before(seen: TopicStatistics) -> None:
    assert wants("LP", seen) <= wants("NS", seen) <= wants("EP", seen)


@settings(max_examples=50, deadline=None)
@given(problems(), st.data(), st.sampled_from(POLICIES), st.floats(0, 400))
def test_a_budget_is_kept_and_nothing_is_lost(
    problem: Problem, data: st.DataObject, policy: str, budget: float
) -> None:
    seen = {topic.name: data.draw(SEEN) for topic in problem.topics}
    choice = choose(problem, policy, budget, seen)  # type: ignore[arg-type]
    assert choice.workload <= budget * (1 + 1e-6) + 1e-6
    everyone = choice.delegated + choice.no_room + choice.not_wanted
    assert sorted(everyone) == sorted(topic.name for topic in problem.topics)
    smaller = delegating(problem, choice)
    assert tuple(sorted(topic.name for topic in smaller.topics)) == tuple(sorted(choice.delegated))
    loads = compile_arrays(smaller).load
    assert loads[len(smaller.topics) :].sum() == pytest.approx(service_workload(problem))
    assert loads[: len(smaller.topics)].sum() == pytest.approx(choice.workload)


def test_the_topic_that_saves_more_goes_first() -> None:
    problem = read_problem(document())
    few = TopicStatistics(publishers_inside=1, subscribers_inside=1, subscribers_outside=1)
    many = TopicStatistics(publishers_inside=1, subscribers_inside=9)
    need = topic_workloads(problem)
    assert need == {"air": 120.0, "noise": 50.0}
    assert choose(problem, "LP", 130, {"air": few, "noise": many}).delegated == ("noise",)
    assert choose(problem, "LP", 130, {"air": many, "noise": few}).delegated == ("air",)
    assert choose(problem, "LP", 130, {"air": many, "noise": few}).no_room == ("noise",)


@settings(max_examples=50, deadline=None)
@given(problems(), st.data(), st.floats(0, 400), st.sampled_from([0.5, 3.0]))
def test_worth_is_a_share_and_not_the_workload(
    problem: Problem, data: st.DataObject, budget: float, factor: float
) -> None:
    """Brokers that work harder per Mbps change what fits, but not what comes first."""
    seen = {topic.name: data.draw(SEEN) for topic in problem.topics}
    harder = replace(problem, broker_workload_per_mbps=problem.broker_workload_per_mbps * factor)
    one, other = choose(problem, "EP", budget, seen), choose(harder, "EP", budget * factor, seen)
    assert one.delegated == other.delegated
    shares = [saved_share(seen[name]) for name in one.delegated]
    assert shares == sorted(shares, reverse=True)


def test_without_statistics_traffic_speaks() -> None:
    problem = read_problem(document())
    seen = statistics_of(problem)
    assert seen["air"] == TopicStatistics(publishers_inside=2, subscribers_inside=1)
    given = TopicStatistics(publishers_outside=1, subscribers_inside=3)
    problem = replace(problem, topics=(replace(problem.topics[0], statistics=given), problem.topics[1]))
    assert statistics_of(problem)["air"] == given


def test_wrong_words_are_refused() -> None:
    problem = read_problem(document())
    with pytest.raises(UsageError, match="unknown policy 'XX'"):
        choose(problem, "XX", 1, statistics_of(problem))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="budget"):
        choose(problem, "LP", float("nan"), statistics_of(problem))
