"""Topic names and filters: the examples of section 4.7, shared subscriptions, and matching against a slow twin."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import ProtocolViolation
from metromq.protocol.reasons import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID
from metromq.protocol.topics.names import matches, split_shared, validate_filter, validate_topic

LEVELS = st.sampled_from(["", "a", "b", "$a"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.builds(
    lambda levels, end: "/".join(levels + end),
    st.lists(st.one_of(LEVELS, st.just("+")), max_size=4),
    st.sampled_from([["#"], ["a"], ["+"]]),
)


@pytest.mark.parametrize("name", ["a", "/", "a/b", " ", "$SYS/x", "/finance", "ä/ö", "a" * 65535, "A//B"])
def test_valid_topic_names(name: str) -> None:
    validate_topic(name)


@pytest.mark.parametrize(
    ("name", "clause"),
    [
        ("", "4.7.3-1"),
        ("a/+", "4.7.0-1"),
        ("#", "4.7.0-1"),
        ("a+b", "4.7.0-1"),
        ("a\0", "4.7.3-2"),
        ("a" * 65536, "4.7.3-3"),
        ("ä" * 32768, "4.7.3-3"),
        ("\ud800" * 20000, "4.7.3-3"),
    ],
)
def test_invalid_topic_names(name: str, clause: str) -> None:
    with pytest.raises(ProtocolViolation, match=re.escape(f"[MQTT-{clause}]")) as caught:
        validate_topic(name)
    assert caught.value.reason_code == TOPIC_NAME_INVALID


@pytest.mark.parametrize(
    "filter", ["#", "+", "/", "a/#", "+/+", "/+", "+/", "a/+/b/#", "$SYS/#", "a//+", "sport/tennis/#"]
)
def test_valid_filters(filter: str) -> None:
    validate_filter(filter)


@pytest.mark.parametrize(
    ("filter", "clause"),
    [
        ("", "4.7.3-1"),
        ("a\0", "4.7.3-2"),
        ("a" * 65536, "4.7.3-3"),
        ("sport/tennis#", "4.7.1-1"),
        ("sport/tennis/#/ranking", "4.7.1-1"),
        ("##", "4.7.1-1"),
        ("#/", "4.7.1-1"),
        ("sport+", "4.7.1-2"),
        ("++", "4.7.1-2"),
        ("a/+b/c", "4.7.1-2"),
        ("+#", "4.7.1-1"),
    ],
)
def test_invalid_filters(filter: str, clause: str) -> None:
    with pytest.raises(ProtocolViolation, match=re.escape(f"[MQTT-{clause}]")) as caught:
        validate_filter(filter)
    assert caught.value.reason_code == TOPIC_FILTER_INVALID


@pytest.mark.parametrize(
    ("filter", "group", "rest"),
    [
        ("a/b", "", "a/b"),
        ("$shared/g/a", "", "$shared/g/a"),
        ("x/$share/g/a", "", "x/$share/g/a"),
        ("$share/g/a/#", "g", "a/#"),
        ("$share/g/+", "g", "+"),
        ("$share/g//", "g", "/"),
        ("$share/g h/$SYS/#", "g h", "$SYS/#"),
    ],
)
def test_shared_filters(filter: str, group: str, rest: str) -> None:
    assert split_shared(filter) == (group, rest)


@pytest.mark.parametrize(
    ("filter", "clause"),
    [
        ("$share", "4.8.2-1"),
        ("$share/", "4.8.2-2"),
        ("$share//a", "4.8.2-1"),
        ("$share/g", "4.8.2-2"),
        ("$share/g/", "4.8.2-2"),
        ("$share/g+/a", "4.8.2-2"),
        ("$share/+/a", "4.8.2-2"),
    ],
)
def test_invalid_shared_filters(filter: str, clause: str) -> None:
    with pytest.raises(ProtocolViolation, match=re.escape(f"[MQTT-{clause}]")) as caught:
        split_shared(filter)
    assert caught.value.reason_code == TOPIC_FILTER_INVALID


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "any/thing", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/#", "a/$x", True),
        ("a/+", "a/$x", True),
        ("ACCOUNTS", "Accounts", False),
        ("a", "a/", False),
        ("a", "/a", False),
    ],
)
def test_examples_of_the_standard(filter: str, topic: str, expected: bool) -> None:
    """Sections 4.7.1 and 4.7.2 [MQTT-4.7.2-1] [MQTT-4.7.3-4]."""
    assert matches(filter, topic) is expected


def as_expression(filter: str) -> str:
    """The filter as a regular expression, the slow twin of `matches`."""
    if filter == "#":
        return r"(?!\$).*"
    tail = ""
    if filter.endswith("/#"):
        filter, tail = filter[:-2], "(/.*)?"
    levels = ["[^/]*" if level == "+" else re.escape(level) for level in filter.split("/")]
    return (r"(?!\$)" if filter.startswith("+") else "") + "/".join(levels) + tail


@given(filter=FILTERS, topic=TOPICS)
@settings(max_examples=500)
def test_matching_against_a_regular_expression(filter: str, topic: str) -> None:
    assert matches(filter, topic) == (re.fullmatch(as_expression(filter), topic, re.DOTALL) is not None)
