"""The paper's totals from its formulas, and the simulator beside them."""

import pytest

from metromq.lab.geographic.formulas import SCHEMES, Load, cost
from metromq.lab.geographic.simulated import simulate
from metromq.lab.geographic.workload import build, scaled


def test_the_formulas_give_the_published_totals() -> None:
    totals = [round(cost(scheme, Load()).total, 1) for scheme in SCHEMES]
    assert totals == [7416.7, 10116.7, 1796.7]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_simulator_agrees_with_the_formulas(scheme: str) -> None:
    load = Load(level=2, subscribers=5000)
    simulated, computed = simulate(scheme, load), cost(scheme, load)
    for part in ("publish_in", "subscribe_in", "publish_out", "subscribe_out", "total"):
        assert getattr(simulated, part) == pytest.approx(getattr(computed, part), rel=0.02)


def test_no_two_subscribers_of_a_broker_share_a_filter() -> None:
    workload = build("geographic", scaled(Load(), 100))
    wanted = [(sub.broker, text) for sub in workload.subscribers for text in (sub.topic_filter, sub.next_filter)]
    assert len(wanted) == len(set(wanted)) == 2 * 64 * 100
