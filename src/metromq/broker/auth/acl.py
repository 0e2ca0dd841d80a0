"""Mosquitto's ACL file: who may publish to and read from which topics, with the decisions that Mosquitto takes.

The order of a decision: the user's own `topic` lines, denials first; then the `pattern` lines, denials first; then no.
Mosquitto grants every SUBSCRIBE, and what is read through it is checked message by message; `may_subscribe` tells where
nothing can ever be read. One decision is stricter than Mosquitto's: a name with `/` fills no pattern that grants.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metromq.broker.auth.passwords import read_text
from metromq.errors import ConfigError
from metromq.protocol.topics import common_levels

READ, WRITE, DENY = 1, 2, 0
# Clients whose rules are kept compiled; beyond that all are compiled anew.
MOST_REMEMBERED = 20_000
ACCESS = {"read": READ, "write": WRITE, "readwrite": READ | WRITE, "deny": DENY}


@dataclass(frozen=True, slots=True)
class AclRule:
    """One `topic` or `pattern` line."""

    access: int
    filter: str


class TopicSet:
    """Some topic filters: plain names in a set, wildcards in one expression or, for a single client, level by level."""

    __slots__ = ("_expression", "_names", "_wild")

    def __init__(self, filters: Iterable[str], shared: bool) -> None:
        names = tuple(dict.fromkeys(filters))
        wild = [name for name in names if "+" in name or "#" in name]
        self._names = frozenset(names).difference(wild)
        # An expression is quicker to ask but takes time and kilobytes to make: too much for each of 10,000 clients.
        self._expression = re.compile("|".join(map(_expression, wild)), re.DOTALL) if wild and shared else None
        self._wild = tuple(name.split("/") for name in wild)

    def __contains__(self, topic: str) -> bool:
        if topic in self._names:
            return True
        if self._expression is not None:
            return self._expression.fullmatch(topic) is not None
        if self._wild:
            levels = topic.split("/")
            return any(_matches(wild, levels) for wild in self._wild)
        return False

    def covers(self, levels: list[str]) -> bool:
        """Whether one of these filters matches all that the filter of `levels` matches."""
        return "/".join(levels) in self._names or any(_covers(wild, levels) for wild in self._wild)

    def overlaps(self, levels: list[str]) -> Iterator[list[str]]:
        """The filters for what the filter of `levels` and each of these both match."""
        if not {"+", "#"}.intersection(levels):
            if "/".join(levels) in self:
                yield levels
            return
        for own in (*(name.split("/") for name in self._names), *self._wild):
            common = common_levels(own, levels)
            if common is not None:
                yield common


class RuleSet:
    """Rules compiled for quick decisions: denials first, then grants."""

    __slots__ = ("denied", "readable", "writable")

    def __init__(self, rules: Iterable[AclRule], shared: bool) -> None:
        rules = tuple(rules)
        self.denied = TopicSet((rule.filter for rule in rules if rule.access == DENY), shared)
        self.readable = TopicSet((rule.filter for rule in rules if rule.access & READ), shared)
        self.writable = TopicSet((rule.filter for rule in rules if rule.access & WRITE), shared)


NO_RULES = RuleSet((), shared=True)


class ClientRights:
    """What one client may do: its user's rules and the patterns filled in with its names."""

    __slots__ = ("_own", "_patterns", "_usable")

    def __init__(self, own: RuleSet, patterns: RuleSet, usable: bool) -> None:
        self._own = own
        self._patterns = patterns
        self._usable = usable

    def may_publish(self, topic: str) -> bool:
        return self._allowed(topic, self._own.writable, self._patterns.writable)

    def may_read(self, topic: str) -> bool:
        return self._allowed(topic, self._own.readable, self._patterns.readable)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether anything can be read through the filter; denials that close it only together are not seen."""
        levels, denied = topic_filter.split("/"), self._own.denied
        if not all(denied.covers(common) for common in self._own.readable.overlaps(levels)):
            return True
        patterns = self._patterns
        return self._usable and not all(
            denied.covers(common) or patterns.denied.covers(common) for common in patterns.readable.overlaps(levels)
        )

    def _allowed(self, topic: str, own: TopicSet, pattern: TopicSet) -> bool:
        if topic in self._own.denied:
            return False
        if topic in own:
            return True
        return self._usable and topic not in self._patterns.denied and topic in pattern


class Acl:
    """One ACL file; `for_client` gives what a connection keeps and asks."""

    def __init__(self, users: dict[str | None, tuple[AclRule, ...]], patterns: tuple[AclRule, ...]) -> None:
        self._users = {username: RuleSet(rules, shared=True) for username, rules in users.items()}
        self._patterns = patterns
        self._by_client = any("%c" in rule.filter for rule in patterns)
        # Only users of the file are kept here: names that clients invent must not fill the memory.
        self._by_user: dict[str | None, RuleSet] = {}
        self._accesses: dict[tuple[str | None, str], ClientRights] = {}

    def for_client(self, username: str | None, client_id: str) -> ClientRights:
        """The client's rules, remembered; a connection that keeps them saves the look-up."""
        access = self._accesses.get((username, client_id))
        if access is None:
            if len(self._accesses) >= MOST_REMEMBERED:
                self._accesses.clear()
            access = self._accesses[username, client_id] = self._access(username, client_id)
        return access

    def _access(self, username: str | None, client_id: str) -> ClientRights:
        own = self._users.get(username, NO_RULES)
        # A wildcard in a name would open other clients' topics (CVE-2017-7650), so such a client gets no patterns.
        usable = bool(self._patterns) and not any(sign in (username or "") + client_id for sign in "+#")
        return ClientRights(own, self._filled(username, client_id) if usable else NO_RULES, usable)

    def may_publish(self, username: str | None, client_id: str, topic: str) -> bool:
        return self.for_client(username, client_id).may_publish(topic)

    def may_read(self, username: str | None, client_id: str, topic: str) -> bool:
        return self.for_client(username, client_id).may_read(topic)

    def may_subscribe(self, username: str | None, client_id: str, topic_filter: str) -> bool:
        return self.for_client(username, client_id).may_subscribe(topic_filter)

    def _filled(self, username: str | None, client_id: str) -> RuleSet:
        """The patterns with this client's names; shared by a user's clients where the client id plays no part."""
        shared = not self._by_client and username in self._users
        if shared and username in self._by_user:
            return self._by_user[username]
        names = {"%c": client_id, "%u": username}
        filled = RuleSet((_fill(rule, names) for rule in self._patterns if _may_fill(rule, names)), shared)
        if shared:
            self._by_user[username] = filled
        return filled


def parse_acl(text: str, file: str) -> Acl:
    """The rules in `text`; every wrong line is told in one error, with its number."""
    users: dict[str | None, list[AclRule]] = {}
    patterns: list[AclRule] = []
    problems: list[str] = []
    user: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        # As Mosquitto: only a # in the first column is a comment, and only spaces part words.
        if line.startswith("#") or not line.strip():
            continue
        keyword, _, rest = line.strip(" ").rstrip().partition(" ")
        try:
            if keyword == "user":
                user = _parse_user(rest)
            elif keyword == "topic":
                users.setdefault(user, []).append(_parse_rule(rest))
            elif keyword == "pattern":
                patterns.append(_parse_rule(rest))
            else:
                raise ValueError(f"{keyword!r} is not one of user, topic, pattern")
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise ConfigError(file, "; ".join(problems))
    return Acl({name: tuple(rules) for name, rules in users.items()}, tuple(patterns))


def load_acl(file: Path) -> Acl:
    return parse_acl(read_text(file), str(file))


def _parse_user(rest: str) -> str:
    if not rest.strip():
        raise ValueError("user without a name")
    return rest.strip()


def _parse_rule(rest: str) -> AclRule:
    first, _, second = rest.lstrip(" ").partition(" ")
    if not first:
        raise ValueError("topic or pattern without a filter")
    # A single word is the filter even when it is called "read"; a filter with spaces needs the access word.
    access, topic_filter = (first, second.strip()) if second.strip() else ("readwrite", first)
    if access not in ACCESS:
        raise ValueError(f"the access {access!r} is not one of {', '.join(ACCESS)}")
    levels = topic_filter.split("/")
    if any(("#" in level or "+" in level) and len(level) > 1 for level in levels) or "#" in levels[:-1]:
        raise ValueError(
            f"{topic_filter!r} is not a topic filter: + and # must each be a whole level, and # the last one"
        )
    return AclRule(ACCESS[access], topic_filter)


def _fill(rule: AclRule, names: Mapping[str, str | None]) -> AclRule:
    # One pass, so that a client id with %u in it is not filled again.
    return AclRule(rule.access, re.sub("%[cu]", lambda found: names[found[0]] or "", rule.filter))


def _may_fill(rule: AclRule, names: Mapping[str, str | None]) -> bool:
    """Whoever chooses its own name must not reach into another's topics with it: `a/b` into those of `a`, `$SYS` into
    the broker's. Denials are filled with any name, since they only take."""
    used = [name for sign, name in names.items() if sign in rule.filter]
    if None in used:
        return False
    return rule.access == DENY or not any(name is None or "/" in name or name.startswith("$") for name in used)


def _expression(topic_filter: str) -> str:
    """A filter with wildcards as a regular expression; a leading wildcard does not match `$` [MQTT-4.7.2-1]."""
    if topic_filter == "#":
        return r"(?!\$).+"
    levels = topic_filter.split("/")
    guard = r"(?!\$)" if levels[0] == "+" else ""
    to_the_end = levels[-1] == "#"
    body = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels[: -1 if to_the_end else None])
    return f"{guard}{body}(?:/.*)?" if to_the_end else guard + body


def _covers(wide: list[str], narrow: list[str]) -> bool:
    return common_levels(wide, narrow) == narrow


def _matches(wild: list[str], levels: list[str]) -> bool:
    if wild[0] in ("#", "+") and levels[0].startswith("$"):
        return False
    for number, level in enumerate(wild):
        if level == "#":
            return True
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return len(wild) == len(levels)
