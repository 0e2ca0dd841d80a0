"""What leaves for peers: only what can reach them, with the time where they read it, and counted."""

from metromq.federation.city import grid_city
from metromq.federation.effects import Effect, RoutesChanged, Send
from metromq.federation.links.frames import Announcement, ClientAnswer, ClientMoved, Frame, Interest, InterestRequest
from metromq.federation.links.versions import ANEW_SINCE, SAID_SINCE
from metromq.federation.node import Node
from metromq.federation.outgoing_frames import OutgoingFrames

INTEREST = Interest(False, (Announcement("a", 1, 0), Announcement("b", 1, 0)), ())


def parts() -> tuple[Node, OutgoingFrames]:
    """Of a broker that reaches b10 only."""
    node = Node(grid_city(count=4), "b00", 1, 0)
    node.up.opened("b10")
    return node, OutgoingFrames(node.up, node.greetings, node.counters, lambda: 77)


def test_frames_to_peers_out_of_reach_are_left_out_and_other_effects_stay() -> None:
    node, outgoing = parts()
    effects: list[Effect] = [Send("b10", InterestRequest()), RoutesChanged(("#",)), Send("b01", InterestRequest())]
    assert outgoing.counted(effects) == effects[:2]
    assert node.counters.frames_out == 1


def test_a_member_that_has_left_gets_the_last_frames_and_no_more() -> None:
    _, outgoing = parts()
    last = Send("b01", InterestRequest())
    outgoing.parts("b01")
    assert outgoing.counted([last]) == [last]
    assert outgoing.counted([last]) == []


def test_who_reads_it_is_told_when_something_was_announced() -> None:
    node, outgoing = parts()
    for version, said_us in ((SAID_SINCE - 1, 0), (SAID_SINCE, 77)):
        node.greetings.versions.spoken["b10"] = version
        (sent,) = outgoing.counted([Send("b10", INTEREST)])
        assert isinstance(sent, Send)
        assert isinstance(sent.frame, Interest)
        assert (sent.frame.said_us, sent.frame.wanted) == (said_us, INTEREST.wanted)
    assert node.counters.interest_out == 4


def test_who_reads_it_is_told_when_a_client_began_anew() -> None:
    node, outgoing = parts()
    frames: list[tuple[Frame, Frame]] = [
        (ClientMoved("c", 5, "b01", True), ClientMoved("c", 5, "b01", True, clean_us=5)),
        (ClientAnswer("c", 5, "b01"), ClientAnswer("c", 5, "b01", clean_us=5, since_us=4)),
    ]
    for before, since in frames:
        for version, expected in ((ANEW_SINCE - 1, before), (ANEW_SINCE, since)):
            node.greetings.versions.spoken["b10"] = version
            assert outgoing.counted([Send("b10", since)]) == [Send("b10", expected)]
