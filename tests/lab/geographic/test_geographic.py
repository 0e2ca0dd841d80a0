"""The paper's totals from its formulas, and the simulator and a live city beside them."""

import pytest

from metromq.lab.geographic import figure5_of, figure6_of
from metromq.lab.geographic.formulas import SCHEMES, Cost, Load, cost, mean
from metromq.lab.geographic.live import run_live
from metromq.lab.geographic.simulated import simulate
from metromq.lab.geographic.workload import build, scaled


def test_the_formulas_give_the_published_totals() -> None:
    totals = [round(cost(scheme, Load()).total, 1) for scheme in SCHEMES]
    assert totals == [7416.7, 10116.7, 1796.7]


PARTS = ("publish_in", "subscribe_in", "publish_out", "subscribe_out", "total")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_simulator_agrees_with_the_formulas(scheme: str) -> None:
    load = Load(level=2, subscribers=5000)
    simulated, computed = mean(simulate(scheme, load)), cost(scheme, load)
    for part in PARTS:
        assert getattr(simulated, part) == pytest.approx(getattr(computed, part), rel=0.02)


def test_a_simulated_city_of_the_paper_s_size_agrees_with_the_formulas() -> None:
    """64 brokers are more than a city has a full mesh for by default; few clients and one scheme make it cheap."""
    load = Load(subscribers=1000, subscribe_interval_s=10.0)
    simulated, computed = mean(simulate("geographic", load)), cost("geographic", load)
    for part in PARTS:
        assert getattr(simulated, part) == pytest.approx(getattr(computed, part), rel=0.02)


def test_simulated_clients_may_be_silent_for_long() -> None:
    """They send no PINGREQ, and it takes 80 s of virtual time until the 6,720 of the figures are connected."""
    load = Load(level=2, subscribers=1000, subscribe_interval_s=200.0)
    simulated, computed = mean(simulate("geographic", load, seconds=200.0)), cost("geographic", load)
    for part in PARTS:
        assert getattr(simulated, part) == pytest.approx(getattr(computed, part), rel=0.02)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_broker_of_a_live_city_agrees_with_the_formulas(scheme: str) -> None:
    """Sixteen processes with a hundredth of the clients."""
    load = Load(level=2, subscribers=4000, subscribe_interval_s=50.0)
    [live] = run_live(scheme, load, [50.0])
    computed = cost(scheme, load)
    assert len(live.costs()) == 16
    for found in live.costs():
        for part in PARTS:
            assert getattr(found, part) == pytest.approx(getattr(computed, part), rel=0.02)
    whole = Load(subscribers=4000, subscribe_interval_s=50.0)
    assert mean(live.costs(whole.level)).total == pytest.approx(cost(scheme, whole).total, rel=0.02)


def test_no_two_subscribers_of_a_broker_share_a_filter() -> None:
    workload = build("geographic", scaled(Load(), 100))
    wanted = [(sub.broker, text) for sub in workload.subscribers for text in (sub.topic_filter, sub.next_filter)]
    assert len(wanted) == len(set(wanted)) == 2 * 64 * 100


def brokers(total: float) -> list[Cost]:
    """Three that differ by a twentieth."""
    return [Cost(total * part, 0.0, 0.0, 0.0) for part in (0.95, 1.0, 1.05)]


def test_the_figures_carry_published_points_and_an_interval_over_brokers() -> None:
    six = figure6_of({f"{s}, {way}": {150.0: brokers(7416.7)} for s in SCHEMES for way in ("simulated", "live")})
    five = figure5_of(
        {f"{s}, {way}": brokers(7416.7) for s in SCHEMES for way in ("simulated", "live", "16 brokers, live")}
    )
    for report, place in ((six, 150.0), (five, 4.0)):
        sample = report.samples["geographic, live"][place]
        assert sample.instances == 3
        assert sample.value == pytest.approx(7416.7)
        assert sample.low < 7416.7 < sample.high
        assert "geographic, formula" not in report.samples
        assert report.published_points["geographic, formula"] == [(place, 1796.7)]
        verdicts = {row.name.partition(", every")[0]: row.verdict for row in report.published}
        assert verdicts["flood-publications, live"] == "matches"
        assert verdicts["geographic, live"] == "differs"
        assert verdicts["geographic, formula"] == "matches"
        assert any("Instances are brokers" in note for note in report.notes)
