"""Retained values of a city: the newest version wins everywhere, in whatever order it is heard, and deletions count."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.links.batch import SYNC, LinkMessage
from metromq.federation.stages import FINAL
from metromq.lab.sim.disk import Disk, DiskLog
from metromq.protocol.session import KIND_LINK, Hub, HubSettings, Message
from tests.federation.host.one_host import OneHost, from_peer

# (time, origin) is the version; an empty payload deletes.
VERSIONS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(("b1", "b2", "b3")), st.booleans()),
    unique_by=lambda version: version[:2],
    min_size=1,
    max_size=6,
)


def value(version: tuple[int, str, bool]) -> bytes:
    time, origin, is_set = version
    return f"{time} of {origin}".encode() if is_set else b""


@settings(max_examples=60, deadline=None)
@given(VERSIONS, st.permutations(range(6)), st.booleans(), st.sampled_from((None, 0, 2, 4)), st.booleans())
def test_the_newest_version_wins_in_any_order(
    versions: list[tuple[int, str, bool]], order: list[int], synced: bool, restart: int | None, with_snapshot: bool
) -> None:
    world = OneHost()
    world.subscribe("s", "t")
    heard = [versions[place % len(versions)] for place in order]  # some of them twice
    for number, version in enumerate(heard):
        message = from_peer("t", value(version), version[1], version[0], 1, True, version[0])
        world.batch("b1", [LinkMessage(message, FINAL, number + 1, SYNC if synced else 0)])
        if number == restart:
            world.restart(with_snapshot)
            world.city.connect("s", "b0", keeps=True)
    newest = max(heard)
    assert world.stored() == ({"t": value(newest)} if newest[2] else {})
    got = world.got("s")
    if newest[2] or not synced:
        assert got[-1].encode() == value(newest), "whoever subscribed has the newest value last, or its deletion"
    world.subscribe("later", "t")
    assert [text.encode() for text in world.got("later")] == ([value(newest)] if newest[2] else [])


def test_a_clients_value_is_newer_than_what_was_whatever_the_clocks_say() -> None:
    world = OneHost()
    ahead_us = 4_000_000_000_000_000
    world.batch("b1", [LinkMessage(from_peer("t", b"theirs", "b1", 1, 1, True, ahead_us), FINAL, 1)])
    world.city.connect("p", "b0")
    world.city.client("p").publish("t", "ours", 1, retain=True)
    world.city.run(0.5)
    assert world.stored() == {"t": b"ours"}
    world.city.client("p").publish("t", "", 1, retain=True)
    world.city.run(0.5)
    world.batch("b2", [LinkMessage(from_peer("t", b"theirs", "b1", 1, 1, True, ahead_us), FINAL, 1, SYNC)])
    assert world.stored() == {}, "the deleted value does not come back"


def test_a_deletion_outlives_a_restart() -> None:
    for with_snapshot in (False, True):
        world = OneHost()
        world.batch("b1", [LinkMessage(from_peer("t", b"", "b1", 1, 1, True, 9), FINAL, 1)])
        world.restart(with_snapshot)
        world.batch("b2", [LinkMessage(from_peer("t", b"old", "b2", 1, 1, True, 5), FINAL, 1, SYNC)])
        assert world.stored() == {}


def test_a_value_without_room_leaves_none_and_nothing_older_comes_back() -> None:
    """A peer has accepted it: it cannot be refused any more, and what it replaced must not be served."""
    world = OneHost()
    assert world.broker.hub is not None
    world.broker.hub.retained.limit_bytes = 1_000
    world.batch("b1", [LinkMessage(from_peer("t", b"first", "b1", 1, 1, True, 1), FINAL, 1)])
    world.subscribe("s", "t")
    world.batch("b1", [LinkMessage(from_peer("t", b"x" * 5_000, "b1", 2, 1, True, 2), FINAL, 2)])
    assert world.got("s") == ["first", "x" * 5_000]
    assert world.stored() == {}
    world.batch("b2", [LinkMessage(from_peer("t", b"first", "b1", 1, 1, True, 1), FINAL, 1, SYNC)])
    assert world.stored() == {}
    world.batch("b1", [LinkMessage(from_peer("t", b"third", "b1", 3, 1, True, 3), FINAL, 3)])
    assert world.stored() == {"t": b"third"}


def test_a_deletion_that_is_passed_on_stands_for_no_other_message() -> None:
    """Its number is not known any more: a made-up one is that of another message, which was taken for a copy of it."""
    for log in (None, DiskLog(Disk("1"))):
        hub = Hub(HubSettings(), log, "b0")
        deletion = Message("t", b"", 1, True, b"", 0, 5, "", KIND_LINK, "b1")
        assert hub.publishing.named_again(deletion).origin_offset == -1
    own = Hub(HubSettings(), None, "b0").publishing.named_again(Message("t", b"ours", 1))
    assert own.origin_offset >= 0, "without a journal our own get one when they first go to a peer"


def test_a_deletion_that_was_passed_on_first_comes_all_the_same() -> None:
    world = OneHost()
    world.subscribe("s", "t")
    world.batch("b1", [LinkMessage(from_peer("t", b"set", "b1", 0, 1, True, 5), FINAL, 1)])
    world.batch("b2", [LinkMessage(from_peer("t", b"", "b1", -1, 1, True, 7), FINAL, 1, SYNC)])
    world.batch("b1", [LinkMessage(from_peer("t", b"", "b1", 1, 1, True, 7), FINAL, 2)])
    assert world.got("s") == ["set", ""]
