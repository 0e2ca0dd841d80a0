"""Keeps one retained message per topic and finds those that a new subscription asks for."""

from collections.abc import Iterator
from typing import Generic, TypeVar, final

M = TypeVar("M")


@final
class RetainedNode:
    """One level of the topics."""

    def __init__(self) -> None:
        self.children: dict[str, RetainedNode] = {}
        self.topic = ""  # set while the level ends a topic with a message


@final
class RetainedTree(Generic[M]):
    """Messages by topic. The dictionary answers exact topics, the tree answers filters with wildcards."""

    def __init__(self) -> None:
        self._messages: dict[str, M] = {}
        self._root: RetainedNode = RetainedNode()

    def __len__(self) -> int:
        return len(self._messages)

    def set(self, topic: str, message: M) -> None:
        """Keeps the message as the topic's only one."""
        if topic not in self._messages:
            node = self._root
            for level in topic.split("/"):
                child = node.children.get(level)
                if child is None:
                    child = RetainedNode()
                    node.children[level] = child
                node = child
            node.topic = topic
        self._messages[topic] = message

    def get(self, topic: str) -> M | None:
        return self._messages.get(topic)

    def values(self) -> list[M]:
        """All messages, in a list of its own."""
        return list(self._messages.values())

    def remove(self, topic: str) -> bool:
        """Forgets the topic's message; False when there was none."""
        if topic not in self._messages:
            return False
        del self._messages[topic]
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].topic = ""
        while len(path) > 1:
            node = path.pop()
            if node.children or node.topic:
                break
            del path[-1].children[levels[len(path) - 1]]
        return True

    def match(self, filter: str) -> list[M]:
        """The messages of all topics that the (valid) filter matches, in no promised order."""
        if "+" not in filter and "#" not in filter:
            exact = self._messages.get(filter)
            return [] if exact is None else [exact]
        nodes: list[RetainedNode] = [self._root]
        visible = False  # a wildcard in the first level does not see `$` topics [MQTT-4.7.2-1]
        for level in filter.split("/"):
            if level == "#":
                return self._below(nodes, visible)
            below: list[RetainedNode] = []
            for node in nodes:
                if level != "+":
                    child = node.children.get(level)
                    if child is not None:
                        below.append(child)
                elif visible:
                    below.extend(node.children.values())
                else:
                    below.extend(_visible_children(node))
            nodes = below
            visible = True
        return [self._messages[node.topic] for node in nodes if node.topic]

    def _below(self, nodes: list[RetainedNode], visible: bool) -> list[M]:
        """The messages of the nodes and of everything below them."""
        found: list[M] = []
        pending = nodes
        if not visible:
            pending = _visible_children(nodes[0])
        while pending:
            node = pending.pop()
            if node.topic:
                found.append(self._messages[node.topic])
            pending.extend(node.children.values())
        return found

    def nodes(self) -> int:
        """How many levels the tree stores below its root; memory grows with these."""
        count = 0
        pending = [self._root]
        while pending:
            children = pending.pop().children
            count += len(children)
            pending.extend(children.values())
        return count

    def items(self) -> Iterator[tuple[str, M]]:
        """Every topic and its message."""
        return iter(self._messages.items())


def _visible_children(root: RetainedNode) -> list[RetainedNode]:
    return [child for level, child in root.children.items() if not level.startswith("$")]
