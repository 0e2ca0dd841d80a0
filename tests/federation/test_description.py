"""The city's description as shared knowledge: told to one broker, followed by all, remembered."""

import dataclasses
import json

import pytest

from metromq.errors import ConfigError, ProtocolViolation, UsageError
from metromq.federation.city import Areas, BrokerSpec, City, LinkSecurity, grid_city
from metromq.federation.coordination.facts import CITY, Fact
from metromq.federation.description import (
    FORMER_S,
    Description,
    differences,
    next_description,
    plan_of,
    read_description,
    read_plan,
    with_area,
    with_broker,
    without_areas,
    without_broker,
)
from metromq.federation.effects import CityFollowed, Keep, Send
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import Facts, Hello
from metromq.federation.node import Node
from tests.federation.network import Network

CITY_OF_4 = grid_city(count=4)
LINKS = LinkSecurity(secret="another secret of 16 bytes")


def change(network: Network, at: str, city: City, author: str = "ann") -> None:
    node = network.nodes[at]
    network.run(at, node.change_city(city, author, network.now_us / 1e6, "", network.now_us))
    network.step(2)


def test_a_change_is_told_to_one_broker_and_followed_by_all() -> None:
    network = Network(CITY_OF_4)
    change(network, "b20", with_area(CITY_OF_4, "1/2", "b30"))
    for node in network.nodes.values():
        assert node.description.epoch == 1
        assert (node.description.author, node.description.at) == ("ann", "b20")
        assert node.city.homes["1/2"] == "b30"
        assert node.table.owner("1/2") == "b30"
        assert node.descriptions.followed_by == dict.fromkeys(CITY_OF_4.names, 1)
        assert node.descriptions.earlier == [Description(0, CITY_OF_4)]
    assert len({node.table.digest() for node in network.nodes.values()}) == 1


def test_who_was_away_catches_up_and_until_then_is_no_stranger() -> None:
    network = Network(CITY_OF_4)
    network.lose("b10")
    change(network, "b20", with_area(CITY_OF_4, "1/2", "b30"))
    assert network.nodes["b10"].description.epoch == 0
    network.lost.clear()
    for peer in tuple(network.nodes["b10"].up):
        network.nodes["b10"].up.forget(peer)
    network.link()
    network.step(3)
    assert network.nodes["b10"].description.epoch == 1
    assert network.nodes["b00"].descriptions.followed_by["b10"] == 1
    assert network.nodes["b10"].table.owner("1/2") == "b30"


def test_two_changes_that_meet_become_one_and_it_is_told() -> None:
    network = Network(CITY_OF_4)
    one, other = network.nodes["b00"], network.nodes["b30"]
    first = one.change_city(with_area(CITY_OF_4, "1/2", "b30"), "ann", 1.0, "", 0)
    second = other.change_city(with_area(CITY_OF_4, "1/2", "b20"), "bob", 2.0, "", 0)
    seen: list[CityFollowed] = []
    network.watch = lambda at, effect: seen.append(effect) if isinstance(effect, CityFollowed) else None
    network.run("b00", first)
    network.run("b30", second)
    network.step(3)
    assert {node.description.author for node in network.nodes.values()} == {"bob"}
    assert {node.table.owner("1/2") for node in network.nodes.values()} == {"b20"}
    assert any(effect.overruled and effect.before.author == "ann" for effect in seen)


def test_a_restart_remembers_the_city_and_what_it_was_before() -> None:
    node = Node(CITY_OF_4, "b00", 1, 0)
    effects = node.change_city(with_area(CITY_OF_4, "1/2", "b30"), "ann", 1.0, "why", 0)
    effects += node.change_city(with_broker(node.city, BrokerSpec("late", "10.0.0.9:1883")), "bob", 2.0, "", 0)
    for kept in ([effect for effect in effects if isinstance(effect, Keep)], node.snapshot()):
        again = Node(CITY_OF_4, "b00", 2, 0)
        for keep in kept:
            again.restore(keep.peer, keep.frame, 0)
        assert again.description == node.description
        assert again.descriptions.earlier == node.descriptions.earlier
        assert "late" in again.peers
        assert again.table.digest() == node.table.digest()


def test_brokers_come_and_go_with_the_description() -> None:
    network = Network(CITY_OF_4)
    larger = with_broker(CITY_OF_4, BrokerSpec("late", "10.0.0.9:1883", area="1/2"))
    network.add(larger, "late")
    change(network, "b00", larger)
    network.step(3)
    assert {node.table.owner("1/2") for node in network.nodes.values()} == {"late"}
    network.subscribe("late", "bus/#")
    network.publish("b30", "bus/7", b"to the newcomer")
    assert network.delivered == [("late", b"to the newcomer")]
    change(network, "b00", without_broker(without_areas(network.nodes["b00"].city, "late"), "late"))
    assert "late" not in network.nodes["b30"].peers
    assert network.nodes["late"].description.epoch == 2, "it was told before it was forgotten"


def test_a_description_that_makes_no_sense_is_refused_and_changes_nothing() -> None:
    node = Node(CITY_OF_4, "b00", 1, 0)
    bad = dataclasses.replace(CITY_OF_4, brokers=CITY_OF_4.brokers[1:])
    fact = Description(1, bad, "ann", 1.0, "", "b10").to_fact()
    for broken in (fact, dataclasses.replace(fact, value="{"), dataclasses.replace(fact, value="[" * 100_000)):
        with pytest.raises(ProtocolViolation, match="epoch 1 of the city cannot be followed here"):
            node.frame("b10", encode_frame(Facts((broken,))), 0)
    assert node.description.epoch == 0
    assert node.coordinator.book.get(CITY, CITY).epoch == -1


def test_secrets_do_not_travel() -> None:
    city = dataclasses.replace(CITY_OF_4, links=LinkSecurity(secret="not for everybody's ears"))
    fact = Description(1, city, "ann", 1.0, "", "b00").to_fact()
    assert "ears" not in fact.value
    assert read_description(fact, LINKS).city == dataclasses.replace(CITY_OF_4, links=LINKS)
    assert read_plan(plan_of(city), city.links) == city


def test_a_later_release_may_add_fields() -> None:
    fact = Description(1, CITY_OF_4, "ann", 1.0, "", "b00").to_fact()
    written = json.loads(fact.value)
    written["colour"] = written["city"]["colour"] = "green"
    newer = Fact(CITY, CITY, "b00", 1, json.dumps(written))
    assert read_description(newer, CITY_OF_4.links).city == CITY_OF_4


def test_hellos_name_the_epoch_only_once_there_is_one() -> None:
    node = Node(CITY_OF_4, "b00", 1, 0)

    def greeting() -> str:
        sent = [effect for effect in node.peer_up("b10", 0) if isinstance(effect, Send)]
        return next(effect.frame.city for effect in sent if isinstance(effect.frame, Hello))

    assert greeting() == CITY_OF_4.identity, "releases that know of no epochs understand it"
    node.change_city(with_area(CITY_OF_4, "1/2", "b30"), "ann", 1.0, "", 0)
    assert greeting() == f"{node.city.identity} epoch=1"


def test_who_was_at_home_hears_of_subscriptions_for_a_while() -> None:
    moved = next_description(Description(3, CITY_OF_4), with_area(CITY_OF_4, "1/2", "b30"), "ann", "b00", 1000.0)
    assert moved.epoch == 4
    assert moved.city.former_homes == {"1/2": {"b10"}}
    again = next_description(moved, with_area(moved.city, "1/2", "b20"), "ann", "b00", 2000.0)
    assert again.city.former_homes == {"1/2": {"b10", "b30"}}
    back = next_description(again, with_area(again.city, "1/2", "b10"), "ann", "b00", 3000.0)
    assert back.city.former_homes == {"1/2": {"b20", "b30"}}
    later = next_description(back, back.city, "ann", "b00", 3001.0 + FORMER_S)
    assert later.city.former_homes == {}
    left = without_broker(without_areas(back.city, "b20"), "b20")
    assert next_description(back, left, "ann", "b00", 3001.0).city.former_homes["1/2"] == {"b30"}


def test_what_would_change_is_told_line_by_line() -> None:
    after = with_broker(with_area(CITY_OF_4, "1/2", "b30"), BrokerSpec("late", "10.0.0.9:1883", site=""))
    assert differences(CITY_OF_4, after) == (
        "+ broker late: listen 10.0.0.9:1883",
        "~ broker b10: area 1/0 1/1 1/2 1/3 -> 1/0 1/1 1/3",
        "~ broker b30: area 3/0 3/1 3/2 3/3 -> 1/2 3/0 3/1 3/2 3/3",
    )
    assert differences(CITY_OF_4, dataclasses.replace(CITY_OF_4, areas=Areas(5, 2, 1))) == ("~ areas: k 4 -> 5",)
    assert differences(CITY_OF_4, CITY_OF_4) == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"name": "other"}, "the name is what"), ({"areas": Areas(4, 3, 1)}, "every area would be another one")],
)
def test_some_things_cannot_change_while_a_city_runs(changes: dict[str, object], problem: str) -> None:
    after = dataclasses.replace(CITY_OF_4, **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=problem):
        next_description(Description(0, CITY_OF_4), after, "ann", "b00", 1.0)


def test_areas_of_a_leaver_go_to_its_neighbour() -> None:
    city = grid_city(count=16)
    assert without_areas(city, "b12").homes["1/2"] in ("b10", "b11", "b13")
    with pytest.raises(UsageError, match="move them first"):
        without_broker(city, "b12")
    with pytest.raises(UsageError, match="last broker"):
        without_areas(grid_city(count=1), "b00")
    central = grid_city("central", count=4)
    with pytest.raises(UsageError, match="central broker"):
        without_broker(central, "b00")
    with pytest.raises(ConfigError):
        read_plan({"brokers": []}, LINKS)
