"""The two trees against linear scans with `matches`, and that they forget what is removed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.protocol.topics.names import matches
from metromq.protocol.topics.retained import RetainedTree
from metromq.protocol.topics.tree import FilterTree
from tests.protocol.topics.test_names import FILTERS, TOPICS

KEYS = st.integers(0, 2)
CHANGES = st.lists(st.tuples(st.booleans(), FILTERS, KEYS), max_size=25)
MESSAGES = st.lists(st.tuples(st.booleans(), TOPICS.filter(bool)), max_size=25)


@given(changes=CHANGES, topics=st.lists(TOPICS, max_size=8))
@settings(max_examples=200)
def test_filter_tree_against_a_linear_scan(changes: list[tuple[bool, str, int]], topics: list[str]) -> None:
    tree: FilterTree[int, int] = FilterTree()
    twin: dict[tuple[str, int], int] = {}
    for number, (insert, filter, key) in enumerate(changes):
        known = (filter, key) in twin
        if insert:
            assert tree.insert(filter, key, number) is not known
            twin[filter, key] = number
        else:
            assert tree.remove(filter, key) is known
            twin.pop((filter, key), None)
        assert len(tree) == len(twin)
        assert tree.get(filter, key) == twin.get((filter, key))
    assert sorted(tree.items()) == sorted((filter, key, number) for (filter, key), number in twin.items())
    for topic in topics:
        assert sorted(tree.match(topic)) == sorted(n for (filter, _), n in twin.items() if matches(filter, topic))


@given(changes=MESSAGES, filters=st.lists(FILTERS | TOPICS, max_size=8))
@settings(max_examples=200)
def test_retained_tree_against_a_linear_scan(changes: list[tuple[bool, str]], filters: list[str]) -> None:
    tree: RetainedTree[int] = RetainedTree()
    twin: dict[str, int] = {}
    for number, (keep, topic) in enumerate(changes):
        if keep:
            tree.set(topic, number)
            twin[topic] = number
        else:
            assert tree.remove(topic) is (twin.pop(topic, None) is not None)
        assert len(tree) == len(twin)
        assert tree.get(topic) == twin.get(topic)
    assert dict(tree.items()) == twin
    for filter in filters:
        assert sorted(tree.match(filter)) == sorted(n for topic, n in twin.items() if matches(filter, topic))


@pytest.mark.parametrize("filter", ["#", "a", "a/#", "+/b/#", "a/b/c", "/" * 5000, "/" * 5000 + "#"])
def test_removal_leaves_no_node_behind(filter: str) -> None:
    """Also for filters with more levels than the interpreter has stack."""
    tree: FilterTree[str, str] = FilterTree()
    tree.insert(filter, "key", "value")
    assert tree.nodes() == filter.count("/") + (0 if filter.endswith("#") else 1)
    assert not tree.remove(filter + "/x", "key")
    assert not tree.remove(filter, "other")
    assert tree.remove(filter, "key")
    assert tree.nodes() == 0
    assert len(tree) == 0


def test_removal_keeps_what_others_need() -> None:
    tree: FilterTree[int, str] = FilterTree()
    for filter in ("a", "a/b", "a/#", "a/b/c"):
        tree.insert(filter, 1, filter)
    assert tree.remove("a/b/c", 1)
    assert sorted(tree.match("a/b")) == ["a/#", "a/b"]
    assert tree.remove("a/b", 1)
    assert tree.nodes() == 1
    assert tree.remove("a", 1)
    assert tree.match("a") == ["a/#"]


@pytest.mark.parametrize("topic", ["a", "a/b/c", "/", "/" * 5000])
def test_retained_removal_leaves_no_node_behind(topic: str) -> None:
    tree: RetainedTree[int] = RetainedTree()
    tree.set(topic, 1)
    assert tree.nodes() == topic.count("/") + 1
    assert tree.match("#") == [1]
    assert tree.remove(topic)
    assert not tree.remove(topic)
    assert tree.nodes() == 0
