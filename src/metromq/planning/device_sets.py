"""What runs best on one device, if it pays for partners elsewhere from both ends: the search behind `two_sided.py`.

Plain loops over packed numbers, which mypyc compiles. Containers are numbered fillers first, then heads. A set is worth
its own worth and the pairs inside it; for a container outside it pays what its pairs with the set cost, up to a price.
"""

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

MOST = 40  # sets remembered
STEPS = 60  # of a climb, at most; few take more than ten
LEAST: Final = 1e-6  # that a change must be worth
NOTHING: Final = -1e300
MULTIPLIER: Final[i64] = 48_271  # of Park and Miller's generator
MODULUS: Final[i64] = 2_147_483_647


def floats(numbers: list[float]) -> vec[float]:
    return vec[float](numbers)


def ints(numbers: list[int]) -> vec[i64]:
    return vec[i64](numbers)


class Shape:
    """What never changes: loads, and each container's partners in rows, from `first[i]` to `first[i + 1]`."""

    def __init__(
        self, fillers: int, load: list[float], first: list[int], partner: list[int], weight: list[float], third: float
    ) -> None:
        self.fillers: i64 = fillers
        self.count: i64 = len(load)
        self.load = floats(load)
        self.first = ints(first)
        self.partner = ints(partner)
        self.weight = floats(weight)  # what a pair saves on one device
        self.third = third  # what a third hop costs, by the first
        self.thirds = floats([third * one for one in weight])


class Pays:
    """By row of a shape: what a pair adds to its partner's sum if this end is inside, and to this end's if that is."""

    def __init__(self, there: list[float], here: list[float]) -> None:
        self.there = floats(there)
        self.here = floats(here)


class Box:
    """One device: its prices, a set under change, and the sets known. Many attributes, because loops read them."""

    def __init__(self, shape: Shape, room: float, seed: int) -> None:
        self.shape = shape
        self.room = room
        self.state: i64 = 1 + seed
        nothing = [0.0] * len(shape.load)
        self.own = floats(nothing)
        self.cap = floats(nothing)  # at most so much is paid for a container outside
        self.cap3 = floats(nothing)  # the same for the third hop
        self.pays = Pays([], [])
        self.inside = ints([0] * len(shape.load))
        self.saved = floats(nothing)  # what a container's pairs with the set are worth
        self.paid = floats(nothing)  # what the device pays for it if it is outside, before the price
        self.slack = floats(nothing)  # what the price leaves to be paid for a container outside,
        self.slack3 = floats(nothing)  # and for its third hop
        self.used = 0.0
        self.value = 0.0
        self.pool: list[list[int]] = [[]]

    def price(self, own: list[float], cap: list[float], cap3: list[float], pays: Pays) -> None:
        self.own, self.cap, self.cap3, self.pays = floats(own), floats(cap), floats(cap3), pays

    def members(self) -> list[int]:
        return [int(i) for i in range(self.shape.count) if self.inside[i]]

    def over(self) -> list[float]:
        """Whether more than the price would be paid for each container outside."""
        count = self.shape.count
        return [1.0 if not self.inside[i] and self.paid[i] > self.cap[i] else 0.0 for i in range(count)]

    def over3(self) -> list[float]:
        third, count = self.shape.third, self.shape.count
        return [1.0 if not self.inside[i] and third * self.saved[i] > self.cap3[i] else 0.0 for i in range(count)]

    def put(self, members: list[int]) -> None:
        """A set from scratch."""
        count = self.shape.count
        inside, saved, paid, slack, slack3 = self.inside, self.saved, self.paid, self.slack, self.slack3
        cap, cap3 = self.cap, self.cap3
        i: i64 = 0
        while i < count:
            inside[i] = 0
            saved[i] = 0.0
            paid[i] = 0.0
            slack[i] = cap[i]
            slack3[i] = cap3[i]
            i += 1
        self.used = self.value = 0.0
        for m in members:
            self.flip(m, self.change(m))

    def change(self, i: i64) -> float:
        """What it is worth to take container i in, or out."""
        return self.lost(i) if self.inside[i] else self.added(i, NOTHING)

    def added(self, i: i64, above: float) -> float:
        """What it is worth to take container i in; if that is not more than `above`, anything that is not either."""
        shape = self.shape
        saved, slack, slack3 = self.saved, self.slack, self.slack3
        gain = self.own[i] + saved[i] + min(self.cap[i], self.paid[i])
        if self.cap3[i] > 0.0:
            gain += min(self.cap3[i], shape.third * saved[i])
        if gain <= above:
            return gain
        partner, there = shape.partner, self.pays.there
        k = shape.first[i]
        end = shape.first[i + 1]
        while k < end:
            left = slack[partner[k]]
            gain -= there[k] if there[k] < left else left
            k += 1
        if i >= shape.fillers and shape.third > 0.0 and gain > above:
            thirds = shape.thirds
            k = shape.first[i]
            while k < end:
                left = slack3[partner[k]]
                gain -= thirds[k] if thirds[k] < left else left
                k += 1
        return gain

    def lost(self, i: i64) -> float:
        """What it is worth to take container i out."""
        shape = self.shape
        inside, saved, paid, cap, cap3 = self.inside, self.saved, self.paid, self.cap, self.cap3
        partner, there, third, thirds = shape.partner, self.pays.there, shape.third, shape.thirds
        gain = -self.own[i] - saved[i] - min(cap[i], paid[i])
        if cap3[i] > 0.0:
            gain -= min(cap3[i], third * saved[i])
        k = shape.first[i]
        end = shape.first[i + 1]
        while k < end:
            j = partner[k]
            if not inside[j]:
                over = paid[j] - cap[j]
                gain += there[k] - over if 0.0 < over < there[k] else 0.0 if over > 0.0 else there[k]
                if cap3[j] > 0.0:
                    over = third * saved[j] - cap3[j]
                    gain += thirds[k] - over if 0.0 < over < thirds[k] else 0.0 if over > 0.0 else thirds[k]
            k += 1
        return gain

    def flip(self, i: i64, change: float) -> None:
        shape, inside = self.shape, self.inside
        partner, weight, there, third = shape.partner, shape.weight, self.pays.there, shape.third
        saved, paid, slack, slack3, cap, cap3 = self.saved, self.paid, self.slack, self.slack3, self.cap, self.cap3
        sign = -1.0 if inside[i] else 1.0
        inside[i] = 0 if inside[i] else 1
        self.used += sign * shape.load[i]
        slack[i] = 0.0 if inside[i] else max(cap[i] - paid[i], 0.0)
        slack3[i] = 0.0 if inside[i] else max(cap3[i] - third * saved[i], 0.0)
        k = shape.first[i]
        end = shape.first[i + 1]
        while k < end:
            j = partner[k]
            saved[j] += sign * weight[k]
            paid[j] += sign * there[k]
            if not inside[j]:
                slack[j] = max(cap[j] - paid[j], 0.0)
                slack3[j] = max(cap3[j] - third * saved[j], 0.0)
            k += 1
        self.value += change

    def climb(self) -> None:
        """One container more, less, or instead of another, as long as that is worth something."""
        count, inside = self.shape.count, self.inside
        for _ in range(STEPS):
            best = LEAST
            one: i64 = -1
            other: i64 = -1
            i: i64 = 0
            while i < count:
                if inside[i]:
                    change = self.lost(i)
                    if change > best:
                        best, one = change, i
                i += 1
            newcomer = self.newcomer(-1, best)
            if newcomer >= 0:
                one = newcomer
            i = 0
            while one < 0 and i < count:
                if inside[i]:
                    without = self.lost(i)
                    self.flip(i, without)
                    other = self.newcomer(i, LEAST - without)
                    self.flip(i, self.change(i))
                    if other >= 0:
                        one = i
                i += 1
            if one < 0:
                return
            self.flip(one, self.change(one))
            if other >= 0:
                self.flip(other, self.change(other))

    def newcomer(self, but: i64, above: float) -> i64:
        """The container that is worth most if it comes in, if that is more than `above`; else -1."""
        count, load, inside = self.shape.count, self.shape.load, self.inside
        free = self.room - self.used
        best: i64 = -1
        j: i64 = 0
        while j < count:
            if not inside[j] and load[j] <= free and j != but:
                change = self.added(j, above)
                if change > above:
                    above, best = change, j
            j += 1
        return best

    def drawn(self, below: i64) -> i64:
        self.state = self.state * MULTIPLIER % MODULUS
        return self.state % below

    def kicked(self) -> None:
        """A head comes or goes, and whatever is worth least makes room for it."""
        shape = self.shape
        if shape.count == shape.fillers:
            return
        head = shape.fillers + self.drawn(shape.count - shape.fillers)
        self.flip(head, self.change(head))
        while self.used > self.room:
            worst: i64 = -1
            least = 0.0
            i: i64 = 0
            while i < shape.count:
                if self.inside[i] and i != head:
                    density = self.change(i) / (shape.load[i] + 1e-9)
                    if worst < 0 or density > least:
                        worst, least = i, density
                i += 1
            i = worst if worst >= 0 else head
            self.flip(i, self.change(i))

    def refilled(self) -> None:
        """The same heads with fillers anew, each where it is worth most by its load."""
        shape = self.shape
        i: i64 = 0
        while i < shape.fillers:
            if self.inside[i]:
                self.flip(i, self.change(i))
            i += 1
        while True:
            best, one = 0.0, -1
            i = 0
            while i < shape.fillers:
                if not self.inside[i] and self.used + shape.load[i] <= self.room:
                    density = self.change(i) / (shape.load[i] + 1e-9)
                    if density > best:
                        best, one = density, int(i)
                i += 1
            if one < 0:
                return
            self.flip(one, self.change(one))

    def search(self, kicks: int) -> float:
        """The best set that is found next to those known, which it leaves put."""
        values: list[float] = []
        for members in self.pool:
            self.put(members)
            values.append(self.value)
        top = max(values)
        at = values.index(top)
        self.put(self.pool[at])
        self.climb()
        best, value = self.members(), self.value
        for n in range(kicks):
            self.put(self.pool[self.drawn(len(self.pool))] if n & 1 else best)
            for _ in range(1 + int(self.drawn(3))):
                self.kicked()
            if self.drawn(4):
                self.refilled()
            self.climb()
            if self.value > value + 1e-6:
                best, value = self.members(), self.value
        self.keep(best, values)
        self.put(best)
        return self.value

    def top(self, count: int) -> list[list[int]]:
        """The sets known that are worth most at these prices."""
        values: list[tuple[float, int]] = []
        for n, members in enumerate(self.pool):
            self.put(members)
            values.append((-self.value, n))
        values.sort()
        return [self.pool[n] for _, n in values[:count]]

    def keep(self, members: list[int], values: list[float]) -> None:
        """Remembers a set, in place of the one worth least if there are too many; the first is empty and stays."""
        if members in self.pool:
            return
        if len(self.pool) < MOST or len(values) < MOST:
            self.pool.append(members)
            return
        worst = 1
        for n in range(1, len(values)):
            if values[n] < values[worst]:
                worst = n
        self.pool[worst] = members
