"""Lists every placement that could still be better than the best one known: exact, and fast where such are few.

The multipliers of a relaxation turn the price of a placement into the relaxation's value plus a sum of terms that are
never negative: one per container, one per pair, and one per device for room that stays free although it has a price.
Placements are built container by container, and a part whose terms exceed what is allowed is dropped with all that
would follow from it. Where capacity decides, a relaxation alone cannot tell thousands of packings apart; this can.
"""

from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints

CHUNK = 50_000  # parts that are followed together: as fast as all at once, with bounded memory


@dataclass(frozen=True, slots=True)
class Shares:
    """A price as a sum: base + single[i, x_i] + pairs[e][x_t, x_s] + room[d] * free room; all but the base >= 0."""

    base: float
    single: Floats  # [container, device], infinite where a device is not open
    edges: Ints  # the pairs that have a price
    pairs: Floats  # [pair, device of the topic, device of the service]
    room: Floats  # per device


@dataclass(frozen=True, slots=True)
class Listed:
    """The best placement found or None, its excess over the base, and whether none was left out."""

    where: Ints | None
    excess: float
    complete: bool


def shares(arrays: Arrays, mask: Bools, edges: Ints, room: Floats, topic_side: Floats, service_side: Floats) -> Shares:
    """Any multipliers will do, good ones make a high base: `room` per device, the sides per pair and device."""
    room = np.maximum(room, 0.0)
    single = arrays.linear + room[None, :] * arrays.load[:, None]
    np.add.at(single, arrays.edge_topic[edges], topic_side)
    np.add.at(single, arrays.edge_service[edges], service_side)
    single[~mask] = np.inf
    open_pairs = mask[arrays.edge_topic[edges]][:, :, None] & mask[arrays.edge_service[edges]][:, None, :]
    pairs = arrays.pair_price[edges][:, None, None] * arrays.hops - topic_side[:, :, None] - service_side[:, None, :]
    least_pairs = np.where(open_pairs, pairs, np.inf).min(axis=(1, 2), initial=np.inf)
    pairs = np.maximum(pairs - least_pairs[:, None, None], 0.0)
    least = single.min(axis=1)
    base = float(least.sum() + least_pairs.sum() - room @ arrays.capacity)
    return Shares(base, single - least[:, None], edges, pairs, room)


def cheapest(arrays: Arrays, costs: Shares, excess: float, work: int) -> Listed:
    """The best of all placements up to `excess` over the base; incomplete when that takes more than `work` parts."""
    steps = _Steps(arrays, costs)
    waiting = [(0, _nothing_placed(arrays))]
    best: Ints | None = None
    while waiting:
        level, parts = waiting.pop()
        parts = steps.extended(level, parts, excess)
        work -= len(parts.cost)
        if work < 0:
            return Listed(best, excess if best is not None else np.inf, False)
        if level + 1 == arrays.count:
            whole = parts.cost + np.maximum(arrays.capacity - parts.load, 0.0) @ costs.room
            if len(whole) and whole.min() <= excess:
                best, excess = parts.where[int(np.argmin(whole))].astype(np.int64), float(whole.min())
        else:
            pieces = range(0, len(parts.cost), CHUNK)
            waiting += [(level + 1, parts.some(slice(start, start + CHUNK))) for start in pieces]
    return Listed(best, excess if best is not None else np.inf, True)


def beam(arrays: Arrays, costs: Shares, excess: float, width: int) -> Ints | None:
    """A good placement: of all parts only the `width` cheapest are followed."""
    steps = _Steps(arrays, costs)
    parts = _nothing_placed(arrays)
    for level in range(arrays.count):
        parts = steps.extended(level, parts, excess)
        if len(parts.cost) > width:
            parts = parts.some(np.argpartition(parts.cost, width)[:width])
    if not len(parts.cost):
        return None
    whole = parts.cost + np.maximum(arrays.capacity - parts.load, 0.0) @ costs.room
    best: Ints = parts.where[int(np.argmin(whole))].astype(np.int64)
    return best


@dataclass(frozen=True, slots=True)
class _Parts:
    """Placements of some of the containers: what each costs so far, each device's load, and where containers are."""

    cost: Floats
    load: Floats
    where: "np.ndarray[tuple[int, ...], np.dtype[np.int16]]"

    def some(self, rows: Ints | Bools | slice) -> "_Parts":
        return _Parts(self.cost[rows], self.load[rows], self.where[rows])


def part_bytes(arrays: Arrays) -> int:
    """The memory that one part takes."""
    return 8 + 8 * len(arrays.capacity) + 2 * arrays.count


def _nothing_placed(arrays: Arrays) -> _Parts:
    return _Parts(np.zeros(1), np.zeros((1, len(arrays.capacity))), np.zeros((1, arrays.count), dtype=np.int16))


class _Steps:
    """Places one container after the other, large ones first: small ones fill what the large ones leave."""

    def __init__(self, arrays: Arrays, costs: Shares) -> None:
        self._arrays = arrays
        self._costs = costs
        self._order = np.argsort(-arrays.load, kind="stable").tolist()
        self._left = (arrays.load.sum() - np.cumsum(arrays.load[self._order])).tolist()  # load still to come
        turn = {i: level for level, i in enumerate(self._order)}
        self._earlier: list[list[tuple[Floats, int]]] = [[] for _ in self._order]  # pairs with containers placed before
        for k, e in enumerate(costs.edges.tolist()):
            topic, service = int(arrays.edge_topic[e]), int(arrays.edge_service[e])
            if turn[service] < turn[topic]:
                self._earlier[turn[topic]].append((np.ascontiguousarray(costs.pairs[k].T), service))
            else:
                self._earlier[turn[service]].append((costs.pairs[k], topic))

    def extended(self, level: int, parts: _Parts, excess: float) -> _Parts:
        """Every part with the next container on every device, without those that exceed."""
        arrays, costs, i = self._arrays, self._costs, self._order[level]
        added = np.repeat(costs.single[i][None, :], len(parts.cost), axis=0)
        for pair, other in self._earlier[level]:
            added += pair[parts.where[:, other]]
        left = self._left[level]
        free = np.maximum(arrays.capacity - parts.load - left, 0.0) * costs.room  # what cannot be filled any more
        spent = parts.cost + free.sum(axis=1)
        found = [parts.some(slice(0, 0))]
        for device in np.flatnonzero(costs.single[i] <= excess).tolist():
            load = parts.load[:, device] + arrays.load[i]
            still_free = np.maximum(arrays.capacity[device] - load - left, 0.0) * costs.room[device]
            total = spent - free[:, device] + still_free + added[:, device]
            rows = np.flatnonzero((total <= excess) & (load <= arrays.capacity[device]))
            part = parts.some(rows)
            part.load[:, device] = load[rows]
            part.where[:, i] = device
            found.append(_Parts(part.cost + added[rows, device], part.load, part.where))
        return _Parts(
            np.concatenate([part.cost for part in found]),
            np.concatenate([part.load for part in found]),
            np.concatenate([part.where for part in found]),
        )
