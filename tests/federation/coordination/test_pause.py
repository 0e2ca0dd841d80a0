"""A broker that stood still must not take the silence of its own pause for the others' end."""

from metromq.federation.city import grid_city
from metromq.federation.node import Node

SECOND_US = 1_000_000


def test_a_frozen_broker_claims_nothing_when_it_wakes() -> None:
    node = Node(grid_city(), "b12", 1, 0)
    node.tick(0)
    node.coordinator.overslept(60 * SECOND_US, 60 * SECOND_US)
    node.tick(60 * SECOND_US)
    assert node.table.owned_by("b12") == ("1/2",)


def test_who_is_really_gone_is_still_missed_after_the_pause() -> None:
    node = Node(grid_city(), "b12", 1, 0)
    node.tick(0)
    node.coordinator.overslept(60 * SECOND_US, 60 * SECOND_US)
    for tenth in range(20 * 10):
        node.tick(60 * SECOND_US + tenth * SECOND_US // 10)
    assert "1/3" in node.table.owned_by("b12")
