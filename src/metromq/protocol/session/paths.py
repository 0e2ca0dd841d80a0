"""From a topic to the wildcard filters that match it, level by level, without any memory of the topic itself.

A city has a topic per sensor, and far fewer filters: what is remembered here grows with the filters. A topic that no
filter tells from its neighbours takes their path, and a path ends as soon as no filter looks further.
"""

from typing import Final, final

from metromq.protocol.session.route import Route, route_to
from metromq.protocol.session.session import Grant, Receiver
from metromq.protocol.topics.tree import FilterTree, TreeNode

Node = TreeNode[str, Receiver]

SLASH: Final = 0x2F
MAX_PATH_BYTES: Final = 16 << 20  # of all places and routes; past it they are forgotten and found again one by one
FEW_JUNCTIONS: Final = 256
FEW_NAMES: Final = 4  # levels that filters name at one place: a level is told from so many faster than it is looked up
PLACE_BYTES: Final = 600
ROUTE_BYTES: Final = 300
TARGET_BYTES: Final = 16


@final
class Junction:
    """Where topics lead that the same wildcard filters match: one route for all of them, and one for each subscription
    to exactly one topic that comes in addition."""

    def __init__(self, receivers: list[Receiver]) -> None:
        self.receivers = receivers
        self.route = route_to(receivers)
        self.with_one: dict[Grant, Route] = {}


@final
class Place:
    """How far a topic has come: the nodes of the filter tree that it may still go on from."""

    def __init__(self, nodes: list[Node], passed: list[Receiver]) -> None:
        self.nodes = nodes
        self.passed = passed  # the receivers of filters with `#` that match whatever follows
        self.known: dict[bytes, Place] | None = None  # the next places, by levels that filters name
        self.other: Place | None = None  # the next place of all other levels
        self.end: Junction | None = None  # of the topic that ends here
        self.beyond: Junction | None = None  # of all topics that go on from here, when no filter looks further
        self.is_deep = False
        self.names: list[bytes] | None = None
        self.look_again()

    def look_again(self) -> None:
        """Whether a filter looks further than this place, and the levels that filters name here, if they are few."""
        count = 0
        self.is_deep = False
        for node in self.nodes:
            if node.plus is not None or node.children is not None:
                self.is_deep = True
            if node.children is not None:
                count += len(node.children)
        self.names = None
        if self.is_deep and count <= FEW_NAMES:
            self.names = [name.encode() for node in self.nodes for name in node.children or ()]


@final
class Paths:
    """The paths through a tree of wildcard filters that topics have taken."""

    def __init__(self, tree: FilterTree[str, Receiver]) -> None:
        self._tree = tree
        self._bytes = 0
        self._start = self._first()
        self._junctions: dict[tuple[Receiver, ...], Junction] = {}  # so that what leads to the same is the same
        # The levels after which no filter looked further, or only at few names, when it was last so, and where all
        # topics lead that begin with them; unless the names are None, they have one level more, which is none of these.
        self.stem = b""
        self.stem_junction: Junction | None = None
        self.stem_names: list[bytes] | None = None

    def _first(self) -> Place:
        root = self._tree.root
        return Place([root], [] if root.beyond is None else list(root.beyond.values()))

    def restart(self) -> None:
        self._bytes = 0
        self._start = self._first()
        self._junctions = {}
        self.stem_junction = None

    def find(self, topic: bytes) -> Junction:
        """Of a valid topic that does not begin with `$`."""
        place = self._start
        size = len(topic)
        at = 0
        while place.is_deep:
            slash = at
            while slash < size and topic[slash] != SLASH:
                slash += 1
            level = topic[at:slash]
            known = place.known
            below = known.get(level) if known is not None else None
            if below is None:
                below = self._below(place, level)
            if slash == size:
                end = below.end
                if end is None:
                    end = self._end(below)
                if below is place.other and place.names is not None:
                    self.stem, self.stem_junction, self.stem_names = topic[:at], end, place.names
                return end
            place = below
            at = slash + 1
        beyond = place.beyond
        if beyond is None:
            beyond = self._beyond(place)
        self.stem, self.stem_junction, self.stem_names = topic[:at], beyond, None
        return beyond

    def with_one(self, junction: Junction, grant: Grant) -> Route:
        """The route of a topic to which there is one subscription by its name beside those with wildcards."""
        route = junction.with_one.get(grant)
        if route is None:
            receivers: list[Receiver] = [*junction.receivers, grant]
            route = route_to(receivers)
            junction.with_one[grant] = route
            self._grows(ROUTE_BYTES + TARGET_BYTES * len(receivers))
        return route

    def forget(self, topic: str, grant: Grant) -> None:
        """A subscription to a topic by its name is gone."""
        if not topic.startswith("$"):
            self.find(topic.encode()).with_one.pop(grant, None)

    def changed(self, filter: str, gone: Receiver | None = None) -> None:
        """A wildcard filter came or went: what it has changed is forgotten, and nothing else."""
        if gone is not None:
            self._let_go(gone)
        self.stem_junction = None
        place, node = self._start, self._tree.root
        before: Place | None = None
        last = b""
        for level in filter.split("/"):
            place.look_again()
            if level == "#":
                self._forget_place(before, last)
                return
            if level == "+":
                place.known = None
                place.other = None
                return
            name = level.encode()
            below = place.known.get(name) if place.known is not None else None
            if below is None:
                return
            child = node.children.get(level) if node.children is not None else None
            if child is None or not any([child is one for one in below.nodes]):
                self._forget_place(place, name)
                return
            before, last = place, name
            place, node = below, child

    def _let_go(self, gone: Receiver) -> None:
        """No junction may hold a receiver that is gone; the others stay, so that what leads to the same stays the same,
        unless there are many to look through."""
        junctions = self._junctions
        self._junctions = {}
        if len(junctions) <= FEW_JUNCTIONS:
            self._junctions = {key: junction for key, junction in junctions.items() if gone not in key}

    def _forget_place(self, before: Place | None, level: bytes) -> None:
        if before is None:
            self.restart()
        elif before.known is not None:
            before.known.pop(level, None)

    def _below(self, place: Place, level: bytes) -> Place:
        nodes: list[Node] = []
        for node in place.nodes:
            if node.children is not None:
                child = node.children.get(level.decode())
                if child is not None:
                    nodes.append(child)
        if not nodes and place.other is not None:
            return place.other
        is_named = bool(nodes)
        for node in place.nodes:
            if node.plus is not None:
                nodes.append(node.plus)
        passed = place.passed
        for node in nodes:
            if node.beyond is not None:
                passed = [*passed, *node.beyond.values()]
        below = Place(nodes, passed)
        if not is_named:
            place.other = below
        elif place.known is None:
            place.known = {level: below}
        else:
            place.known[level] = below
        self._grows(PLACE_BYTES + len(level) + 8 * len(passed))
        return below

    def _end(self, place: Place) -> Junction:
        receivers = list(place.passed)
        for node in place.nodes:
            if node.values is not None:
                receivers.extend(node.values.values())
        place.end = self._junction(receivers)
        return place.end

    def _beyond(self, place: Place) -> Junction:
        place.beyond = self._junction(place.passed)
        return place.beyond

    def _junction(self, receivers: list[Receiver]) -> Junction:
        key = tuple(receivers)
        junction = self._junctions.get(key)
        if junction is None:
            junction = Junction(receivers)
            self._junctions[key] = junction
            self._grows(ROUTE_BYTES + TARGET_BYTES * len(receivers))
        return junction

    def _grows(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_PATH_BYTES:
            self.restart()
