"""Prefixes in place of many filters: which are chosen, and that nothing that is wanted falls outside of them."""

from hypothesis import given
from hypothesis import strategies as st

from metromq.federation.summaries import summarise, summary_of, wider
from metromq.protocol.topics import matches

NAMES = st.sampled_from(["a", "b", "c", ""])
TOPICS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
FILTERS = st.tuples(st.lists(st.sampled_from(["a", "b", "c", "", "+"]), min_size=1, max_size=4), st.booleans()).map(
    lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])])
)


def test_the_longest_prefixes_with_too_many_filters_are_chosen() -> None:
    assert summarise([f"a/{number}" for number in range(3)], 3, frozenset()) == frozenset()
    assert summarise([f"a/{number}/x" for number in range(4)] + ["b/x"], 3, frozenset()) == {"a/#"}
    two = [f"a/{place}/{number}" for place in "12" for number in range(4)]
    assert summarise(two, 3, frozenset()) == {"a/1/#", "a/2/#"}
    four = [f"a/{place}/{number}" for place in "1234" for number in range(4)]
    assert summarise(four, 3, frozenset()) == {"a/#"}, "four prefixes below one are too many themselves"


def test_what_has_no_prefix_stays() -> None:
    assert summarise(["#", "+/a", "+/b", "a", "b", "c", "$SYS/a", "$SYS/b", "$SYS/c"], 1, frozenset()) == frozenset()


def test_one_is_given_up_when_half_as_many_are_left() -> None:
    filters = [f"a/{number}" for number in range(10)]
    assert summarise(filters[:3], 4, {"a/#"}) == {"a/#"}
    assert summarise(filters[:2], 4, {"a/#"}) == frozenset()
    assert summarise(filters[:3], 4, frozenset()) == frozenset()


@given(st.lists(FILTERS, unique=True, max_size=40), st.integers(1, 5))
def test_at_most_so_many_are_left_below_each_prefix_and_each_is_below_its_summary(
    filters: list[str], most: int
) -> None:
    found = summarise(filters, most, frozenset())
    left = {summary_of(text, found) or text for text in filters}
    for prefix in {prefix for text in filters for prefix in wider(text)} - {"#"}:
        below = [text for text in left if text != prefix[:-2] and prefix in wider(text) and text not in found]
        assert len(below) <= most or prefix in found
    assert found <= left, "each stands for something"


@given(FILTERS, TOPICS)
def test_a_wider_filter_matches_all_that_the_filter_does(topic_filter: str, topic: str) -> None:
    for text in wider(topic_filter):
        assert matches(text, topic) or not matches(topic_filter, topic)
