"""Routes against a linear scan over all subscriptions, while these come and go, and what is remembered of topics."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.protocol.session.paths import FEW_NAMES
from metromq.protocol.session.route import Route, route_to
from metromq.protocol.session.routes import RECENT_BYTES, RouteTable
from metromq.protocol.session.session import Grant, Session
from metromq.protocol.topics.names import matches
from tests.protocol.topics.test_names import FILTERS, TOPICS

CLIENTS = ("x", "y", "z")
SHARES = ("", "", "", "g", "h")
CHANGES = st.tuples(st.booleans(), st.sampled_from(CLIENTS), FILTERS | TOPICS.filter(bool), st.sampled_from(SHARES))
STEPS = st.lists(CHANGES | TOPICS.filter(bool), max_size=40)
Subscriptions = dict[tuple[str, str, str], Grant]  # by client, filter and share


class Table:
    """A route table and its slow twin."""

    def __init__(self) -> None:
        self.routes = RouteTable()
        self.sessions = {name: Session(number, name) for number, name in enumerate(CLIENTS)}
        self.twin: Subscriptions = {}

    def change(self, subscribes: bool, client: str, filter: str, share: str = "", identifier: int = 0) -> None:
        key = (client, filter, share)
        full_filter = f"$share/{share}/{filter}" if share else filter
        session = self.sessions[client]
        if subscribes:
            grant = session.grant(share, 0, False, False, 0, identifier)
            assert self.routes.add(full_filter, grant) is (key not in self.twin)
            self.twin[key] = grant
        else:
            assert (self.routes.remove(session, full_filter) is not None) is (key in self.twin)
            self.twin.pop(key, None)
        same = [one for one in self.twin if one[1:] == (filter, share)]
        assert self.routes.subscriptions(filter, share) == len(same)
        assert self.routes.count == len(self.twin)

    def check(self, topic: str) -> None:
        self.check_packet(topic)  # while what other topics have left behind decides
        self.check_route(topic, self.routes.find(topic.encode()))
        self.check_packet(topic)

    def check_packet(self, topic: str) -> None:
        if not topic.startswith("$"):
            data = b"\0" + topic.encode() + b"+"
            route = self.routes.of_packet(data, 1, len(data) - 1)
            if route is not None:
                self.check_route(topic, route)

    def check_route(self, topic: str, route: Route) -> None:
        found = {key for key in self.twin if matches(key[1], topic)}
        assert sorted(t.session.client_id for t in route.targets) == sorted({c for c, _, share in found if not share})
        assert sorted((g.name, g.filter) for g in route.groups) == sorted({(s, f) for _, f, s in found if s})
        for target in route.targets:
            subscribed = [key for key in found if key[0] == target.session.client_id and not key[2]]
            assert len(target.grants) == len(subscribed)


@given(steps=STEPS)
@settings(max_examples=400)
def test_routes_against_a_linear_scan(steps: list[tuple[bool, str, str, str] | str]) -> None:
    table = Table()
    for step in steps:
        if isinstance(step, str):
            table.check(step)
        else:
            table.change(*step)
    for step in steps:
        table.check(step if isinstance(step, str) else step[2].replace("+", "a").replace("#", "b"))


@given(filters=st.lists(FILTERS, min_size=1, max_size=6), topics=st.lists(TOPICS.filter(bool), min_size=1, max_size=4))
@settings(max_examples=200)
def test_paths_follow_every_coming_and_going(filters: list[str], topics: list[str]) -> None:
    """Each topic is asked for between any two changes, so that there is always something to forget."""
    table = Table()
    for subscribes in (True, False, True):
        for number, filter in enumerate(filters):
            table.change(subscribes, CLIENTS[number % 3], filter)
            for topic in topics:
                table.check(topic)


@given(filters=st.lists(FILTERS, min_size=1, max_size=4), topics=st.lists(TOPICS.filter(bool), min_size=2, max_size=8))
@settings(max_examples=200)
def test_the_bytes_that_decide_a_route_do_so_for_other_topics(filters: list[str], topics: list[str]) -> None:
    table = Table()
    for number, filter in enumerate(filters):
        table.change(True, CLIENTS[number % 3], filter)
    names = [topic.encode() for topic in topics if not topic.startswith("$")]
    for topic in names:
        route = table.routes.find(topic)
        size = table.routes.deciding_bytes(b"+" + topic, 1, 1 + len(topic), route)
        for other in names:
            if other[:size] == topic[:size] and len(other) == len(topic):
                table.check_route(other.decode(), route)


def test_topics_of_one_receiver_share_a_route() -> None:
    table = Table()
    table.change(True, "x", "city/#")
    table.change(True, "y", "a/1")
    table.change(True, "y", "a/2")
    routes = table.routes
    assert routes.find(b"city/1/2") is routes.find(b"city/3")
    assert routes.find(b"a/1") is routes.find(b"a/2")
    assert routes.find(b"a/3") is routes.find(b"b")


def test_bytes_that_are_no_topic_need_a_closer_look() -> None:
    routes = RouteTable(max_topic_levels=8)
    for topic in (b"a/+", b"#", b"a\0", b"\xff", b"a/" * 20, b"a" * 1000):
        assert routes.of_packet(topic, 0, len(topic)) is None
    assert routes.of_packet(b"a/b", 0, 3) is not None


@pytest.mark.parametrize(("length", "count"), [(20, 200_000), (60_000, 2_000)])
def test_what_is_remembered_of_topics_is_bounded_in_bytes(length: int, count: int) -> None:
    table = Table()
    table.change(True, "x", "#")
    tracemalloc.start()
    try:
        for number in range(count):
            table.routes.find(f"{number:06}/".encode().ljust(length, b"x"))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1.5 * RECENT_BYTES


def test_topics_that_come_often_are_remembered_among_many_that_do_not() -> None:
    table = Table()
    table.change(True, "x", "#")
    for number in range(100_000):
        table.routes.find(f"once/{number}".encode())
        table.routes.find(f"often/{number % 7}".encode())
    assert all(f"often/{number}".encode() in table.routes.recent.young for number in range(7))


def test_topics_that_begin_alike_are_told_apart_by_what_follows() -> None:
    table = Table()
    table.change(True, "x", "city/1/#")
    table.change(True, "y", "city/1/named")
    for topic in (b"city/1/a", b"city/1/b", b"city/1/named", b"city/1/", b"city/1", b"city/2/a", b"city/1/a/b"):
        route = table.routes.of_packet(topic, 0, len(topic))
        assert route is not None
        table.check_route(topic.decode(), route)
    for topic in (b"city/1/+", b"city/1/a#", b"city/1/\0", b"city/1/\xff", b"city/1/" + b"a" * 100):
        assert table.routes.of_packet(topic, 0, len(topic)) is None


def test_a_stem_with_few_names_behind_it_tells_them_from_all_others() -> None:
    table = Table()
    table.change(True, "x", "city/1/#")
    table.change(True, "y", "+/+/named")
    table.change(True, "z", "+/+/")
    assert table.routes.of_packet(b"city/1/a", 0, 8) is table.routes.find(b"city/1/b")
    for topic in (b"city/1/c", b"city/1/named", b"city/1/other", b"city/1/", b"city/1", b"city/2/a", b"city/1/a/b"):
        table.routes.build("city/1/a")
        assert table.routes._paths.stem == b"city/1/"
        table.check_packet(topic.decode())
        size = table.routes.deciding_bytes(topic, 0, len(topic), table.routes.find(topic))
        assert size == (9 if topic == b"city/1/a/b" else len(topic))  # what follows the stem must be looked at, too
    for topic in (b"city/1/+", b"city/1/a#", b"city/1/\0", b"city/1/\xff", b"city/1/" + b"a" * 100):
        table.routes.build("city/1/a")
        assert table.routes.of_packet(topic, 0, len(topic)) is None


def test_a_stem_comes_back_when_all_topics_are_remembered() -> None:
    """While a wildcard subscription comes and goes: what is remembered of topics must not hide what they share."""
    table = Table()
    table.change(True, "x", "city/#")
    topics = [f"city/{number}".encode() for number in range(50)]
    for _ in range(100):
        for topic in topics:
            table.routes.find(topic)
    assert all(topic in table.routes.recent.young for topic in topics)
    for subscribes in (True, False, True, False):
        table.change(subscribes, "y", "+/nowhere")
        assert table.routes._paths.stem_junction is None
        for topic in topics[:8]:
            table.check_packet(topic.decode())
        assert table.routes._paths.stem == b"city/"
        assert table.routes._paths.stem_junction is not None


def test_many_names_behind_a_stem_are_not_looked_through() -> None:
    table = Table()
    for number in range(20):
        table.change(True, "y", f"+/{number}")
        table.routes.build("city/a")
        assert (table.routes._paths.stem_junction is not None) is (number < FEW_NAMES)
        for topic in ("city/b", "city/0", f"city/{number}", f"city/{number + 1}"):
            table.check_packet(topic)


def test_a_wildcard_subscription_leaves_what_it_does_not_match() -> None:
    table = Table()
    table.change(True, "x", "+/+")
    for _ in range(100):
        table.routes.find(b"a/b")
        table.routes.find(b"c/d")
    table.change(True, "y", "a/+")
    assert b"a/b" not in table.routes.recent.young
    assert b"c/d" in table.routes.recent.young
    table.check("a/b")
    table.check("c/d")


def test_routes_to_the_same_receivers_stay_the_same() -> None:
    """While a subscription of another client comes and goes: packets of one route leave in one piece."""
    table = Table()
    table.change(True, "x", "a/#")
    route = table.routes.find(b"a/1")
    for _ in range(3):
        table.change(True, "y", "+/+/nowhere")
        assert table.routes.find(b"a/2") is route
        table.change(False, "y", "+/+/nowhere")
        assert table.routes.find(b"a/3") is route
    table.change(False, "x", "a/#")
    table.change(True, "x", "a/#")
    assert table.routes.find(b"a/4") is not route


def test_routes_lead_alike_by_their_receivers() -> None:
    one, other, third = Table(), Table(), Table()
    one.change(True, "x", "#")
    route = one.routes.find(b"a")
    assert route.leads_like(route_to(route.targets[0].grants))
    other.change(True, "x", "#")
    assert not route.leads_like(other.routes.find(b"a"))  # of another session
    assert not third.routes.find(b"a").leads_like(third.routes.find(b"b"))  # to nobody
    peers = route_to(route.targets[0].grants)
    peers.copies = None
    assert not peers.leads_like(route)
    assert not route.leads_like(peers)
