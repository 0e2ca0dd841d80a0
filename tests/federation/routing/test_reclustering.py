"""Better clusters: costs counted by hand and against the product's own ways, never worse, and applied without loss."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.routing import changes_to
from metromq.federation.routing.reclustering import ClusterWays, Usage, cost, improved, way
from tests.federation.network import Network
from tests.federation.routing.test_overlay import line_city, ways_of

NAMES = tuple(f"at{km}" for km in (0, 3, 6, 30, 33, 36, 70))


def distance(one: str, other: str) -> float:
    return abs(float(one[2:]) - float(other[2:]))


def test_a_cost_by_hand() -> None:
    ways = ClusterWays({"at0": "at0", "at3": "at0", "at30": "at30"}, {"at0": "at0", "at30": "at30"}, {"at70": "at30"})
    usage = Usage({"at3": 2.0}, frozenset(("at0", "at70")))
    assert list(way(ways, "at3", "at70")) == ["at0", "at30", "at70"]
    found = cost(usage, ways, distance)
    assert found.copies == 2 * 3  # to at0, which wants it too, at30 and at70
    assert found.km == 2 * (3 + (3 + 30 + 40))
    assert found.deliveries == 2 * 2


def test_a_server_that_wants_the_topic_itself_saves_a_copy() -> None:
    ways = ClusterWays({"at30": "at30", "at33": "at30"}, {"at30": "at30"}, {"at70": "at30"})
    usage = Usage({"at33": 5.0, "at30": 1.0}, frozenset(("at33", "at70")))
    best, before, after = improved(usage, ways, distance, 10.0)
    assert best.feeds == {"at70": "at33"}
    assert (before.copies, after.copies) == (5 * 2 + 1 * 2, 5 * 1 + 1 * 2)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Usage, ClusterWays]:
    random = draw(st.randoms(use_true_random=False))
    publishers = random.sample(NAMES, random.randint(1, 5))
    founders = publishers[: random.randint(1, len(publishers))]
    clusters = {name: name if name in founders else random.choice(founders) for name in publishers}
    leaders = {one: random.choice([name for name in publishers if clusters[name] == one]) for one in founders}
    wanting = frozenset(random.sample(NAMES, random.randint(1, 6)))
    feeds = {name: random.choice(publishers) for name in sorted(wanting) if name not in clusters}
    rates = {name: float(random.randint(1, 9)) for name in publishers}
    return Usage(rates, wanting), ClusterWays(clusters, leaders, feeds)


@given(cases())
@settings(deadline=None, max_examples=150)
def test_a_proposal_is_never_worse(case: tuple[Usage, ClusterWays]) -> None:
    usage, start = case
    best, before, after = improved(usage, start, distance, 10.0)
    assert before == cost(usage, start, distance)
    assert after == cost(usage, best, distance)
    assert after.copies <= before.copies + 1e-6
    assert after.km <= before.km + 1e-6
    assert best.clusters.keys() == start.clusters.keys()
    assert set(best.leaders) >= set(best.clusters.values())
    assert all(best.clusters[best.leaders[founder]] == founder for founder in set(best.clusters.values()))


@given(cases())
@settings(deadline=None, max_examples=20)
def test_costs_are_those_of_the_products_own_ways_and_a_change_loses_nothing(case: tuple[Usage, ClusterWays]) -> None:
    usage, wanted = case
    network = Network(line_city(*(int(name[2:]) for name in NAMES)))
    for name in usage.wanting:
        network.subscribe(name, "bus/7")
    for name in usage.rates:
        network.publish(name, "bus/7")
        network.step(0.2)
    network.step(0.5)
    node = network.nodes[NAMES[0]]
    facts = tuple(changes_to(node.coordinator.book, "bus/7", wanted))
    network.delivered.clear()
    network.run(NAMES[0], node.coordinated(node.coordinator.propose(facts, network.now_us), network.now_us))
    for name in usage.rates:  # while the news is under way
        network.publish(name, "bus/7", b"under way " + name.encode())
    network.step(0.5)
    overlay = ways_of(network, NAMES[3]).map.topics["bus/7"]
    assert overlay.clusters == dict(wanted.clusters)
    assert {founder: overlay.leaders[founder] for founder in set(wanted.clusters.values())} == {
        founder: wanted.leaders[founder] for founder in set(wanted.clusters.values())
    }
    network.copies.clear()
    for name in usage.rates:
        network.publish(name, "bus/7", b"after " + name.encode())
    got = Counter(network.delivered)
    assert set(got.values()) <= {1}
    for name in usage.rates:
        for word in (b"under way ", b"after "):
            assert {to for to, text in got if text == word + name.encode()} == usage.wanting
    once = Usage(dict.fromkeys(usage.rates, 1.0), usage.wanting)
    assert len(network.copies) == cost(once, wanted, distance).copies
