"""Algorithms 1 and 2 against a plain reading of the paper, and by hand."""

import math
import random
from dataclasses import dataclass, field

import pytest

from metromq.federation.city import haversine_km
from metromq.federation.routing.clusters import (
    Choice,
    Cluster,
    average_distance_km,
    find_publish_broker,
    find_publish_cluster,
    publish_utility,
    subscribe_utility,
)


@dataclass
class Map:
    """Brokers on a plane, in kilometres."""

    places: dict[str, tuple[float, float]]
    wanted: dict[str, frozenset[str]] = field(default_factory=dict)

    def distance_km(self, one: str, other: str) -> float:
        return math.dist(self.places[one], self.places[other])

    def wanted_by(self, broker: str) -> frozenset[str]:
        return self.wanted.get(broker, frozenset())


LINE = Map({f"b{km}": (float(km), 0.0) for km in range(0, 41)})


def cluster(*members: str) -> Cluster:
    return Cluster(members[0], members[0], members)


def test_the_distance_is_the_papers_haversine() -> None:
    # Equation 1, spelled out: New York to Los Angeles.
    one, other = (40.7128, -74.0060), (34.0522, -118.2437)
    a = (
        math.sin(math.radians(other[0] - one[0]) / 2) ** 2
        + math.cos(math.radians(one[0]))
        * math.cos(math.radians(other[0]))
        * math.sin(math.radians(other[1] - one[1]) / 2) ** 2
    )
    assert haversine_km(*one, *other) == pytest.approx(2 * 6371 * math.atan2(math.sqrt(a), math.sqrt(1 - a)))
    assert haversine_km(*one, *other) == pytest.approx(3936, abs=1)


def test_average_distance_by_hand() -> None:
    assert average_distance_km("b0", cluster("b4", "b10"), LINE) == 7.0


def test_utilities_by_hand() -> None:
    # Four in common of six, five kilometres away; two of four in common, less half of the load of a half.
    assert publish_utility(5.0, frozenset("abcde"), frozenset("abcdf")) == pytest.approx(4 / 6 / 5)
    assert subscribe_utility(frozenset("abcd"), frozenset("abx"), frozenset("abxyzw"), 0.5) == pytest.approx(0.25)
    assert publish_utility(0.0, frozenset("a"), frozenset("a")) == pytest.approx(1000.0)  # at one place: the nearest
    assert publish_utility(5.0, frozenset(), frozenset()) == 0.0
    assert subscribe_utility(frozenset(), frozenset(), frozenset()) == 0.0


def test_a_first_publisher_founds_a_cluster_and_so_does_one_that_is_far() -> None:
    assert find_publish_cluster("b0", (), LINE) is None
    assert find_publish_cluster("b0", [cluster("b11")], LINE) is None
    at_ten = find_publish_cluster("b0", [cluster("b10")], LINE)
    assert at_ten is not None
    assert at_ten.cluster.founder == "b10"  # exactly MAX_DISTANCE is near enough


def test_interest_decides_among_clusters_within_reach() -> None:
    ground = Map(LINE.places, {"b0": frozenset("abc"), "b2": frozenset("xyz"), "b9": frozenset("abc")})
    found = find_publish_cluster("b0", [cluster("b2"), cluster("b9")], ground)
    assert found == Choice(cluster("b9"), "b9", 9.0, 1 / 9)


def test_without_anything_in_common_the_nearer_cluster_wins() -> None:
    found = find_publish_cluster("b0", [cluster("b9"), cluster("b2")], LINE)
    assert found is not None
    assert found.cluster.founder == "b2"


def test_figure_3_a_subscriber_outside_gets_the_topic_from_the_best_of_the_nearest_cluster() -> None:
    """EB5 gets topic A from EB2 of {EB1, EB2, EB3}, with which it has most in common; a far cluster is not asked."""
    ground = Map(
        {"EB1": (0, 0), "EB2": (3, 0), "EB3": (0, 3), "EB5": (8, 8), "far": (90, 90)},
        {"EB1": frozenset("A"), "EB2": frozenset("AB"), "EB5": frozenset("AB"), "far": frozenset("AB")},
    )
    found = find_publish_broker("EB5", [cluster("far"), cluster("EB1", "EB2", "EB3")], ground)
    assert found is not None
    assert found.broker == "EB2"
    assert found.utility == pytest.approx(1.0 - 0.5 * 2 / 2)


def test_load_decides_when_beta_is_great() -> None:
    ground = Map(LINE.places, {"b0": frozenset("ab"), "b1": frozenset("abcdefgh"), "b2": frozenset("a")})
    clusters = [cluster("b1", "b2")]
    light, heavy = (find_publish_broker("b0", clusters, ground, beta) for beta in (0.1, 2.0))
    assert light is not None
    assert light.broker == "b1"
    assert heavy is not None
    assert heavy.broker == "b2"


def test_a_subscriber_waits_while_nobody_publishes() -> None:
    assert find_publish_broker("b0", (), LINE) is None


def random_ground(dice: random.Random) -> tuple[Map, list[Cluster]]:
    names = [f"b{number}" for number in range(12)]
    places = {name: (dice.uniform(0, 20), dice.uniform(0, 20)) for name in names}
    wanted = {name: frozenset(dice.sample("abcdefgh", dice.randint(0, 6))) for name in names}
    rest = names[1:]
    dice.shuffle(rest)
    cuts = sorted(dice.sample(range(1, len(rest)), 3))
    parts = [rest[start:end] for start, end in zip([0, *cuts], [*cuts, len(rest)], strict=True)]
    return Map(places, wanted), [cluster(*part) for part in parts if dice.random() < 0.8]


@pytest.mark.parametrize("seed", range(200))
def test_against_brute_force(seed: int) -> None:
    """Every cluster, and every broker, scored one by one as the paper's text says, in floating point of its own."""
    dice = random.Random(seed)
    ground, clusters = random_ground(dice)
    beta, most = dice.choice((0.0, 0.5, 1.0)), dice.choice((5.0, 10.0, 30.0))
    me = ground.wanted["b0"]

    def far(one: Cluster) -> float:
        return sum(ground.distance_km("b0", member) for member in one.members) / len(one.members)

    def union(one: Cluster) -> set[str]:
        return {text for member in one.members for text in ground.wanted[member]}

    def pub(one: Cluster) -> float:
        return len(me & union(one)) / max(1, len(me | union(one))) / far(one)

    def sub(one: Cluster, broker: str) -> float:
        theirs = ground.wanted[broker]
        return len(me & theirs) / max(1, len(me)) - beta * len(theirs) / max(1, len(union(one)))

    joined = find_publish_cluster("b0", clusters, ground, most)
    near = [one for one in clusters if far(one) <= most]
    assert (joined is None) == (not near)
    if joined is not None:
        assert joined.cluster in near
        assert all(pub(joined.cluster) >= pub(one) - 1e-12 for one in near)
    found = find_publish_broker("b0", clusters, ground, beta)
    assert (found is None) == (not clusters)
    if found is not None:
        assert far(found.cluster) == pytest.approx(min(map(far, clusters)))
        assert all(sub(found.cluster, found.broker) >= sub(found.cluster, one) - 1e-12 for one in found.cluster.members)
