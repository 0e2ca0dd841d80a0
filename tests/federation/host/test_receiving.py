"""What peers send is taken once, whoever brings it, however often, and across restarts."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.links.batch import CHECK, LinkMessage
from metromq.federation.links.frames import Announcement, Interest
from metromq.federation.stages import FINAL, HANDOVER, OWNER
from tests.federation.host.one_host import OneHost, from_peer

COUNT = 6


def entry(peer: str, number: int, flags: int = CHECK) -> LinkMessage:
    """Message `number` of b3, as `peer` sends it: the same message, at another place of another journal."""
    sequence = 100 * ("b1", "b2").index(peer) + 2 * number
    return LinkMessage(from_peer("t", b"%d" % number, "b3", number), FINAL, sequence + 1, flags)


# Each peer sends its messages in order; after a break it goes on further back.
SENDING = st.lists(st.tuples(st.sampled_from(("b1", "b2")), st.integers(0, COUNT), st.integers(1, COUNT)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(SENDING, st.lists(st.integers(0, 8), max_size=2), st.booleans())
def test_each_message_comes_once_by_whatever_way(
    sending: list[tuple[str, int, int]], restarts: list[int], with_snapshot: bool
) -> None:
    world = OneHost()
    world.subscribe("s", "t")
    position = {"b1": 0, "b2": 0}
    for step, (peer, back, count) in enumerate(sending):
        first = max(position[peer] - back, 0)
        last = min(first + count, COUNT)
        world.batch(peer, [entry(peer, number) for number in range(first, last)])
        position[peer] = max(position[peer], last)
        if step in restarts:
            world.restart(with_snapshot)
            world.city.connect("s", "b0", keeps=True)
    came = world.got("s")
    assert sorted(came) == [str(number) for number in range(max(position.values()))]


def test_without_the_memory_of_numbers_it_would_come_twice() -> None:
    """The messages of the test above are doubles only by their origin: as other messages they all come."""
    world = OneHost()
    world.subscribe("s", "t")
    for peer in ("b1", "b2"):
        world.batch(peer, [LinkMessage(from_peer("t", b"x", peer, 1), FINAL, 1, CHECK)])
    assert world.got("s") == ["x", "x"]


def test_a_message_for_others_is_not_given_to_those_who_were_served() -> None:
    """`served` names brokers that have it or get it from somebody else."""
    world = OneHost()
    world.subscribe("s", "t")
    served = LinkMessage(from_peer("t", b"had", "b3", 1), FINAL, 1, 0, served=("b0",))
    world.batch("b1", [served, LinkMessage(from_peer("t", b"new", "b3", 2), FINAL, 2)])
    assert world.got("s") == ["new"]


def test_a_share_is_served_where_the_slip_says_so() -> None:
    world = OneHost()
    world.subscribe("m", "$share/g/t")
    share = "$share/g/t"
    chosen = LinkMessage(from_peer("t", b"ours", "b3", 1), FINAL, 1, 0, served=("b0",), shares=(share,))
    world.batch("b1", [chosen, LinkMessage(from_peer("t", b"theirs", "b3", 2), FINAL, 2)])
    assert world.got("m") == ["ours"]


def test_what_an_owner_gets_it_distributes() -> None:
    world = OneHost("geographic")
    world.subscribe("s", "0/t")
    world.batch("b1", [LinkMessage(from_peer("0/t", b"x", "b1", 1), OWNER, 1)])
    assert world.got("s") == ["x"]
    assert [copy.backlog.peer for copy in world.host.answers.copier().copies(from_peer("1/t", b"", "", -1))] == ["b1"]


def test_a_home_and_its_stand_in_may_choose_each_others_members_at_once() -> None:
    """What the home was handed had no mark, what it sends back has one: of the two choices one must count, once."""
    world = OneHost("geographic")
    share = "$share/g/0/t"
    world.host.node.exchange.interest.apply("b1", Interest(False, (Announcement(share, 1, 0),), ()))
    message = from_peer("0/t", b"x", "b2", 1)
    world.batch("b1", [LinkMessage(message, HANDOVER, 1, 0, served=("b1", "b2"))])
    world.subscribe("m", share)
    for sequence in (2, 3):
        again = from_peer("0/t", b"x", "b2", 1)
        world.batch("b1", [LinkMessage(again, FINAL, sequence, CHECK, served=("b0",), shares=(share,))])
    assert world.got("m") == ["x"]
