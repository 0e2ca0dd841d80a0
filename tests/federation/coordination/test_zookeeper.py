"""The coordinator on an ensemble, without one: a store that answers as the servers would."""

from dataclasses import dataclass, field, replace

import pytest

from metromq.federation.city import City, grid_city
from metromq.federation.coordination.facts import BROKER, Fact
from metromq.federation.coordination.zookeeper import ZooKeeperCoordinator
from metromq.federation.node import Node
from tests.federation.network import joins

LATER_US = 60_000_000  # everybody has had time to connect


@dataclass
class Servers:
    """One truth, sessions, and nodes that are told or not."""

    city: City
    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    now_us: int = 0

    def add(self, name: str) -> Node:
        node = self.nodes[name] = Node(self.city, name, 1, self.now_us)
        self.enter(name)
        return node

    def coordinator(self, name: str) -> ZooKeeperCoordinator:
        found = self.nodes[name].coordinator
        assert isinstance(found, ZooKeeperCoordinator)
        return found

    def enter(self, name: str) -> None:
        self.away.discard(name)
        one, node = self.coordinator(name), self.nodes[name]
        node.coordinated(one.facts_said(tuple(self.facts.values()), self.now_us), self.now_us)
        node.coordinated(one.connected(self.now_us), self.now_us)
        self.tell_sessions()

    def cut(self, name: str) -> None:
        """The ensemble and the broker do not hear each other; its session ends."""
        self.away.add(name)
        self.coordinator(name).lost(self.now_us)
        self.tell_sessions()

    def tell_sessions(self) -> None:
        sessions = {name: 0 for name in self.nodes if name not in self.away}
        for name in sessions:
            one = self.coordinator(name)
            self.nodes[name].coordinated(one.members(sessions, self.now_us), self.now_us)

    def step(self, us: int = 100_000) -> None:
        self.now_us += us
        for name, node in self.nodes.items():
            node.tick(self.now_us)
            if name not in self.away:
                self._write(name)
        for name, node in self.nodes.items():
            if name not in self.away:
                said = tuple(self.facts.values())
                node.coordinated(self.coordinator(name).facts_said(said, self.now_us), self.now_us)

    def _write(self, name: str) -> None:
        facts = self.coordinator(name).writes()
        for fact in facts:
            known = self.facts.get((fact.kind, fact.key))
            if known is None or fact.version > known.version:
                self.facts[fact.kind, fact.key] = fact
        self.coordinator(name).written(facts, self.now_us)

    def owners(self, area: str) -> set[str]:
        return {node.table.owner(area) for name, node in self.nodes.items() if name not in self.away}


@pytest.fixture
def servers() -> Servers:
    city = replace(grid_city(count=4), coordination="zookeeper")
    found = Servers(city)
    for name in city.names:
        found.add(name)
    found.step(LATER_US)
    found.step()
    return found


def test_whoever_has_no_session_is_gone_and_claims_its_home_back(servers: Servers) -> None:
    servers.cut("b10")
    servers.step()
    servers.step()
    (owner,) = servers.owners("1/0")
    assert owner != "b10"
    assert servers.nodes["b00"].coordinator.alive(servers.now_us) == ("b00", "b20", "b30")
    servers.enter("b10")
    servers.step()
    servers.step()
    assert servers.owners("1/0") == {"b10"}
    assert len({node.table.digest() for node in servers.nodes.values()}) == 1


def test_the_first_broker_of_a_city_does_not_claim_everything() -> None:
    servers = Servers(replace(grid_city(count=4), coordination="zookeeper"))
    servers.add("b00")
    for _ in range(10):
        servers.step()
    assert not servers.facts
    servers.step(LATER_US)
    servers.step()
    assert servers.owners("1/0") == {"b00"}


def test_while_the_ensemble_is_away_everybody_stays_and_proposals_wait(servers: Servers) -> None:
    for name in servers.nodes:
        servers.coordinator(name).lost(servers.now_us)
    joins(servers.nodes["b00"], "late", servers.now_us)
    servers.away |= set(servers.nodes)
    for _ in range(100):
        servers.step(1_000_000)
    one = servers.nodes["b00"]
    assert one.coordinator.alive(servers.now_us) == servers.city.names
    assert one.table.owner("1/0") == "b10"
    assert "late" not in one.peers
    for name in servers.nodes:
        servers.enter(name)
    servers.step()
    assert all("late" in node.peers for node in servers.nodes.values())
    assert servers.owners("1/0") == {"b10"}, "nobody counts as gone before it could renew its session"


def test_after_an_outage_everybody_has_time_to_come_back(servers: Servers) -> None:
    for name in servers.nodes:
        servers.cut(name)
    servers.enter("b00")  # the others' sessions are not there yet
    servers.step()
    assert servers.nodes["b00"].coordinator.alive(servers.now_us) == servers.city.names
    assert servers.nodes["b00"].table.owner("1/0") == "b10"
    servers.step(LATER_US)
    servers.step()
    assert servers.owners("1/0") == {"b00"}


def test_a_proposal_that_lost_is_given_up_and_one_of_unknown_fate_is_written_again(servers: Servers) -> None:
    one = servers.coordinator("b00")
    one.propose((Fact("filter", "x", "b00", 0),), 0)
    facts = one.writes()
    assert one.writes() == ()
    one.failed(facts)
    assert one.writes() == facts
    one.facts_said((Fact("filter", "x", "b30", 4),), 0)
    one.failed(facts)
    assert one.writes() == ()
    assert one.book.owner("filter", "x") == "b30"


def test_facts_of_strangers_are_not_believed(servers: Servers) -> None:
    one = servers.coordinator("b00")
    assert one.facts_said((Fact("area", "1/0", "mallory", 99),), 0) == []
    assert one.facts_said((Fact("area", "1/0", "late", 99), Fact(BROKER, "late", "late", 0)), 0)


def test_peers_say_nothing_about_facts(servers: Servers) -> None:
    assert servers.coordinator("b00").told("b10", (Fact("area", "1/0", "b10", 99),), 0) == []
