"""Topic names and topic filters: what is valid (section 4.7), shared subscriptions (4.8.2), what matches what."""

from collections.abc import Iterable
from typing import Final

from metromq.errors import ProtocolViolation
from metromq.protocol.reasons import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID

_SHARE: Final = "$share/"
_WILDNESS: Final = {"+": 1, "#": 2}


def validate_topic(name: str) -> None:
    """Raises ProtocolViolation unless `name` can be published to."""
    if not name:
        raise ProtocolViolation("topic name is empty [MQTT-4.7.3-1]", TOPIC_NAME_INVALID)
    if "+" in name or "#" in name:
        raise ProtocolViolation(f"topic name {name[:64]!r} holds wildcards [MQTT-4.7.0-1]", TOPIC_NAME_INVALID)
    if "\0" in name:
        raise ProtocolViolation("topic name holds the null character [MQTT-4.7.3-2]", TOPIC_NAME_INVALID)
    if not _fits(name):
        raise ProtocolViolation("topic name is longer than 65535 bytes [MQTT-4.7.3-3]", TOPIC_NAME_INVALID)


def validate_filter(filter: str) -> None:
    """Raises ProtocolViolation unless `filter` can be subscribed to; `$share/...` is a filter like any other here."""
    if not filter:
        raise ProtocolViolation("topic filter is empty [MQTT-4.7.3-1]", TOPIC_FILTER_INVALID)
    if "\0" in filter:
        raise ProtocolViolation("topic filter holds the null character [MQTT-4.7.3-2]", TOPIC_FILTER_INVALID)
    if not _fits(filter):
        raise ProtocolViolation("topic filter is longer than 65535 bytes [MQTT-4.7.3-3]", TOPIC_FILTER_INVALID)
    end = filter.find("#")
    if end >= 0 and (end != len(filter) - 1 or (end > 0 and filter[end - 1] != "/")):
        raise ProtocolViolation(
            f"topic filter {filter[:64]!r}: `#` must stand alone in the last level [MQTT-4.7.1-1]", TOPIC_FILTER_INVALID
        )
    if "+" in filter:
        for level in filter.split("/"):
            if len(level) > 1 and "+" in level:
                raise ProtocolViolation(
                    f"topic filter {filter[:64]!r}: `+` must stand alone in its level [MQTT-4.7.1-2]",
                    TOPIC_FILTER_INVALID,
                )


def _fits(name: str) -> bool:
    if len(name) < 16384:  # no character takes more than four bytes
        return True
    try:
        return len(name.encode("utf-8")) <= 65535
    except UnicodeEncodeError:
        return False


def split_shared(filter: str) -> tuple[str, str]:
    """Parts `$share/group/filter` into group and filter; the group is empty when the filter is not shared."""
    if not filter.startswith(_SHARE):
        if filter == "$share":
            raise ProtocolViolation("`$share` without a group and a filter [MQTT-4.8.2-1]", TOPIC_FILTER_INVALID)
        return "", filter
    start = len(_SHARE)
    end = filter.find("/", start)
    if end < 0 or end + 1 >= len(filter):
        raise ProtocolViolation(
            f"shared subscription {filter[:64]!r} has no topic filter after its group [MQTT-4.8.2-2]",
            TOPIC_FILTER_INVALID,
        )
    group = filter[start:end]
    if not group:
        raise ProtocolViolation(
            f"shared subscription {filter[:64]!r} has an empty group [MQTT-4.8.2-1]", TOPIC_FILTER_INVALID
        )
    if "+" in group or "#" in group:
        raise ProtocolViolation(
            f"shared subscription {filter[:64]!r} has a group with wildcards [MQTT-4.8.2-2]", TOPIC_FILTER_INVALID
        )
    return group, filter[end + 1 :]


def matches(filter: str, topic: str) -> bool:
    """Whether a valid filter matches a valid topic name; a leading wildcard matches no `$` topic [MQTT-4.7.2-1]."""
    return levels_match(filter.split("/"), topic)


def levels_match(levels: list[str], topic: str) -> bool:
    """The same for a filter in its levels, for who has many topics."""
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    names = topic.split("/")
    for index, level in enumerate(levels):
        if level == "#":  # also the parent level itself [MQTT-4.7.1-1]
            return True
        if index >= len(names) or (level != "+" and level != names[index]):
            return False
    return len(levels) == len(names)


def common_levels(one: list[str], other: list[str]) -> list[str] | None:
    """The filter for what two filters both match; None: nothing. A leading wildcard matches no `$` [MQTT-4.7.2-1]."""
    for this, that in ((one, other), (other, one)):
        if this[0] in ("#", "+") and that[0].startswith("$"):
            return None
    common: list[str] = []
    for number in range(max(len(one), len(other))):
        if one[number : number + 1] == ["#"]:
            return common + other[number:]
        if other[number : number + 1] == ["#"]:
            return common + one[number:]
        if number >= len(one) or number >= len(other):
            return None
        here, there = one[number], other[number]
        if here != there and "+" not in (here, there):
            return None
        common.append(there if here == "+" else here)
    return common


def overlaps(one: str, other: str) -> bool:
    """Whether some topic matches both filters."""
    return common_levels(one.split("/"), other.split("/")) is not None


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that matches the narrow filter matches the wide one too."""
    levels = narrow.split("/")
    return common_levels(wide.split("/"), levels) == levels


def wildness(topic_filter: str) -> tuple[int, ...]:
    """Of filters that lie within each other, the narrowest is the least."""
    return tuple(_WILDNESS.get(level, 0) for level in topic_filter.split("/"))


def narrowest(topic_filter: str, known: Iterable[str]) -> str | None:
    """The narrowest of the known filters that it lies within, which may be itself."""
    return min((one for one in known if covers(one, topic_filter)), key=wildness, default=None)
