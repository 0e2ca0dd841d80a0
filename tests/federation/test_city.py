"""Cities that a program builds."""

import pytest

from metromq.errors import UsageError
from metromq.federation.city import grid_city


def test_grid_cities_of_any_size_cover_all_areas() -> None:
    for count in (1, 4, 9, 16):
        city = grid_city(count=count)
        assert len(city.brokers) == count
        assert len(city.homes) == 16
    with pytest.raises(UsageError, match='has no broker "b99"'):
        grid_city().broker("b99")
    with pytest.raises(UsageError, match="l_c: must be less than l_b"):
        grid_city(l_b=1, l_c=1)
