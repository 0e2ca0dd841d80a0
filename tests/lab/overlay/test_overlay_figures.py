"""The overlay's figures, small: what is counted by hand, and that the published numbers are near."""

from dataclasses import replace

import numpy as np
import pytest

from metromq.lab import RunOptions, run_experiment
from metromq.lab.overlay import FIGURES, outcomes
from metromq.lab.overlay.schemes import SCHEMES, Routing, Scheme, Way
from metromq.lab.overlay.simulated import Choices, simulate
from metromq.lab.overlay.workload import Load, Workload, draw, sites

SMALL = Load(brokers=40, topics=20, many=True)


def reached(way: Way) -> dict[int, int]:
    found = {way.broker: way.clients} if way.clients else {}
    for onward in way.onward:
        assert not set(reached(onward)) & set(found), "one broker gets a message twice"
        found |= reached(onward)
    return found


def test_there_are_as_many_sites_as_in_the_paper() -> None:
    assert len(sites()) == 3300


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", ["uniform", "zipf"])
def test_every_message_reaches_exactly_those_that_want_it(scheme: Scheme, mode: str) -> None:
    work = draw(replace(SMALL, mode=mode), 3)  # type: ignore[arg-type]
    routing = Routing(scheme, work)
    routing.join(np.random.default_rng(1))
    for topic, publishers in work.publishers.items():
        for number in publishers:
            assert reached(routing.way(topic, number)) == dict(work.subscribers[topic])


def test_a_workload_has_what_the_paper_says() -> None:
    work = draw(Load(brokers=30, topics=100, local_rate=0.8), 1)
    assert len(work.publishers) == 30 * 80
    assert sum(len(brokers) for brokers in work.subscribers.values()) <= 30 * 100
    assert sum(sum(brokers.values()) for brokers in work.subscribers.values()) == 30 * 100 * 10
    assert all(list(brokers.values()) == [1] for brokers in work.publishers.values())
    many = draw(SMALL, 1)
    assert sum(sum(brokers.values()) for brokers in many.publishers.values()) == 40 * 20


def hand(places: tuple[tuple[float, float], ...], subscribers: dict[int, int]) -> Workload:
    return Workload(Load(len(places), 1), places, {"0/0": {0: 1}}, {"0/0": subscribers})


def test_latency_and_traffic_by_hand() -> None:
    """One publisher, ten subscribers here and ten a degree of latitude (111.19 km) away; clients at 1 ms one way."""
    work = hand(((0.0, 0.0), (1.0, 0.0)), {0: 10, 1: 10})
    exact = Choices(ms_per_km=0.01, jitter=0.0, client_rtt_ms=(2.0, 2.0))
    outcome = simulate("overlay", work, 1, exact, steps=2)
    port = 0.00512
    here = 1 + port + port * 5.5 + 1  # in, behind the copy for the other broker, in the middle of ten, out
    there = 1 + port + 1.1119 + port * 5.5 + 1
    assert outcome.latency_ms == pytest.approx((here + there) / 2, abs=1e-3)
    assert outcome.forwarded == pytest.approx(100 / 22)
    assert outcome.deliveries == 40


def test_ports_keep_packets_waiting() -> None:
    work = hand(((0.0, 0.0),), {0: 1000})
    still = Choices(client_rtt_ms=(2.0, 2.0))
    assert simulate("overlay", work, 1, still, steps=1).latency_ms == pytest.approx(2 + 0.00512 * 500.5, abs=1e-6)


def test_the_published_numbers_are_within_ten_percent() -> None:
    """Figs. 7 and 8 with the paper's numbers of brokers and topics, one step."""
    for figure, name, x, published in (
        ("overlay/fig7", "Zipf", 0.1, 3.94),
        ("overlay/fig7", "Zipf", 0.9, 0.74),
    ):
        curves = [curve for curve in FIGURES[figure].curves if curve.name == name]
        assert outcomes(curves, x, 1, Choices(), 1)[name].forwarded == pytest.approx(published, rel=0.1)
    found = outcomes(FIGURES["overlay/fig8"].curves, 300, 1, Choices(), 1)
    assert [one.latency_ms for one in found.values()] == pytest.approx([14.98, 26.36, 74.65], rel=0.1)


def test_a_figure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = FIGURES["overlay/fig11"]
    monkeypatch.setitem(FIGURES, "overlay/fig11", replace(shown, xs=(50.0, 100.0), printed=(("overlay", 50.0, 3.0),)))
    report = run_experiment("overlay/fig11", RunOptions(instances=2))
    assert set(report.series) == {"overlay", "PubSubCoord-alike", "PSCloud"}
    assert all(sample.instances == 2 for points in report.samples.values() for sample in points.values())
    assert report.trends[0].holds
    assert report.published_points == {"overlay": [(50.0, 3.0)]}
