"""Mosquitto's ACL file: its grammar, its order of decision, and the compiled rules against a plain scan."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.broker.auth.acl import DENY, READ, WRITE, Acl, AclRule, ClientRights, parse_acl
from metromq.errors import ConfigError
from metromq.protocol.topics.names import matches

FILE = """\
# anonymous
topic read news/#
topic deny news/secret

user alice
topic readwrite home/+/light
topic write log/a b
topic deny home/cellar/light
topic $SYS/broker/uptime
  topic indented

user bob smith
topic #

pattern write sensor/%u/data
pattern read device/%c/#
pattern deny device/%c/key
user alice
topic read more
"""


@pytest.mark.parametrize(
    ("user", "client", "topic", "publish", "read"),
    [
        (None, "c", "news/today", False, True),
        (None, "c", "news", False, True),
        (None, "c", "news/secret", False, False),
        (None, "c", "other", False, False),
        (None, "c", "device/c", False, True),
        (None, "c", "device/c/x/y", False, True),
        (None, "c", "device/c/key", False, False),
        (None, "c", "device/d/x", False, False),
        (None, "c", "sensor//data", False, False),
        ("alice", "c", "news/today", False, False),
        ("alice", "c", "home/kitchen/light", True, True),
        ("alice", "c", "home/cellar/light", False, False),
        ("alice", "c", "home/kitchen/light/x", False, False),
        ("alice", "c", "log/a b", True, False),
        ("alice", "c", "$SYS/broker/uptime", True, True),
        ("alice", "c", "indented", True, True),
        ("alice", "c", "more", False, True),
        ("alice", "c", "sensor/alice/data", True, False),
        ("alice", "c", "sensor/bob/data", False, False),
        ("bob smith", "c", "anything/at/all", True, True),
        ("bob smith", "c", "$SYS/x", False, False),
        ("bob smith", "c", "device/c/key", True, True),  # the user's own lines come before patterns
        ("stranger", "dev", "device/dev/x", False, True),
        ("stranger", "dev", "news/today", False, False),
        ("stranger", "+", "device/+/x", False, False),  # CVE-2017-7650
        ("stranger", "#", "device/a/x", False, False),
        ("#", "dev", "sensor/#/data", False, False),
        ("%c", "dev", "sensor/dev/data", False, False),  # names are filled in once
        ("a/b", "dev", "sensor/a/b/data", False, False),  # not as Mosquitto: it would reach into what is a's
        ("stranger", "a/b", "device/a/b/x", False, False),
        ("stranger", "$SYS", "device/$SYS/x", False, False),
    ],
)
def test_decisions(user: str | None, client: str, topic: str, publish: bool, read: bool) -> None:
    acl = parse_acl(FILE, "acl")
    assert acl.may_publish(user, client, topic) is publish
    assert acl.may_read(user, client, topic) is read
    assert acl.may_subscribe(user, client, topic) is read


def test_an_empty_file_allows_nothing() -> None:
    acl = parse_acl("# nothing\n\n", "acl")
    assert not acl.may_publish(None, "c", "a")
    assert not acl.may_read("u", "c", "a")


def test_every_wrong_line_is_told() -> None:
    text = "topic\nuser\nbogus x\ntopic foo a\ntopic read a/#/b\ntopic a+\ntopic ok\ntopic\tread x\npattern deny b/#/"
    with pytest.raises(ConfigError) as raised:
        parse_acl(text, "/etc/acl")
    said = str(raised.value)
    assert said.startswith("/etc/acl: line 1: topic or pattern without a filter; line 2: user without a name")
    for part in (
        "line 3: 'bogus' is not one of user, topic, pattern",
        "line 4: the access 'foo' is not one of read, write, readwrite, deny",
        "line 5: 'a/#/b' is not a topic filter",
        "line 6: 'a+' is not a topic filter",
        "line 8: ",
        "line 9: ",
    ):
        assert part in said
    assert "line 7" not in said


@pytest.mark.parametrize("client", ["a/b", "c", "$x"])
def test_denials_are_filled_with_any_name(client: str) -> None:
    acl = parse_acl("pattern readwrite #\npattern readwrite $x/#\npattern deny shut/%c", "acl")
    assert acl.may_read("u", client, "open/it")
    assert not acl.may_read("u", client, f"shut/{client}")


LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from(["a", "b", "+", "", "$x", "%u", "%c"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool)
RULES = st.lists(
    st.builds(AclRule, st.sampled_from([DENY, READ, WRITE, READ | WRITE]), FILTERS | st.just("#")), max_size=5
)


def scan(own: list[AclRule], patterns: list[AclRule], topic: str, access: int) -> bool:
    """The decision as Mosquitto's documentation words it, line by line."""
    for rules in (own, patterns):
        for rule in rules:
            if rule.access == DENY and matches(rule.filter, topic):
                return False
        for rule in rules:
            if rule.access & access and matches(rule.filter, topic):
                return True
    return False


def filled(rules: list[AclRule], user: str | None) -> list[AclRule]:
    return [
        AclRule(rule.access, rule.filter.replace("%c", "b").replace("%u", user or ""))
        for rule in rules
        if user is not None or "%u" not in rule.filter
    ]


def access_of(own: list[AclRule], patterns: list[AclRule], user: str | None) -> ClientRights:
    return Acl({user: tuple(own)}, tuple(patterns)).for_client(user, "b")


@settings(deadline=None, max_examples=300)
@given(RULES, RULES, st.sampled_from([None, "a"]), st.lists(TOPICS, min_size=1, max_size=5))
def test_compiled_rules_decide_as_a_scan(
    own: list[AclRule], patterns: list[AclRule], user: str | None, topics: list[str]
) -> None:
    access = access_of(own, patterns, user)
    for topic in topics:
        assert access.may_read(topic) is scan(own, filled(patterns, user), topic, READ)
        assert access.may_publish(topic) is scan(own, filled(patterns, user), topic, WRITE)


UNIVERSE = ["/".join(levels) for length in range(1, 5) for levels in product(["a", "b", "", "$x", "z"], repeat=length)]
WISHES = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from(["a", "b", "+", "", "$x"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool)


@settings(deadline=None, max_examples=300)
@given(RULES, RULES, st.sampled_from([None, "a"]), WISHES | st.just("#"))
def test_a_filter_is_refused_when_nothing_can_be_read_through_it(
    own: list[AclRule], patterns: list[AclRule], user: str | None, wish: str
) -> None:
    """Only denials that close a filter together with others are not seen."""
    access = access_of(filled(own, "a"), patterns, user)  # a user's own lines are not filled in: names like any other
    something = any(matches(wish, topic) and access.may_read(topic) for topic in UNIVERSE if topic)
    denials = sum(rule.access == DENY for rule in own + patterns)
    if something:
        assert access.may_subscribe(wish)
    elif denials <= 1:
        assert not access.may_subscribe(wish)
