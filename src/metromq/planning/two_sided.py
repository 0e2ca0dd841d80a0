"""The bound by sets in which both ends of a pair pay for a second hop, where the loops for it are compiled.

As in `set_prices.py`, a device pays for each filler that its heads use and that is not near, up to a price; here it
pays for each head that uses its fillers likewise. A pair's second hop is shared between its ends, and the shares climb
with the prices. `device_sets.py` finds sets, and `device_proof.py` says more than which none can be worth.
"""

from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Floats, Ints
from metromq.planning.climbing import Climb, Pace
from metromq.planning.device_sets import Box, Pays, Shape
from metromq.planning.sets import Sides

KICKS = 6  # new starts of the local search, per device and round; with fewer, prices climb that sets missed belie
PACE = Pace(hoped=0.06, least_way=0.006, shorter=0.997)  # the bound ends 4 to 7 % below the first placement


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices in one row: containers, nearness [device, container] for second and third hops, shares of pairs."""

    numbers: Floats
    containers: int
    devices: int

    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        size, numbers = self.containers * self.devices, self.numbers
        cap, cap3, share = np.split(numbers[self.containers :], [size, 2 * size])
        shape = self.devices, self.containers
        return numbers[: self.containers], cap.reshape(shape), cap3.reshape(shape), share


class Ascent(Climb):
    """Prices on their way up, and a box of known sets for each device. Containers are numbered fillers first; it has
    many attributes because each is a step of the same climb."""

    def __init__(self, arrays: Arrays, split: Sides, start: Ints, target: float) -> None:
        self.order = np.concatenate([split.fillers, split.heads])
        self.linear, self.load = arrays.linear[self.order], arrays.load[self.order]
        count, devices = self.linear.shape
        self.count, self.devices, self.fillers = count, devices, len(split.fillers)
        head, filler = np.nonzero(split.value)
        self.filler, self.head = filler, head + self.fillers
        self.weight = split.value[head, filler]
        levels = len(split.further)
        self.second = self.weight * (split.further[0] if levels else 0.0)
        self.near = [split.near[n].astype(np.float64) if n < levels else np.zeros((devices, devices)) for n in (0, 1)]
        self.third = float(split.further[1]) if levels > 1 else 0.0
        self.apart = float(split.value.sum()) + arrays.goal.latency * float(arrays.reach.min(axis=1).max(initial=0))
        self.rows = self._rows()
        self.shape = self.made()
        self.boxes = [Box(self.shape, float(room), 1 + d) for d, room in enumerate(arrays.capacity)]
        here = start[self.order]
        for d, box in enumerate(self.boxes):
            box.keep(np.flatnonzero(here == d).tolist(), [])
        low = np.concatenate([np.full(count, -np.inf), np.zeros(2 * count * devices + len(self.weight))])
        high = np.concatenate([np.full(count + 2 * count * devices, np.inf), self.second])
        super().__init__(self._first(here), low, high, target, PACE)

    def _rows(self) -> tuple[Ints, Ints, Ints]:
        """For each container its pairs, one after the other: where they begin, the other end, the pair."""
        ends = np.concatenate([self.filler, self.head])
        other = np.concatenate([self.head, self.filler])
        order = np.argsort(ends, kind="stable")
        first = np.searchsorted(ends[order], np.arange(self.count + 1))
        return first, other[order], np.tile(np.arange(len(self.filler)), 2)[order]

    def made(self) -> Shape:
        return Shape(*self.shaped())

    def shaped(self) -> tuple[int, list[float], list[int], list[int], list[float], float]:
        first, other, pair = self.rows
        weight = self.weight[pair].tolist()
        return self.fillers, self.load.tolist(), first.tolist(), other.tolist(), weight, self.third

    def _first(self, here: Ints) -> Floats:
        """What each container costs in a placement; what a pair saves on one device is halved between its ends."""
        prices = self.linear[np.arange(self.count), here]
        saved = np.where(here[self.filler] == here[self.head], self.weight, 0.0) / 2
        np.subtract.at(prices, self.filler, saved)
        np.subtract.at(prices, self.head, saved)
        return np.concatenate([prices, np.zeros(2 * self.count * self.devices), self.second / 2])

    def paid(self, numbers: Floats) -> tuple[list[float], list[float]]:
        """By row, what a pair adds to the other end's sum if this end is on a device, and the other way round."""
        _, _, pair = self.rows
        share = Tariff(numbers, self.count, self.devices).parts()[3][pair]
        rest = self.second[pair] - share
        of_filler = np.repeat(np.arange(self.count), np.diff(self.rows[0])) < self.fillers
        return np.where(of_filler, rest, share).tolist(), np.where(of_filler, share, rest).tolist()

    def own(self, numbers: Floats) -> Floats:
        container, cap, cap3, _ = Tariff(numbers, self.count, self.devices).parts()
        own: Floats = container[None, :] - self.linear.T + self.near[0].T @ cap + self.near[1].T @ cap3
        return own

    def caps(self, numbers: Floats) -> tuple[list[list[float]], list[list[float]]]:
        _, cap, cap3, _ = Tariff(numbers, self.count, self.devices).parts()
        return cap.tolist(), cap3.tolist()

    def put_prices(self, numbers: Floats) -> None:
        cap, cap3 = self.caps(numbers)
        pays = Pays(*self.paid(numbers))
        for d, (box, own) in enumerate(zip(self.boxes, self.own(numbers).tolist(), strict=True)):
            box.price(own, cap[d], cap3[d], pays)

    def looked(self, numbers: Floats) -> tuple[float, Floats]:
        """The bound if there were no better sets than those found; and the way up from here."""
        self.put_prices(numbers)
        value = self.apart + float(numbers[: self.count].sum())
        inside = np.zeros((self.devices, self.count))
        over, over3 = np.zeros_like(inside), np.zeros_like(inside)
        for d, box in enumerate(self.boxes):
            value -= box.search(KICKS)
            inside[d, box.members()] = 1.0
            over[d], over3[d] = box.over(), box.over3()
        cap = over - self.near[0] @ inside
        cap3 = over3 - self.near[1] @ inside
        cap3[:, self.fillers :] = 0.0
        open_ends = (1 - inside) * (1 - over)
        share = (inside[:, self.head] * open_ends[:, self.filler]).sum(axis=0)
        share -= (inside[:, self.filler] * open_ends[:, self.head]).sum(axis=0)
        if not self.third:
            cap3[:] = 0.0
        return value, np.concatenate([1.0 - inside.sum(axis=0), cap.ravel(), cap3.ravel(), share])

    def look(self, kicks: int) -> None:
        """A longer search for sets at the best prices; what they seemed to bound may turn out to be less."""
        self.put_prices(self.kept)
        self.best = self.apart + float(self.kept[: self.count].sum())
        for box in self.boxes:
            self.best -= box.search(kicks)
