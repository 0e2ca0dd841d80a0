"""A session that moves: all its messages once and in order, wherever its client goes, and whatever breaks meanwhile."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity

NAMES = ("b0", "b1", "b2")
PUBLISH, MOVE, LEAVE, WAIT = "publish", "move", "leave", "wait"
CALM = st.lists(
    st.one_of(
        st.tuples(st.just(PUBLISH), st.sampled_from(NAMES), st.integers(1, 30)),
        st.tuples(st.just(MOVE), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just(LEAVE), st.just(""), st.just(0)),
        st.tuples(st.just(WAIT), st.just(""), st.sampled_from((1, 20, 400, 2000))),
    ),
    max_size=14,
)
SLOW = st.sampled_from((("b0", "b1"), ("b0", "b2"), ("b1", "b2")))
FAULTS = st.lists(st.tuples(st.integers(0, 14), st.sampled_from(("kill", "cut")), st.sampled_from(NAMES)), max_size=2)


class Tour:
    """One client with one subscription on its way through three brokers, each with a publisher of its own."""

    def __init__(self, routing: str, slow: tuple[str, str]) -> None:
        """Messages between the two `slow` brokers take longer than a way around by the third."""

        def latency(one: str, other: str) -> float:
            return 0.08 if {one, other} == set(slow) else 0.002

        self.city = SimCity(grid_city(routing, l_b=1, l_c=0, count=3), latency)
        self.city.start()
        self.sent: dict[str, list[str]] = {name: [] for name in NAMES}
        for name in NAMES:
            self.city.connect(f"p{name}", name, keeps=True)
        self.city.connect("s", "b0", keeps=True)
        self.city.client("s").subscribe("#", 2)
        self.city.run(3.0)

    def step(self, kind: str, broker: str, number: int) -> None:
        city = self.city
        if kind == PUBLISH:
            for _ in range(number):
                payload = f"{broker} {len(self.sent[broker])}"
                city.client(f"p{broker}").publish("1/t", payload, 2)
                self.sent[broker].append(payload)
        elif kind == MOVE:
            city.connect("s", broker, keeps=True)
        elif kind == LEAVE:
            city.client("s").vanish()
        else:
            city.run(number / 1000)

    def fault(self, kind: str, broker: str) -> None:
        city = self.city
        if kind == "kill":
            city.brokers[broker].kill()
            city.run(0.3)
            city.brokers[broker].start()
            city.connect(f"p{broker}", broker, keeps=True)  # and sends again what was not acknowledged
        else:
            for other in NAMES:
                if other != broker:
                    city.network.cut(broker, other)
            city.run(0.3)
            city.network.heal()

    def home(self) -> dict[str, list[str]]:
        """What the client has got in the end, by publisher."""
        self.city.run(5.0)
        for _ in range(3):
            self.city.connect("s", "b1", keeps=True)
            self.city.settle()
            self.city.run(5.0)
        got: dict[str, list[str]] = {name: [] for name in NAMES}
        for delivery in self.city.received("s"):
            got[delivery.payload.split()[0]].append(delivery.payload)
        return got


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(("flood-subscriptions", "geographic")), SLOW, CALM)
def test_all_once_and_in_order(routing: str, slow: tuple[str, str], steps: list[tuple[str, str, int]]) -> None:
    tour = Tour(routing, slow)
    for kind, broker, number in steps:
        tour.step(kind, broker, number)
    assert tour.home() == tour.sent


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(("flood-subscriptions", "geographic")), SLOW, CALM, FAULTS)
def test_all_once_though_brokers_die_and_links_are_cut(
    routing: str, slow: tuple[str, str], steps: list[tuple[str, str, int]], faults: list[tuple[int, str, str]]
) -> None:
    tour = Tour(routing, slow)
    for place, (kind, broker, number) in enumerate(steps):
        for when, fault, where in faults:
            if when == place:
                tour.fault(fault, where)
        tour.step(kind, broker, number)
    assert {name: sorted(texts) for name, texts in tour.home().items()} == {
        name: sorted(texts) for name, texts in tour.sent.items()
    }


def test_a_session_that_moves_right_after_it_subscribed_brings_no_needless_copies() -> None:
    """Who has heard its old broker's announcement, which nobody can know yet, sends nothing again."""
    city = SimCity(grid_city("flood-subscriptions", count=3), lambda one, other: 0.002)
    city.start()
    city.connect("p", "b00", keeps=True)
    city.connect("s", "b11", keeps=True)
    city.run(0.1)
    city.client("s").subscribe("plain/#", 1)
    city.run(0.02)
    city.client("p").publish("plain/d", "m", 1)
    city.run(0.02)
    city.connect("s", "b22", keeps=True)
    city.settle()
    assert [delivery.payload for delivery in city.received("s")] == ["m"]
    host = city.brokers["b22"].host
    assert host is not None
    assert host.receiving.messages.get("b00", 0) == 0


def test_a_session_that_ended_while_it_came_keeps_no_later_one() -> None:
    """Its old broker begins the move again after a restart, by another number, and finds no place for it."""
    city = SimCity(grid_city("flood-subscriptions", count=3), lambda one, other: 0.002)
    city.start()
    city.connect("s", "b11", keeps=True)
    city.run(1.0)
    city.brokers["b22"].pause()  # so that the move is not complete
    city.connect("s", "b00", keeps=True)
    city.run(3.0)
    city.brokers["b11"].kill(power=True)
    client = city.client("s")
    client.connect("b00")
    core = client._core  # a clean start of a session that is to stay
    assert core is not None
    core.options = dataclasses.replace(core.options, session_expiry_s=3600)
    city.run(3.0)
    city.brokers["b11"].start()
    city.run(3.0)
    city.brokers["b22"].resume()
    city.settle()
    city.connect("s", "b22", keeps=True)
    city.settle()
    hubs = {name: broker.hub for name, broker in city.brokers.items()}
    assert [name for name, hub in hubs.items() if hub is not None and hub.sessions.get("s") is not None] == ["b22"]


def test_a_client_that_moved_gets_what_is_retained_each_time_that_it_subscribes() -> None:
    """Also what it has had when it was published [MQTT-3.3.1-9]."""
    city = SimCity(grid_city("flood-subscriptions", count=3), lambda one, other: 0.002)
    city.start()
    city.connect("p", "b00", keeps=True)
    city.connect("s", "b11", keeps=True)
    city.run(0.1)
    city.client("s").subscribe("plain/d", 2)
    city.run(0.1)
    city.connect("s", "b22", keeps=True)
    city.settle()
    city.client("p").publish("plain/d", "m", 1, retain=True)
    city.settle()
    city.client("s").subscribe("plain/d", 2)
    city.settle()
    assert [delivery.retain for delivery in city.received("s")] == [False, True]
