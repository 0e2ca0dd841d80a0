"""Finds every subscription whose filter matches a topic, without looking at the others."""

from collections.abc import Iterator
from typing import Generic, TypeVar, final

K = TypeVar("K")
V = TypeVar("V")


@final
class TreeNode(Generic[K, V]):
    """One level of the filters. Most nodes use one of the four places, so an empty one is None and costs nothing."""

    def __init__(self) -> None:
        self.children: dict[str, TreeNode[K, V]] | None = None  # literal levels below this one
        self.plus: TreeNode[K, V] | None = None  # the level `+` below this one
        self.values: dict[K, V] | None = None  # of the filter that ends here
        self.beyond: dict[K, V] | None = None  # of the filter that ends with `#` below this level


@final
class FilterTree(Generic[K, V]):
    """Values by topic filter and key, found again by topic name. Filters must be valid (names.validate_filter).

    Everything is iterative because a filter may have 32,768 levels, more than the interpreter's stack.
    """

    def __init__(self) -> None:
        self.root: TreeNode[K, V] = TreeNode()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def insert(self, filter: str, key: K, value: V) -> bool:
        """Stores the value, replacing the one of the same filter and key; True when there was none."""
        node = self.root
        levels = filter.split("/")
        beyond = levels[-1] == "#"
        if beyond:
            levels.pop()
        for level in levels:
            node = _child(node, level)
        values = node.beyond if beyond else node.values
        if values is None:
            values = {}
            if beyond:
                node.beyond = values
            else:
                node.values = values
        new = key not in values
        values[key] = value
        if new:
            self._size += 1
        return new

    def get(self, filter: str, key: K) -> V | None:
        path = self._path(filter)
        if not path:
            return None
        values = path[-1].beyond if _is_beyond(filter) else path[-1].values
        return None if values is None else values.get(key)

    def count(self, filter: str) -> int:
        """How many values this very filter has."""
        path = self._path(filter)
        values = None if not path else path[-1].beyond if _is_beyond(filter) else path[-1].values
        return 0 if values is None else len(values)

    def remove(self, filter: str, key: K) -> bool:
        """Forgets the value and every node that nothing needs any more; False when it was not there."""
        path = self._path(filter)
        if not path:
            return False
        node = path[-1]
        beyond = _is_beyond(filter)
        values = node.beyond if beyond else node.values
        if values is None or key not in values:
            return False
        del values[key]
        self._size -= 1
        if values:
            return True
        if beyond:
            node.beyond = None
        else:
            node.values = None
        _prune(path, filter.split("/"))
        return True

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic, in no promised order."""
        found: list[V] = []
        root = self.root
        # A wildcard in the first level never matches a `$` topic [MQTT-4.7.2-1].
        hidden = topic.startswith("$")
        if root.beyond is not None and not hidden:
            found.extend(root.beyond.values())
        nodes: list[TreeNode[K, V]] = [root]
        for level in topic.split("/"):
            below: list[TreeNode[K, V]] = []
            for node in nodes:
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        below.append(child)
                        if child.beyond is not None:
                            found.extend(child.beyond.values())
                plus = node.plus
                if plus is not None and not hidden:
                    below.append(plus)
                    if plus.beyond is not None:
                        found.extend(plus.beyond.values())
            if not below:
                return found
            hidden = False
            nodes = below
        for node in nodes:
            if node.values is not None:
                found.extend(node.values.values())
        return found

    def items(self) -> Iterator[tuple[str, K, V]]:
        """Every filter, key and value."""
        pending: list[tuple[str, TreeNode[K, V]]] = [("", self.root)]
        while pending:
            prefix, node = pending.pop()
            if node.values is not None:
                for key, value in node.values.items():
                    yield prefix[:-1], key, value
            if node.beyond is not None:
                for key, value in node.beyond.items():
                    yield prefix + "#", key, value
            if node.plus is not None:
                pending.append((prefix + "+/", node.plus))
            if node.children is not None:
                for level, child in node.children.items():
                    pending.append((prefix + level + "/", child))

    def nodes(self) -> int:
        """How many levels the tree stores below its root; memory grows with these."""
        count = -1
        pending = [self.root]
        while pending:
            node = pending.pop()
            count += 1
            if node.plus is not None:
                pending.append(node.plus)
            if node.children is not None:
                pending.extend(node.children.values())
        return count

    def _path(self, filter: str) -> list[TreeNode[K, V]]:
        """The nodes from the root to the filter's own; empty when there is no such node."""
        node = self.root
        path = [node]
        levels = filter.split("/")
        if levels[-1] == "#":
            levels.pop()
        for level in levels:
            child = node.plus
            if level != "+":
                child = None if node.children is None else node.children.get(level)
            if child is None:
                return []
            node = child
            path.append(node)
        return path


def _is_beyond(filter: str) -> bool:
    return filter == "#" or filter.endswith("/#")


def _child(node: TreeNode[K, V], level: str) -> TreeNode[K, V]:
    """The node of a level below `node`, made when it is not there."""
    if level == "+":
        plus = node.plus
        if plus is None:
            plus = TreeNode()
            node.plus = plus
        return plus
    children = node.children
    if children is None:
        children = {}
        node.children = children
    child = children.get(level)
    if child is None:
        child = TreeNode()
        children[level] = child
    return child


def _prune(path: list[TreeNode[K, V]], levels: list[str]) -> None:
    """Takes nodes off the end of the path as long as nothing needs them."""
    while len(path) > 1:
        node = path.pop()
        if node.children is not None or node.plus is not None or node.values is not None or node.beyond is not None:
            return
        parent = path[-1]
        level = levels[len(path) - 1]
        if level == "+":
            parent.plus = None
            continue
        children = parent.children
        assert children is not None
        del children[level]
        if not children:
            parent.children = None
