"""Prefixes in place of many filters: what a broker announces when its clients want more than others should know.

A summary `a/b/#` stands for all filters of this broker that begin with `a/b/`. It is wider than they are, never
narrower: peers treat it like a filter that a client here wants, so nothing can be missed because of it, and messages
may come that nobody here wants.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet


def wider(topic_filter: str) -> Iterator[str]:
    """The filters that end with `#` and match all that this one does, the widest first."""
    if topic_filter.startswith("$"):
        return
    yield "#"
    levels = topic_filter.split("/")
    for place, name in enumerate(levels):
        if name in ("+", "#"):
            return
        yield "/".join(levels[: place + 1]) + "/#"


def summary_of(topic_filter: str, summaries: AbstractSet[str]) -> str:
    """The summary that stands for a filter; empty: none does."""
    if summaries:
        for text in wider(topic_filter):
            # `a/#` does not stand for `a`, though it matches it: who counts what is below `a` does not count it.
            if text in summaries and text != f"{topic_filter}/#":
                return text
    return ""


def summarise(filters: Iterable[str], most: int, before: AbstractSet[str]) -> frozenset[str]:
    """Summaries that leave at most so many entries below each prefix; the longest prefixes that do are chosen.

    One of `before` is given up only when half as many are left, so that few changes change nothing.
    """
    below: dict[str, int] = {}  # entries directly below a prefix
    for topic_filter in filters:
        prefixes = _prefixes(topic_filter)
        if prefixes:
            below[prefixes[-1]] = below.get(prefixes[-1], 0) + 1
            for prefix in prefixes[:-1]:
                below.setdefault(prefix, 0)
    found: set[str] = set()
    for prefix in sorted(below, key=lambda text: text.count("/"), reverse=True):
        is_many = below[prefix] > (most // 2 if prefix in before else most)
        if is_many:
            found.add(prefix)
        parent = _parent(prefix)
        if parent:
            below[parent] += 1 if is_many else below[prefix]
    return frozenset(text for text in found if not summary_of(text, found - {text}))


def _prefixes(topic_filter: str) -> list[str]:
    """What a filter is below of, as summaries, the shortest first: a/b/c is below a/# and a/b/#."""
    return [text for text in wider(topic_filter) if text not in ("#", f"{topic_filter}/#")]


def _parent(prefix: str) -> str:
    """Of `a/b/#` it is `a/#`; of `a/#` there is none."""
    name = prefix[:-2]
    return name.rpartition("/")[0] + "/#" if "/" in name else ""
