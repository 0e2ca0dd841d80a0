"""A cap on links: nobody has more, everybody is reached once, nothing runs in a circle, and ways agree."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.city_file import validate_city
from metromq.errors import ConfigError
from metromq.federation.city import BrokerSpec, City, LinkSecurity, Membership, OverlaySettings
from metromq.federation.routing.few_links import LEAST_LINKS, MOST_HOPS, links_between, next_on_ways
from tests.federation.network import Network


def city_of(places: list[tuple[float, float]], max_links: int) -> City:
    brokers = tuple(BrokerSpec(f"b{number}", latitude=one, longitude=two) for number, (one, two) in enumerate(places))
    overlay = OverlaySettings(max_distance_km=1000.0, max_links=max_links)
    return City(
        brokers,
        routing="overlay",
        overlay=overlay,
        membership=Membership(mesh_up_to=1000),
        links=LinkSecurity(secret="a secret for tests"),
    )


SPOT = st.tuples(st.integers(0, 4), st.integers(0, 4))  # many at one place
PLACES = st.lists(SPOT, min_size=2, max_size=40)
FEW_PLACES = st.lists(SPOT, min_size=2, max_size=14)


@given(PLACES, st.integers(LEAST_LINKS, 8), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_nobody_has_more_links_and_everybody_reaches_everybody(
    places: list[tuple[float, float]], most: int, random: Random
) -> None:
    city = city_of(places, most)
    spots = tuple((name, *city.place_of(name)) for name in city.names)
    links = links_between(spots, most, city.distance_km)
    assert max(map(len, links.values())) <= most
    assert all(one in links[other] for one, others in links.items() for other in others)
    everybody = frozenset(city.names)
    ways = {name: next_on_ways(name, links, everybody, city.distance_km) for name in city.names}
    for start in city.names:
        assert ways[start].keys() == everybody - {start}
        target = random.choice([name for name in city.names if name != start])
        at, hops = start, 0
        while at != target:
            at, hops = ways[at][target], hops + 1
            assert hops <= MOST_HOPS


@given(FEW_PLACES, st.integers(LEAST_LINKS, 6), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=15)
def test_messages_reach_everybody_once_along_few_links(
    places: list[tuple[float, float]], most: int, random: Random
) -> None:
    network = Network(city_of(places, most))
    names = list(network.nodes)
    wanting = random.sample(names, random.randint(1, len(names)))
    for name in wanting:
        network.subscribe(name, "bus/7")
    for origin in random.sample(names, min(3, len(names))):
        network.publish(origin, "bus/7", origin.encode())
        network.step(0.3)
        network.publish(origin, "bus/7", b"again " + origin.encode())
    counts = Counter(network.delivered)
    assert set(counts.values()) <= {1}, "once"
    for payload in {text for _, text in network.delivered}:
        assert {name for name, text in network.delivered if text == payload} == set(wanting)
    peers = {name: {other for one, other in network.copies if one == name} for name in names}
    both = {name: peers[name] | {one for one, other in network.copies if other == name} for name in names}
    assert max(map(len, both.values())) <= most


def test_a_relay_that_is_gone_is_passed_by() -> None:
    network = Network(city_of([(0, number) for number in range(12)], 4))
    city = network.nodes["b0"].city
    spots = tuple((name, *city.place_of(name)) for name in city.names)
    linked = links_between(spots, 4, city.distance_km)["b0"]
    target = next(name for name in city.names if name not in ("b0", *linked))
    network.subscribe(target, "bus/7")
    network.publish("b0", "bus/7", b"first")
    relays = {to for _, to in network.copies} - {target}
    assert relays, "it goes through others"
    lost = min(relays)
    network.step(3)
    network.lose(lost)
    network.step(10)
    network.copies.clear()
    network.publish("b0", "bus/7", b"second")
    assert network.delivered[-1] == (target, b"second")
    assert lost not in {to for _, to in network.copies}


def test_large_cities_have_short_ways() -> None:
    random = Random(1)
    city = city_of([(random.uniform(25, 48), random.uniform(-120, -70)) for _ in range(600)], 4)
    spots = tuple((name, *city.place_of(name)) for name in city.names)
    links = links_between(spots, 4, city.distance_km)
    found = next_on_ways("b0", links, frozenset(city.names), city.distance_km)
    assert len(found) == 599


def test_too_few_links_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 4"):
        validate_city(city_of([(0, 0), (1, 1)], 3))
