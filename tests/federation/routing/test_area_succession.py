"""Who inherits an area: the nearest one that lives, of the cluster or of the whole city, as comparing all says."""

import random
from collections.abc import Iterator

import pytest

from metromq.federation import City, grid_city
from metromq.federation.city import MOST_NEAR
from metromq.federation.coordination.facts import AREA, Fact
from metromq.federation.routing.geographic import AreaSuccession


class Living:
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __contains__(self, name: object, /) -> bool:
        return name in self._names

    def __getitem__(self, name: str, /) -> int:
        return -1

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


def nearest(city: City, home: str, living: set[str]) -> str:
    cluster = {name for name in living if city.cluster_of(name) == city.cluster_of(home)}
    return min(cluster or living, key=lambda name: (city.distance_km(home, name), name))


@pytest.mark.parametrize("lost_of_100", [1, 30, 70, 97])
def test_the_heir_is_who_is_nearest(lost_of_100: int) -> None:
    city = grid_city(l_b=4, l_c=3, count=100)  # most clusters have one or two brokers
    succession = AreaSuccession(city)
    chance = random.Random(lost_of_100)
    beyond = 0
    for _ in range(20):
        lost = set(chance.sample(city.names, lost_of_100))
        living = set(city.names) - lost
        for area, home in city.homes.items():
            if home in lost:
                heir = succession.heir(Fact(AREA, area, home, 0), Living(living))
                assert heir == nearest(city, home, living)
                beyond += heir not in city.nearest_to(home)
    assert (beyond > 0) == (lost_of_100 > 70), f"so many lost that the {MOST_NEAR} nearest are not enough"
