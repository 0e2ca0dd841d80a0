"""A simulated client is where it was told to be last, however quickly it was told."""

import pytest

from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity


def test_a_connection_that_is_under_way_is_given_up_for_the_next() -> None:
    city = SimCity(grid_city("central", count=2))
    city.start()
    city.connect("c", "b00", keeps=True)
    client = city.client("c")
    client.connect("b20", keeps=True)
    client.connect("b00", keeps=True)
    city.run(5.0)
    assert client.is_open
    at = {
        name: [one.client_id for one in broker.hub.sessions.by_client_id.values() if one.connection is not None]
        for name, broker in city.brokers.items()
        if broker.hub is not None
    }
    assert at == {"b00": ["c"], "b20": []}


@pytest.mark.parametrize("how", ["disconnect", "vanish", "slip"])
def test_who_leaves_before_it_is_connected_is_not_connected_later(how: str) -> None:
    city = SimCity(grid_city("central", count=2))
    city.start()
    city.connect("c", "b00", keeps=True)
    client = city.client("c")
    client.connect("b20", keeps=True)
    getattr(client, how)()
    city.run(5.0)
    assert not client.is_open
