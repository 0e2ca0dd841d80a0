"""Brokers that cannot reach each other speak through one that reaches both: nothing lost, nothing twice, in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.errors import ProtocolViolation
from metromq.federation.city import grid_city
from metromq.federation.links.relay import OPEN, PARCEL, Relayed, RelayTransport, decode_relayed, encode_relayed
from metromq.lab.sim.sim_city import SimCity
from tests.builds import plain_only

ROUTINGS = ("geographic", "flood-subscriptions", "flood-publications", "central")
TOPIC = "1/2/0/0/bus"


def cut_city(routing: str, count: int = 3) -> tuple[SimCity, str, str, str]:
    """The city, a broker that will stand in the middle, and two of which one is responsible for the topic."""
    base = grid_city(routing, count=count, hello_interval_ms=200)
    city = SimCity(base)
    city.start()
    first, second, third = base.names[:3]
    return (city, third, first, second) if routing == "central" else (city, first, second, third)


def via(city: SimCity, broker: str, peer: str) -> str:
    host = city.brokers[broker].host
    return host.via(peer) if host is not None else ""


def publish(city: SimCity, client: str, first: int, last: int, qos: int = 2) -> None:
    for number in range(first, last + 1):
        city.client(client).publish(TOPIC, f"m{number}", qos)
        city.run(0.01)


def numbers(city: SimCity, client: str) -> list[int]:
    return [int(delivery.payload[1:]) for delivery in city.received(client)]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_messages_go_around_a_cut(routing: str) -> None:
    city, middle, one, other = cut_city(routing)
    city.connect("sub", one, keeps=True)
    city.client("sub").subscribe(TOPIC, 2)
    city.connect("pub", other)
    city.settle()
    city.network.cut(one, other)
    publish(city, "pub", 1, 5)
    city.run(6.0)
    assert via(city, one, other) == via(city, other, one) == middle
    publish(city, "pub", 6, 20)
    city.run(2.0)
    assert numbers(city, "sub") == list(range(1, 21))
    city.network.heal()
    city.run(5.0)
    assert via(city, one, other) == ""
    publish(city, "pub", 21, 30)
    city.settle()
    assert numbers(city, "sub") == list(range(1, 31))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_nothing_is_lost_twice_or_turned_around_while_ways_change_under_load(routing: str) -> None:
    city, middle, one, other = cut_city(routing, 4)
    spare = city.city.names[3]
    city.connect("sub", one, keeps=True)
    city.client("sub").subscribe(TOPIC, 2)
    city.connect("pub", other)
    city.settle()
    sent = 0
    for fault in ("cut", "lose-middle", "kill", "heal", "hold"):
        if fault == "cut":
            city.network.cut(one, other)
        elif fault == "lose-middle":
            city.network.cut(via(city, other, one) or middle, one)
        elif fault == "kill":
            city.brokers[spare].kill()
        elif fault == "heal":
            city.network.heal()
            city.brokers[spare].start()
        else:
            city.network.hold(other, one)
        for _ in range(10):
            publish(city, "pub", sent + 1, sent + 20)
            sent += 20
            city.run(0.7)
    city.network.heal()
    city.run(30.0)
    city.settle()
    assert numbers(city, "sub") == list(range(1, sent + 1))


@plain_only
def test_a_parcel_that_is_lost_in_the_middle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the middle's link breaks and nobody hears of it: a later parcel must not be taken for the missing one."""
    city, _, one, other = cut_city("flood-subscriptions")
    city.connect("sub", one, keeps=True)
    city.client("sub").subscribe(TOPIC, 2)
    city.connect("pub", other)
    city.settle()
    city.network.cut(one, other)
    city.run(6.0)
    pass_on, lost = RelayTransport._pass_on, list[Relayed]()

    def forgets_one(self: RelayTransport, peer: str, item: Relayed, payload: bytes) -> None:
        if item.flag and item.kind == PARCEL and not lost:
            lost.append(item)
        else:
            pass_on(self, peer, item, payload)

    monkeypatch.setattr(RelayTransport, "_pass_on", forgets_one)
    publish(city, "pub", 1, 20)
    city.run(10.0)
    assert lost
    assert numbers(city, "sub") == list(range(1, 21))


def test_a_restarted_broker_takes_nothing_of_an_old_way() -> None:
    city, _, one, other = cut_city("flood-subscriptions")
    city.connect("sub", one, keeps=True)
    city.client("sub").subscribe(TOPIC, 2)
    city.connect("pub", other)
    city.settle()
    city.network.cut(one, other)
    city.run(6.0)
    publish(city, "pub", 1, 10)
    city.brokers[one].kill()
    publish(city, "pub", 11, 20)
    city.run(3.0)
    city.brokers[one].start()
    city.connect("sub", one, keeps=True)
    city.run(10.0)
    publish(city, "pub", 21, 30)
    city.run(5.0)
    assert numbers(city, "sub") == list(range(1, 31))


def test_nobody_is_asked_for_a_broker_that_is_gone() -> None:
    city, _, one, other = cut_city("flood-subscriptions")
    city.brokers[one].kill()
    city.run(20.0)
    assert via(city, other, one) == ""
    assert not any("link is up" in event and "through" in event for _, _, event in city.events)


def test_nobody_passes_on_what_has_been_passed_on() -> None:
    city, middle, one, other = cut_city("flood-subscriptions")
    host = city.brokers[middle].host
    assert host is not None
    with pytest.raises(ProtocolViolation, match="through two brokers"):
        host.arrived(one, "$metromq/relay", encode_relayed(Relayed(OPEN, "someone", other, 1)), None)


TEXT = st.text(max_size=12)
NUMBER = st.integers(0, 1 << 62)


@given(
    st.builds(Relayed, st.sampled_from((OPEN, PARCEL)), TEXT, TEXT, NUMBER, NUMBER, st.booleans(), TEXT, st.binary())
)
def test_what_is_relayed_survives_the_wire(item: Relayed) -> None:
    assert decode_relayed(encode_relayed(item)) == item
    with pytest.raises(ProtocolViolation):
        decode_relayed(encode_relayed(item)[:-1])
