"""The index of filters against a linear scan, and the interest of peers with its digests."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.interest import FilterIndex, PeerInterest

NAMES = st.sampled_from(["a", "b", "1", ""])
TOPICS = st.lists(NAMES, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(["a", "b", "1", "+", ""]), min_size=0, max_size=3))
    if not names or draw(st.booleans()):
        names.append("#")
    return "/".join(names) or "a"


def matches(topic_filter: str, topic: str) -> bool:
    wanted, names = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, name in enumerate(wanted):
        if name == "#":
            return True
        if position >= len(names) or name not in ("+", names[position]):
            return False
    return len(wanted) == len(names)


@given(st.lists(filters(), max_size=20), st.lists(filters(), max_size=8), TOPICS)
@settings(deadline=None, max_examples=200)
def test_matching_equals_a_linear_scan(added: list[str], removed: list[str], topic: str) -> None:
    index = FilterIndex()
    for text in added:
        index.put(text, 1)
    for text in removed:
        index.put(text, 0)
    left = set(added) - set(removed)
    assert sorted(index.matching(topic)) == sorted(text for text in left if matches(text, topic))
    assert len(index) == len(left)


def test_wildcards_do_not_reach_server_topics() -> None:
    index = FilterIndex()
    for text in ("#", "+/uptime", "$SYS/#"):
        index.put(text, 1)
    assert index.matching("$SYS/uptime") == ["$SYS/#"]


PEERS = ("b1", "b2", "b3")
CHANGES = st.lists(
    st.tuples(st.sampled_from(PEERS), st.sampled_from(["a", "a/#", "$share/g/a", "$share/h/a"]), st.integers(0, 3))
)


@given(CHANGES, CHANGES)
@settings(deadline=None, max_examples=200)
def test_the_same_interest_has_the_same_digest(
    changes: list[tuple[str, str, int]], others: list[tuple[str, str, int]]
) -> None:
    one, other = PeerInterest(), PeerInterest()
    for change in (*others, *changes):
        one.set(*change)
    final = {(peer, text): members for peer, text, members in (*others, *changes)}
    for (peer, text), members in final.items():
        other.set(peer, text, members)
    for peer in PEERS:
        assert one.digest(peer) == other.digest(peer)
        assert {(a.topic_filter, a.members) for a in one.filters_of(peer)} == {
            (a.topic_filter, a.members) for a in other.filters_of(peer)
        }
    plain = {peer for (peer, text), members in final.items() if members and not text.startswith("$share")}
    assert set(one.peers_for("a")) == plain
    shares = {text for (_, text), members in final.items() if members and text.startswith("$share")}
    assert set(one.shares_for("a")) == shares
