"""Which peers get a copy: exactly those whose clients want it, and the answer follows every change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity
from metromq.protocol.session import Message
from metromq.protocol.topics import matches

FILTERS = ("0/a", "0/#", "1/+", "+/a", "#")
TOPICS = ("0/a", "1/a", "1/b")
CHANGES = st.lists(st.tuples(st.sampled_from(("b1", "b2", "b3")), st.sampled_from(FILTERS)), max_size=6)


@pytest.mark.parametrize("qos", [0, 1])
@settings(max_examples=25, deadline=None)
@given(changes=CHANGES)
def test_copies_go_where_somebody_wants_them(qos: int, changes: list[tuple[str, str]]) -> None:
    """Each change toggles a subscription; after each one the answers are compared with plain matching."""
    city = SimCity(grid_city("flood-subscriptions", l_b=1, l_c=0))
    city.start()
    wanted: dict[str, set[str]] = {"b1": set(), "b2": set(), "b3": set()}
    for broker in wanted:
        city.connect(f"at {broker}", broker)
    for broker, topic_filter in changes:
        client = city.client(f"at {broker}")
        if topic_filter in wanted[broker]:
            client.unsubscribe(topic_filter)
        else:
            client.subscribe(topic_filter, 1)
        wanted[broker] ^= {topic_filter}
        city.run(0.5)
        host = city.brokers["b0"].host
        assert host is not None
        for topic in TOPICS:
            copies = host.answers.copier().copies(Message(topic, b"", qos))
            interested = {name for name, filters in wanted.items() if any(matches(one, topic) for one in filters)}
            assert {copy.backlog.peer for copy in copies} == interested


def test_the_responsible_broker_gets_it_first() -> None:
    city = SimCity(grid_city("geographic", l_b=1, l_c=0))
    city.start()
    city.connect("s", "b3")
    city.client("s").subscribe("1/#", 1)
    city.run(1.0)
    hosts = {name: broker.host for name, broker in city.brokers.items()}
    peers = {
        name: [copy.backlog.peer for copy in host.answers.copier().copies(Message("1/t", b"", 1))]
        for name, host in hosts.items()
        if host is not None
    }
    assert peers == {"b0": ["b1"], "b1": ["b3"], "b2": ["b1"], "b3": ["b1"]}
