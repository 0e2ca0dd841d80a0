"""One copy of a message for each peer, whatever it is for."""

from metromq.federation.distribution import joined
from metromq.federation.hop import Hop
from metromq.federation.stages import FINAL


def test_copies_for_one_peer_are_joined() -> None:
    plain = Hop("b1", FINAL, shares=("$share/g/a",), limit=14)
    passed = Hop("b1", FINAL, True, ("b1", "b2"), ("$share/h/a",), limit=13, passed=True)
    other = Hop("b3", FINAL)
    both = Hop("b1", FINAL, True, ("b2",), ("$share/g/a", "$share/h/a"), limit=13, passed=True)
    assert joined([plain, other, passed]) == (both, other)


def test_a_peer_that_has_the_message_gets_it_for_members_only() -> None:
    hops = [Hop("b1", FINAL, True, ("b1",), (share,), passed=True) for share in ("$share/g/a", "$share/h/a")]
    assert joined(hops) == (Hop("b1", FINAL, True, ("b1",), ("$share/g/a", "$share/h/a"), passed=True),)
