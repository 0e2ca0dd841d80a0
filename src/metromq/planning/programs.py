"""The integer programs: the tight one, with psi per used pair or as flow over links, and the paper's own.

All have x[i, d] (container i runs on device d). They differ in how the product of two x is made linear:
- `tight`: for each pair with traffic, psi[d, d'] is continuous, its row sums are x of the topic and its column sums x
  of the service. For fixed x this is a transport problem.
- `flow`: the same transport problem over the network's own links. Its cost is equal when hops are shortest paths, so
  the relaxation is exactly as strong, with links instead of devices squared as variables per pair.
- `paper`: psi binary for every topic, service and two devices, with the three inequalities (18)-(20).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Program:
    """A mixed integer program by rows; `place[i, d]` is the column of x[i, d], or -1 where it is fixed to 0."""

    cost: Floats
    upper: Floats
    integer: Bools
    row_lower: Floats
    row_upper: Floats
    starts: Ints
    columns: Ints
    values: Floats
    place: Ints
    pairs: "PairRows | None" = None


@dataclass(frozen=True, slots=True)
class PairRows:
    """Where the two tight forms tie a pair's transport to x: a row per side and device, -1 where there is none.

    A row's multiplier times `signs` is what it moves from the pair's price to the topic's, and to the service's.
    """

    edges: Ints
    topic: Ints  # [pair, device]
    service: Ints
    signs: tuple[float, float]


class Builder:
    """Collects columns and rows in blocks and sorts the entries once at the end."""

    def __init__(self) -> None:
        self.cost: list[Floats] = []
        self.upper: list[Floats] = []
        self.integer: list[Bools] = []
        self.row_lower: list[Floats] = []
        self.row_upper: list[Floats] = []
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        self.width = 0
        self.height = 0

    def add_columns(self, cost: Floats, upper: float, integer: bool) -> Ints:
        self.cost.append(cost)
        self.upper.append(np.full(len(cost), upper))
        self.integer.append(np.full(len(cost), integer))
        first = self.width
        self.width += len(cost)
        return np.arange(first, self.width)

    def add_rows(self, lower: Floats, upper: Floats) -> Ints:
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        first = self.height
        self.height += len(lower)
        return np.arange(first, self.height)

    def put(self, rows: Ints, columns: Ints, values: Floats | float) -> None:
        self.entries.append((rows, columns, np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)))

    def build(self, place: Ints, pairs: PairRows | None = None) -> Program:
        rows = np.concatenate([r for r, _, _ in self.entries])
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.height))])
        return Program(
            cost=np.concatenate(self.cost),
            upper=np.concatenate(self.upper),
            integer=np.concatenate(self.integer),
            row_lower=np.concatenate(self.row_lower),
            row_upper=np.concatenate(self.row_upper),
            starts=starts.astype(np.int64),
            columns=np.concatenate([c for _, c, _ in self.entries])[order],
            values=np.concatenate([v for _, _, v in self.entries])[order],
            place=place,
            pairs=pairs,
        )


def assignment(arrays: Arrays, allowed: Bools, overflow: bool = False) -> tuple[Builder, Ints]:
    """Equations (1)-(7) and the limit of moves; `overflow` asks for the least excess over capacity instead of power."""
    builder = Builder()
    count, width = allowed.shape
    place = np.full((count, width), -1, dtype=np.int64)
    cost = np.zeros(int(allowed.sum())) if overflow else arrays.linear[allowed]
    place[allowed] = builder.add_columns(cost, 1.0, True)
    item, device = np.nonzero(allowed)
    ones = np.ones(count)
    builder.put(builder.add_rows(ones, ones)[item], place[allowed], 1.0)
    rows = builder.add_rows(np.full(width, -np.inf), arrays.capacity)
    builder.put(rows[device], place[allowed], arrays.load[item])
    if overflow:
        excess = builder.add_columns(np.ones(width), np.inf, False)
        builder.put(rows, excess, -1.0)
    if arrays.goal.max_moves is not None:
        known = np.flatnonzero(arrays.present >= 0)
        stay = place[known, arrays.present[known]]
        stay = stay[stay >= 0]
        row = builder.add_rows(np.array([float(len(known) - arrays.goal.max_moves)]), np.array([np.inf]))
        if len(stay):
            builder.put(np.repeat(row, len(stay)), stay, 1.0)
    return builder, place


def tight(arrays: Arrays, allowed: Bools) -> Program:
    """The formulation whose psi are transports between the rows of x."""
    builder, place = assignment(arrays, allowed)
    worst = _worst_path(arrays, allowed, builder, place)
    edges = _priced_edges(arrays)
    sides = np.full((2, len(edges), allowed.shape[1]), -1, dtype=np.int64)
    for k, e in enumerate(edges):
        topic, service = int(arrays.edge_topic[e]), int(arrays.edge_service[e])
        left, right = np.flatnonzero(allowed[topic]), np.flatnonzero(allowed[service])
        hops = arrays.hops[np.ix_(left, right)]
        psi = builder.add_columns((arrays.pair_price[e] * hops).ravel(), np.inf, False).reshape(hops.shape)
        sides[0, k, left] = _equal_sums(builder, psi, place[topic, left])
        sides[1, k, right] = _equal_sums(builder, psi.T, place[service, right])
        if worst is not None:
            _below_worst(builder, worst, psi.ravel(), hops.ravel())
    return builder.build(place, PairRows(np.array(edges, dtype=np.int64), sides[0], sides[1], (1.0, 1.0)))


def flow(arrays: Arrays, allowed: Bools) -> Program:
    """The tight program with each transport as a flow over the links, in both directions."""
    builder, place = assignment(arrays, allowed)
    worst = _worst_path(arrays, allowed, builder, place)
    tail, head = np.nonzero(arrays.hops == 1)
    width = len(arrays.capacity)
    zero = np.zeros(width)
    edges = _priced_edges(arrays)
    tied = np.full((len(edges), width), -1, dtype=np.int64)
    for k, e in enumerate(edges):
        pair = builder.add_columns(np.full(len(tail), arrays.pair_price[e]), np.inf, False)
        rows = tied[k] = builder.add_rows(zero, zero)  # what comes in and starts here goes out or ends here
        builder.put(rows[tail], pair, -1.0)
        builder.put(rows[head], pair, 1.0)
        for container, sign in ((arrays.edge_topic[e], 1.0), (arrays.edge_service[e], -1.0)):
            devices = np.flatnonzero(allowed[container])
            builder.put(rows[devices], place[container, devices], sign)
        if worst is not None:
            _below_worst(builder, worst, pair, np.ones(len(pair)))
    return builder.build(place, PairRows(np.array(edges, dtype=np.int64), tied, tied, (-1.0, 1.0)))


def paper(arrays: Arrays, allowed: Bools) -> Program:
    """The paper's linearisation, equations (16)-(22), with x and psi for all t, s, d, d', none left out."""
    allowed = np.ones_like(allowed)
    builder, place = assignment(arrays, allowed)
    worst = _worst_path(arrays, allowed, builder, place)
    topics, width = len(arrays.problem.topics), len(arrays.capacity)
    price = np.zeros((topics, arrays.count))
    price[arrays.edge_topic, arrays.edge_service] = arrays.pair_price
    used = np.zeros((topics, arrays.count), dtype=np.bool_)
    used[arrays.edge_topic, arrays.edge_service] = True
    here, there = (axis.ravel() for axis in np.indices((width, width)))
    for topic in range(topics):
        for service in range(topics, arrays.count):
            psi = builder.add_columns(price[topic, service] * arrays.hops.ravel(), 1.0, True)
            alpha, beta = place[topic, here], place[service, there]
            low, zero = np.full(len(psi), -np.inf), np.zeros(len(psi))
            for factor in (alpha, beta):  # (18), (19)
                rows = builder.add_rows(low, zero)
                builder.put(rows, psi, 1.0)
                builder.put(rows, factor, -1.0)
            rows = builder.add_rows(low, np.ones(len(psi)))  # (20)
            builder.put(rows, psi, -1.0)
            builder.put(rows, alpha, 1.0)
            builder.put(rows, beta, 1.0)
            if worst is not None and used[topic, service]:
                _below_worst(builder, worst, psi, arrays.hops.ravel())
    return builder.build(place)


def _priced_edges(arrays: Arrays) -> list[int]:
    """Pairs whose distance matters to the goal; without a price on hops, none needs a psi."""
    if arrays.goal.latency:
        return list(range(len(arrays.pair_price)))
    return np.flatnonzero(arrays.pair_price > 0).tolist()


def _equal_sums(builder: Builder, psi: Ints, totals: Ints) -> Ints:
    zero = np.zeros(len(totals))
    rows = builder.add_rows(zero, zero)
    builder.put(np.repeat(rows, psi.shape[1]), psi.ravel(), 1.0)
    builder.put(rows, totals, -1.0)
    return rows


def _worst_path(arrays: Arrays, allowed: Bools, builder: Builder, place: Ints) -> int | None:
    """The column of the worst path in hops, at least every container's distance to its clients."""
    if not arrays.goal.latency:
        return None
    column = int(builder.add_columns(np.array([arrays.goal.latency]), np.inf, False)[0])
    for i in range(arrays.count):
        devices = np.flatnonzero(allowed[i] & (arrays.reach[i] > 0))
        if len(devices):
            _below_worst(builder, column, place[i, devices], arrays.reach[i, devices].astype(np.float64))
    return column


def _below_worst(builder: Builder, worst: int, columns: Ints, hops: Floats) -> None:
    row = builder.add_rows(np.array([0.0]), np.array([np.inf]))
    builder.put(row, np.array([worst]), 1.0)
    builder.put(np.repeat(row, len(columns)), columns, -hops)


def links_carry_hops(arrays: Arrays) -> bool:
    """True when hops are the lengths of shortest paths over pairs one hop apart, which the flow form relies on."""
    reached = np.where(arrays.hops == 1, 1.0, np.inf)
    np.fill_diagonal(reached, 0.0)
    for k in range(len(reached)):
        reached = np.minimum(reached, reached[:, k, None] + reached[None, k, :])
    return bool((reached == arrays.hops).all())


def flow_columns(arrays: Arrays) -> int:
    """How many columns the smaller of the two tight programs has, to know before building it."""
    width = len(arrays.capacity)
    arcs = int((arrays.hops == 1).sum()) if links_carry_hops(arrays) else width * width
    return arrays.count * width + len(arrays.pair_price) * min(arcs, width * width)


def paper_columns(arrays: Arrays) -> int:
    topics, width = len(arrays.problem.topics), len(arrays.capacity)
    return arrays.count * width + topics * (arrays.count - topics) * width * width


Formulation = Callable[[Arrays, Bools], Program]
