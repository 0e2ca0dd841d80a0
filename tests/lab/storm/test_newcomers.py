"""A newcomer does not get a stored value that was replaced, and acknowledged, before it subscribed."""

import random

import pytest

from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient
from metromq.lab.storm.history import ROUTINGS, TOPICS
from metromq.lab.storm.simulated import LAG_S

ROUNDS = 6


def publish(city: SimCity, client: SimClient, topic: str, value: str) -> None:
    token = client.publish(topic, value, 1, True)
    assert city.clock.run_until(lambda: token in client.acknowledged, 5.0)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("seed", range(5))
def test_newcomers_get_the_newest_value(routing: str, seed: int) -> None:
    dice = random.Random(seed)
    city = SimCity(grid_city(routing, count=3, hello_interval_ms=200))
    city.start()
    names, topic = city.city.names, dice.choice(TOPICS)
    writers = [city.connect(f"writer {name}", name) for name in names]
    if dice.random() < 0.7:  # then one broker has announced the filter before
        city.connect("old", dice.choice(names)).subscribe(dice.choice((topic, "#")), 1)
        city.run(0.5)
    for number in range(ROUNDS):
        newcomer = city.connect(f"newcomer {number}", dice.choice(names))
        for value in (f"a{number}", dice.choice((f"b{number}", ""))):
            publish(city, dice.choice(writers), topic, value)
        city.run(LAG_S)
        newcomer.subscribe(dice.choice((topic, "#")), 1)
        city.run(2.0)
        assert [item.payload for item in newcomer.received] == [value for value in (value,) if value]
