"""What is delegated to whom by each policy, what crosses between brokers by hand, and topics that do not flap."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metromq.control.core import (
    Counts,
    Device,
    Hysteresis,
    LoopSettings,
    NotPossible,
    Patience,
    PolicyName,
    Scene,
    ServiceSpec,
    Statistics,
    Supervision,
    Surroundings,
    delegation_problem,
    messages_between,
    place_entry,
    propose,
    units_of,
)

DEVICES = (Device("d1", "b1"), Device("d2", "b2"))


def pub(rate: float) -> Counts:
    return Counts(rate, rate * 100, publishers=1)


def sub(rate: float, count: int = 1) -> Counts:
    return Counts(subscribers=count, deliveries=rate, delivered_bytes=rate * 100)


def both(rate: float) -> Counts:
    return Counts(rate, rate * 100, 1, 1, rate, rate * 100)


@pytest.mark.parametrize(
    ("rows", "owner", "crossing"),
    [
        ({"b1": both(10)}, "", 10),  # up to the central broker, for nobody
        ({"b1": both(10)}, "b1", 0),
        ({"b1": both(10)}, "b2", 10),
        ({"b1": pub(10), "b2": sub(10)}, "", 20),  # up, and down
        ({"b1": pub(10), "b2": sub(10)}, "b1", 20),
        ({"b1": pub(10), "b2": sub(10)}, "b2", 10),
        ({"b1": pub(10), "c": sub(10)}, "b2", 20),  # to the owner, and on to the central broker
        ({"b1": pub(10), "c": sub(10), "b3": sub(10)}, "b1", 20),
        ({"c": pub(10), "b1": sub(10)}, "b1", 10),
        ({"c": pub(10), "b1": sub(10), "b2": sub(10)}, "b1", 30),
    ],
)
def test_what_crosses_between_brokers(rows: dict[str, Counts], owner: str, crossing: float) -> None:
    assert messages_between({"t": rows}, owner, "c") == crossing


def scene(rows: dict[str, dict[str, Counts]], present: dict[str, str] | None = None) -> tuple[Scene, Statistics]:
    units = units_of(rows, present or {}, (), 2)
    held = {unit: {topic: rows[topic] for topic in topics} for unit, topics in units.items()}
    return Scene("c", DEVICES, held, present or {}, {}), Statistics(rows, 60.0, "a test")


def proposed(rows: dict[str, dict[str, Counts]], policy: PolicyName, **present: str) -> dict[str, str]:
    before = {name.replace("__", "/") + "/#": broker for name, broker in present.items()}
    return dict(propose(*scene(rows, before), LoopSettings(policy), lambda: 0.0).filters)


LOCAL = {"air/north/1": {"b1": both(10)}}
SILENT = {"air/south/1": {"b2": pub(10)}}
INCOMING = {"news/city/1": {"c": pub(10), "b1": sub(20, 2)}}
OUTGOING = {"meter/north/1": {"b1": pub(10), "c": sub(10)}}


def test_policies_contain_each_other() -> None:
    rows = LOCAL | SILENT | INCOMING | OUTGOING
    assert proposed(rows, "LP") == {"air/north/#": "b1"}
    assert proposed(rows, "NS") == {"air/north/#": "b1", "air/south/#": "b2"}
    assert proposed(rows, "EP") == {"air/north/#": "b1", "air/south/#": "b2", "news/city/#": "b1"}


def test_auto_delegates_what_saves_messages_between_brokers_and_nothing_else() -> None:
    assert proposed(LOCAL | SILENT | OUTGOING, "auto") == {"air/north/#": "b1", "air/south/#": "b2"}


def test_auto_follows_traffic_that_has_moved_and_returns_what_has_gone() -> None:
    assert proposed({"air/north/1": {"b2": both(50)}}, "auto", air__north="b1") == {"air/north/#": "b2"}
    assert proposed({}, "auto", air__north="b1") == {}


def test_a_filter_does_not_follow_clients_whom_their_own_broker_serves() -> None:
    """Most bytes are at b2, and its clients have them from there anyway: it is the service at b1 that needs them."""
    rows = {"noise/1": {"b2": Counts(100, 10_000, 1, 3, 300, 30_000), "b1": sub(100)}}
    for pinned, stays in (("d1", True), ("", False)):
        spec = ServiceSpec("noise", ("noise/#",), ("run",), device=pinned)
        before = Scene("c", DEVICES, {"noise/#": rows}, {"noise/#": "b1"}, {"noise": (spec, "d1")})
        found = propose(before, Statistics(rows, 60.0, "a test"), LoopSettings("auto"), lambda: 0.0)
        assert (found.filters, found.services) == (
            ({"noise/#": "b1"}, {"noise": "d1"}) if stays else ({"noise/#": "b2"}, {"noise": "d2"})
        )


COUNTS = st.builds(
    lambda out, into: Counts(out, out * 100, int(out > 0), int(into > 0), into, into * 100),
    st.sampled_from([0.0, 1.0, 50.0]),
    st.sampled_from([0.0, 1.0, 50.0, 200.0]),
)
ROWS = st.dictionaries(st.sampled_from(["b1", "b2", "c", "b9"]), COUNTS, max_size=4)


@given(
    st.dictionaries(st.sampled_from(["a/x/1", "a/x/2", "a/y/1", "b/x/1"]), ROWS, max_size=4),
    st.dictionaries(st.sampled_from(["a__x", "a__y", "b__x"]), st.sampled_from(["b1", "b2"]), max_size=3),
)
@example({"a/x/1": {"b2": Counts(50, 5000, 1, 1, 200, 20_000), "b1": Counts(0, 0, 0, 1, 50, 5000)}}, {"a__x": "b1"})
def test_auto_never_makes_more_messages_between_brokers(
    rows: dict[str, dict[str, Counts]], present: dict[str, str]
) -> None:
    before = {name.replace("__", "/") + "/#": broker for name, broker in present.items()}
    found = propose(*scene(rows, before), LoopSettings("auto"), lambda: 0.0)
    assert found.crossing_then <= found.crossing_now


def test_units_are_services_filters_and_first_levels_and_leave_peoples_filters_alone() -> None:
    topics = ["a/b/1", "a/b/2", "noise/1/level", "mine/x/1", "$SYS/x", "short"]
    units = units_of(topics, ["noise/+/level"], ["mine/#"], 2)
    assert units == {"noise/+/level": ["noise/1/level"], "a/b/#": ["a/b/1", "a/b/2"], "short": ["short"]}
    assert units_of(["noise/1/other"], ["noise/+/level"], [], 2) == {"noise/+/level": []}, "they would cross"


def test_a_service_goes_beside_its_topics_and_not_where_there_is_no_room() -> None:
    rows = {"noise/1": {"b2": Counts(1000, 1_250_000, 1)}}  # 10 Mbps
    spec = ServiceSpec("noise", ("noise/#",), ("run",))
    around = Surroundings("c", {d.name: d for d in DEVICES}, {}, statistics=Statistics(rows, 60.0, "a test"))
    placed, _ = place_entry(spec, around, lambda: 0.0)
    assert (placed.topics, placed.services) == ({"noise/#": "d2"}, {"noise": "d2"})
    small = {"d1": Device("d1", "b1", 50), "d2": Device("d2", "b2", 50)}
    with pytest.raises(NotPossible, match="cannot carry"):
        place_entry(spec, Surroundings("c", small, {}, statistics=around.statistics), lambda: 0.0)
    pinned = ServiceSpec("noise", ("noise/#",), ("run",), device="d1")
    with pytest.raises(NotPossible, match="cannot carry"):
        place_entry(pinned, Surroundings("c", small, {}, statistics=around.statistics), lambda: 0.0)
    with pytest.raises(NotPossible, match="no device"):
        place_entry(spec, Surroundings("c", {}, {}), lambda: 0.0)


def test_filters_that_cross_are_refused() -> None:
    assert "neither lies within" in delegation_problem("+/b", ["a/+"])
    assert not delegation_problem("a/b", ["a/+"])
    assert delegation_problem("$SYS/#", [])
    assert delegation_problem("a/#/b", [])


def test_a_wish_must_last_and_what_has_moved_stays() -> None:
    patient = Hysteresis(Patience(looks=3, dwell_s=100))
    wish = {"t": "b2"}
    assert [patient.settle({"t": "b1"}, wish, {}, now) for now in (0.0, 1.0)] == [{}, {}]
    assert patient.waiting() == {"t": ("b2", 2)}
    assert patient.settle({"t": "b1"}, wish, {}, 2.0) == wish
    assert patient.settle({"t": "b1"}, wish, {"t": 1.0}, 3.0) == {}, "it has just moved"
    assert patient.settle({"t": "b1"}, wish, {"t": 1.0}, 101.0) == wish
    assert patient.settle({"t": "b1"}, {}, {}, 0.0) == {}, "to go back must last too"


@given(st.lists(st.sampled_from(["", "b1", "b2"]), max_size=60), st.integers(1, 4), st.integers(0, 20))
def test_nothing_moves_more_often_than_patience_allows(wishes: list[str], looks: int, dwell_s: int) -> None:
    patient = Hysteresis(Patience(looks, dwell_s))
    present, moved, moves = dict[str, str](), dict[str, float](), list[int]()
    for now, wish in enumerate(wishes):
        allowed = patient.settle(present, {"t": wish} if wish else {}, moved, float(now))
        for name, to in allowed.items():
            assert wishes[now - looks + 1 : now + 1] == [wish] * looks
            present, moved = ({name: to} if to else {}), {name: float(now)}
            moves.append(now)
    assert all(later - earlier >= dwell_s for earlier, later in itertools.pairwise(moves))


def test_what_dies_is_started_again_later_each_time() -> None:
    watch = Supervision()
    assert watch.look(["a"], ["a"], 0.0) == []
    starts = []
    for tenth in range(1, 300):
        if watch.look(["a"], [], tenth / 10):
            starts.append(tenth / 10)
    assert [round(later - earlier, 1) for earlier, later in itertools.pairwise(starts)][:3] == [
        1.1,
        2.1,
        4.1,
    ]
    assert watch.look([], [], 50.0) == []
