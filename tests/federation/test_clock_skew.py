"""How far clocks are apart: measured from round trips, and told."""

import pytest

from metromq.federation.city import grid_city
from metromq.federation.clock_skew import ClockSkews, Skew
from metromq.lab.sim.sim_city import SimCity

SECOND_US = 1_000_000


def test_the_middle_of_the_round_trip_is_the_same_moment() -> None:
    skews = ClockSkews()
    # Ours said 100; 30 later it came to a clock that is 1000 ahead, which answered 500 later; 10 on the way back.
    skews.heard("b", 1630, 100, 500, 640, 0)
    assert skews.of("b") == Skew(1010, 40), "wrong by half of how much the ways differ"


def test_the_shortest_round_trip_counts() -> None:
    skews = ClockSkews()
    for delay_us in (900, 10, 700):
        skews.heard("b", 1000 + delay_us, 1, 0, 1 + delay_us, 0)
    assert skews.of("b") == Skew(1004, 10)


def answered(skews: ClockSkews, round_trip_us: int, now_us: int) -> None:
    """A hello of a clock that is as ours, and only the way back took its time."""
    skews.heard("b", now_us + 1000, now_us + 1000, 0, now_us + 1000 + round_trip_us, now_us)


def test_who_stood_still_and_reads_many_hellos_late_goes_on_with_what_it_knew() -> None:
    skews = ClockSkews()
    answered(skews, 4_000, 0)
    for late in range(50):
        answered(skews, 49_000 + late, 20 * SECOND_US)
    assert skews.of("b") == Skew(-2_000, 4_000)
    answered(skews, 3_000, 21 * SECOND_US)
    assert skews.of("b") == Skew(-1_500, 3_000)


def test_a_way_that_has_become_longer_counts_after_a_while() -> None:
    skews = ClockSkews()
    answered(skews, 4_000, 0)
    for second in range(1, 8):
        assert skews.of("b") == Skew(-2_000 if second <= 6 else -15_000, 4_000 if second <= 6 else 30_000), second
        answered(skews, 30_000, second * SECOND_US)


def test_a_clock_that_was_set_is_noticed_at_once() -> None:
    skews = ClockSkews()
    skews.heard("b", 1005, 1, 0, 11, 0)
    skews.heard("b", 9 * SECOND_US, SECOND_US, 0, SECOND_US + 500, 0)
    assert skews.of("b") == Skew(8 * SECOND_US - 250, 500)


@pytest.mark.parametrize("hello", [(0, 5, 0, 10), (10, 0, 0, 10), (10, 50, 0, 10)])
def test_nothing_is_measured_without_clocks_an_echo_or_a_round_trip(hello: tuple[int, int, int, int]) -> None:
    skews = ClockSkews()
    skews.heard("b", *hello, 0)
    assert skews.of("b") is None


def test_the_last_clock_of_a_peer_is_returned_with_its_age() -> None:
    skews = ClockSkews()
    assert skews.echo("b", 7) == (0, 0)
    skews.heard("b", 1000, 0, 0, 10, 5)
    assert skews.echo("b", 7) == (1000, 2)


def test_a_city_knows_its_wrong_clock_and_warns_once() -> None:
    city = SimCity(grid_city("geographic", count=3, hello_interval_ms=200))
    names = city.city.names
    city.brokers[names[1]].skew_us = 600 * SECOND_US
    city.start()
    city.run(10.0)
    for name, broker in city.brokers.items():
        assert broker.host is not None
        for peer in names:
            skew = broker.host.node.greetings.skews.of(peer)
            if peer != name:
                assert skew is not None
                expected_us = city.brokers[peer].skew_us - broker.skew_us
                assert abs(skew.ahead_us - expected_us) <= skew.round_trip_us // 2 + 1
    warned = sorted(broker for _, broker, event in city.events if event.startswith("clocks differ"))
    assert warned == sorted([names[0], names[1], names[1], names[2]])
    city.brokers[names[1]].skew_us = 0
    city.run(10.0)
    agreed = [event for _, _, event in city.events if event.startswith("clocks agree again")]
    assert len(agreed) == 4
