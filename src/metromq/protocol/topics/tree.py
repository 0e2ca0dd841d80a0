"""Finds every subscription whose filter matches a topic, without looking at the others."""

from collections.abc import Iterator
from typing import Generic, TypeVar, final

K = TypeVar("K")
V = TypeVar("V")


@final
class Node(Generic[K, V]):
    """One level of the filters; `values` belong to the filter that ends here."""

    def __init__(self) -> None:
        self.children: dict[str, Node[K, V]] = {}  # literal levels and `+`
        self.values: dict[K, V] = {}
        self.beyond: dict[K, V] = {}  # of the filter that ends with `#` below this level


@final
class FilterTree(Generic[K, V]):
    """Values by topic filter and key, found again by topic name. Filters must be valid (names.validate_filter).

    Everything is iterative because a filter may have 32,768 levels, more than the interpreter's stack.
    """

    def __init__(self) -> None:
        self._root: Node[K, V] = Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def insert(self, filter: str, key: K, value: V) -> bool:
        """Stores the value, replacing the one of the same filter and key; True when there was none."""
        node = self._root
        levels = filter.split("/")
        beyond = levels[-1] == "#"
        if beyond:
            levels.pop()
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = Node()
                node.children[level] = child
            node = child
        values = node.beyond if beyond else node.values
        new = key not in values
        values[key] = value
        if new:
            self._size += 1
        return new

    def get(self, filter: str, key: K) -> V | None:
        path = self._path(filter)
        if not path:
            return None
        return _values(path[-1], filter).get(key)

    def remove(self, filter: str, key: K) -> bool:
        """Forgets the value and every node that nothing needs any more; False when it was not there."""
        path = self._path(filter)
        if not path:
            return False
        values = _values(path[-1], filter)
        if key not in values:
            return False
        del values[key]
        self._size -= 1
        levels = filter.split("/")
        while len(path) > 1:
            node = path.pop()
            if node.children or node.values or node.beyond:
                break
            del path[-1].children[levels[len(path) - 1]]
        return True

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic, in no promised order."""
        found: list[V] = []
        root = self._root
        levels = topic.split("/")
        # A wildcard in the first level never matches a `$` topic [MQTT-4.7.2-1].
        hidden = topic.startswith("$")
        nodes: list[Node[K, V]] = [root]
        if root.beyond and not hidden:
            found.extend(root.beyond.values())
        for level in levels:
            below: list[Node[K, V]] = []
            for node in nodes:
                child = node.children.get(level)
                if child is not None:
                    below.append(child)
                    if child.beyond:
                        found.extend(child.beyond.values())
                if not hidden:
                    child = node.children.get("+")
                    if child is not None:
                        below.append(child)
                        if child.beyond:
                            found.extend(child.beyond.values())
            if not below:
                return found
            hidden = False
            nodes = below
        for node in nodes:
            found.extend(node.values.values())
        return found

    def items(self) -> Iterator[tuple[str, K, V]]:
        """Every filter, key and value."""
        pending: list[tuple[str, Node[K, V]]] = [("", self._root)]
        while pending:
            prefix, node = pending.pop()
            for key, value in node.values.items():
                yield prefix[:-1], key, value
            for key, value in node.beyond.items():
                yield prefix + "#", key, value
            for level, child in node.children.items():
                pending.append((prefix + level + "/", child))

    def _path(self, filter: str) -> list[Node[K, V]]:
        """The nodes from the root to the filter's own; empty when there is no such node."""
        node = self._root
        path = [node]
        levels = filter.split("/")
        if levels[-1] == "#":
            levels.pop()
        for level in levels:
            child = node.children.get(level)
            if child is None:
                return []
            node = child
            path.append(node)
        return path


def _values(node: Node[K, V], filter: str) -> dict[K, V]:
    return node.beyond if filter == "#" or filter.endswith("/#") else node.values
