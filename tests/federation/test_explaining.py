"""What explain says of one broker's step agrees with what the node does."""

import pytest

from metromq.errors import ProtocolViolation
from metromq.federation.city import grid_city
from metromq.federation.coordination.facts import AREA, FILTER, Fact
from metromq.federation.explaining import explain_step, step_from_json, step_to_json
from metromq.federation.links.frames import Announcement, Interest
from metromq.federation.node import Node
from metromq.federation.stages import OWNER


def node(name: str, routing: str = "geographic") -> Node:
    return Node(grid_city(routing), name, 1, 0)


def test_a_publisher_sends_to_the_responsible_broker() -> None:
    step = explain_step(node("b00"), "1/2/0/0/bus")
    assert [(hop.peer, hop.stage, hop.why) for hop in step.hops] == [("b12", "owner", "is responsible for area 1/2")]
    assert step.reasons[0] == "1/2/0/0/bus belongs to area 1/2; b12 is responsible (epoch 0)."
    assert step_from_json(step_to_json(step)) == step


def test_the_responsible_broker_serves_who_is_interested() -> None:
    owner = node("b12")
    owner.restore("b33", Interest(True, (Announcement("1/+/#", 1, 0),), ()), 0)
    step = explain_step(owner, "1/2/0/0/bus", OWNER, "b00", (), 2)
    assert [(hop.peer, hop.stage, hop.why) for hop in step.hops] == [("b33", "final", "has subscribers")]
    assert (step.interested, step.subscribers) == (("b33",), 2)


def test_a_stand_in_hands_over_to_the_home_broker() -> None:
    stand_in = node("b13")
    stand_in.coordinator.book.merge([Fact(AREA, "1/2", "b13", 1)])
    step = explain_step(stand_in, "1/2/0/0/bus")
    assert [(hop.peer, hop.stage, hop.why) for hop in step.hops] == [
        ("b12", "handover", "is the home broker of area 1/2")
    ]


def test_a_subscription_is_announced_where_its_areas_are() -> None:
    step = explain_step(node("b00"), "$share/group/1/+/2/#")
    assert [(hop.peer, hop.why) for hop in step.hops] == [(f"b1{digit}", f"area 1/{digit}") for digit in range(4)]
    beyond = explain_step(node("b00"), "news/#")
    assert len(beyond.hops) == 15
    assert {hop.why for hop in beyond.hops} == {"topics without an area may be published there"}


@pytest.mark.parametrize(
    ("routing", "why"), [("central", "distributes every message"), ("flood-publications", "gets every message")]
)
def test_other_routers_say_why(routing: str, why: str) -> None:
    assert {hop.why for hop in explain_step(node("b11", routing), "a").hops} == {why}


def test_the_owner_of_a_filter_says_what_the_central_broker_is_there_for() -> None:
    owner = node("b11", "delegation")
    owner.coordinator.book.merge([Fact(FILTER, "a/#", "b11", 1)])
    owner.restore("b33", Interest(True, (Announcement("a/#", 1, 0),), ()), 0)
    step = explain_step(owner, "a/b", OWNER, "b22")
    assert [(hop.peer, hop.stage, hop.why) for hop in step.hops] == [
        ("b00", "relay", "serves everybody else who wants it")
    ]


@pytest.mark.parametrize("text", ["", "a/#/b", "a+/b"])
def test_neither_topic_nor_filter(text: str) -> None:
    with pytest.raises(ProtocolViolation):
        explain_step(node("b00"), text)
