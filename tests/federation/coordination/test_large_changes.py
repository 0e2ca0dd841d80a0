"""Changes of a large city: everybody follows and knows that everybody does, and what is said for it stays small."""

import dataclasses

import pytest

from metromq.federation import City, grid_city, with_area
from metromq.federation.coordination.facts import CITY, FOLLOWS, PATCH
from metromq.federation.effects import Effect, Send
from metromq.federation.links.frames import Facts, Followers
from metromq.lab.sim.sim_city import SimCity
from tests.federation.network import Network

BEFORE = 7  # the last version of the link in which everybody says by a fact what it follows


def city_of(count: int) -> City:
    return grid_city(l_b=3, l_c=2, count=count, mesh_up_to=0)


def change(network: Network, at: str, seconds: float = 3) -> None:
    node = network.nodes[at]
    last = node.city.names[-1]
    wanted = with_area(node.city, "1/2/2", last if node.city.homes["1/2/2"] != last else "b000")
    network.run(at, node.change_city(wanted, "ann", network.now_us / 1e6, "", network.now_us))
    network.step(seconds)


class Said:
    """What brokers say to each other when the city changes."""

    def __init__(self, network: Network) -> None:
        self.followers = 0
        self.facts = self.patches = self.whole = 0
        network.watch = self._see

    def _see(self, at: str, effect: Effect) -> None:
        frame = effect.frame if isinstance(effect, Send) else None
        self.followers += isinstance(frame, Followers)
        for fact in frame.facts if isinstance(frame, Facts) else ():
            self.facts += fact.kind == FOLLOWS
            self.patches += fact.kind == PATCH
            self.whole += fact.kind == CITY


def test_all_know_that_all_follow_and_nobody_says_so_to_everybody() -> None:
    network = Network(city_of(64))
    network.step(2)
    said = Said(network)
    change(network, "b000")
    for node in network.nodes.values():
        assert node.descriptions.followed_by == dict.fromkeys(network.nodes, 1)
        assert node.coordinator.following.digest() == 0
    assert said.facts == 0
    assert said.followers <= 64 * 8 * 8, "a few to each companion"
    assert 0 < said.patches <= 64 * 8
    assert said.whole == 0, "nobody needs the whole description"
    before = said.followers
    network.step(5)
    assert said.followers == before, "when nothing is missing, nothing is said"


def test_who_is_away_is_known_to_lag_behind_until_it_is_back() -> None:
    network = Network(city_of(32))
    change(network, "b000")
    network.lose("b100")
    network.step(4)
    change(network, "b000")
    lagging = dict.fromkeys(network.nodes, 2) | {"b100": 1}
    assert [node.descriptions.followed_by for name, node in network.nodes.items() if name != "b100"] == [lagging] * 31
    network.lost.clear()
    for peer in tuple(network.nodes["b100"].up):
        network.nodes["b100"].up.forget(peer)
    network.link()
    network.step(6)
    for node in network.nodes.values():
        assert node.descriptions.followed_by == dict.fromkeys(network.nodes, 2)


def test_who_has_another_file_cannot_read_a_patch_and_asks_for_the_whole() -> None:
    city = city_of(20)
    network = Network(city)
    other = next(name for name in network.nodes if name != "b000")
    theirs = dataclasses.replace(city, membership=dataclasses.replace(city.membership, clock_warning_ms=77))
    network.add(theirs, other)
    network.link()
    network.step(2)
    said = Said(network)
    change(network, "b000", 0.3)
    assert {node.description.epoch for node in network.nodes.values()} == {1}, "at once: not with some later greeting"
    assert said.whole >= 1
    network.step(3)
    assert len({node.coordinator.book.digest() for node in network.nodes.values()}) == 1
    assert network.nodes[other].descriptions.followed_by == dict.fromkeys(network.nodes, 1)


@pytest.mark.parametrize("old", ["b000", "b100"])
def test_a_large_city_with_a_broker_of_an_earlier_release_knows_too_that_all_follow(old: str) -> None:
    sim = SimCity(city_of(20))
    sim.brokers[old].link_version = BEFORE
    sim.start()
    sim.run(2.0)
    sim.change("b000", lambda city: with_area(city, "1/2/2", "b330"))
    sim.run(4.0)
    hosts = [broker.host for broker in sim.brokers.values() if broker.host is not None]
    for host in hosts:
        assert host.node.descriptions.followed_by == dict.fromkeys(sim.brokers, 1)
        facts = host.node.coordinator.book.of_kind(FOLLOWS)
        assert {fact.key for fact in facts} == set(sim.brokers), "the old one has nothing else to go by"
    assert len({host.node.coordinator.book.digest() for host in hosts}) == 1
    sim.brokers[old].kill()
    sim.brokers[old].link_version = 0
    sim.run(1.0)
    sim.brokers[old].start()
    sim.run(6.0)
    sim.change("b000", lambda city: with_area(city, "1/2/2", "b000"))
    sim.run(4.0)
    for host in [broker.host for broker in sim.brokers.values() if broker.host is not None]:
        assert host.node.descriptions.followed_by == dict.fromkeys(sim.brokers, 2)
        assert max(fact.epoch for fact in host.node.coordinator.book.of_kind(FOLLOWS)) == 1, "all count again"


def test_who_starts_anew_is_told_who_follows() -> None:
    city = city_of(20)
    network = Network(city)
    change(network, "b000")
    for node in network.nodes.values():
        node.up.forget("b100")
    network.add(city, "b100")
    network.link()
    network.step(6)
    assert network.nodes["b100"].descriptions.followed_by == dict.fromkeys(network.nodes, 1)
