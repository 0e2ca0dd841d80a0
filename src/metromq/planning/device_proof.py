"""The most that a set of a device can be worth: branch and bound on heads, then on fillers, in loops for mypyc."""

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from metromq.planning.device_bound import IN, MAYBE, OUT, SetBound
from metromq.planning.device_sets import Box, floats, ints
from metromq.planning.timing import Deadline

LEFT_OUT: Final[i64] = 2  # what a filler may be, beside open (0) and inside (1)
WALK, STEP = 6, 1.15  # prices of room that a bound tries at most, and by which factor they differ
REACH = 0.004  # by room: so far above what matters, other prices of room are not tried for a head that may come
FILLS = 2_000  # steps on the fillers of one set of heads
HALVINGS = 9
FIRST_PRICE = 0.2  # of room, by the price of all pairs and all load


class Proof(SetBound):
    """A search for more than is known, until none can be left, or `steps` or the time are spent."""

    def __init__(self, box: Box, above: float, steps: int, time: Deadline) -> None:
        super().__init__(box)
        self.time = time
        self.cutoff = above  # what is not worth more does not matter
        self.open = above  # what was left undone may be worth so much
        self.best: list[int] = []
        self.reach = REACH * box.room
        self.value = box.value
        self.steps: i64 = steps
        self.fills: i64 = 0

    def run(self) -> float:
        """More than this no set is worth; `value` and `best` are of the best set it came by."""
        fillers = self.shape.fillers
        nothing = floats([0.0] * int(fillers))
        flow = floats([0.0] * int(self.shape.first[fillers]))
        pairs = 0.0
        for k in range(self.shape.first[fillers]):
            pairs += self.shape.weight[k]
        load = 1e-9
        for i in range(self.shape.count):
            load += self.shape.load[i]
        self.node(nothing, nothing, 0.0, self.box.room, FIRST_PRICE * pairs / load, flow, float("inf"))
        return max(self.open, self.cutoff)

    def node(
        self,
        saved: vec[float],
        paid: vec[float],
        base: float,
        room: float,
        theta: float,
        flow: vec[float],
        bound: float,
    ) -> None:
        """Sets with the heads that are in, and any of those that may be."""
        if self.spent > self.steps or self.time.up():
            self.spent = self.steps + 1
            self.open = max(self.open, bound)
            return
        heads = self.heads
        role = self.role
        before = role[:]
        h: i64 = 0
        while h < heads:
            if role[h] == MAYBE:
                role[h] = OUT
            h += 1
        self.fill_up(saved, paid, base, room, theta, flow)
        h = 0
        while h < heads:
            role[h] = before[h]
            h += 1
        hope = self.hopeful(saved, paid, base, room, theta, flow)
        order = sorted([h for h in range(int(heads)) if role[h] == MAYBE], key=lambda h: hope[h])
        for head in order:
            role[head] = IN
            self.child(head, saved, paid, base, room, theta, flow, hope[head], True)
            role[head] = OUT  # the others come without it
        h = 0
        while h < heads:
            role[h] = before[h]
            h += 1

    def hopeful(
        self, saved: vec[float], paid: vec[float], base: float, room: float, theta: float, flow: vec[float]
    ) -> list[float]:
        """What sets with each head that may come can be worth; those that cannot be worth enough are ruled out."""
        load, fillers = self.shape.load, self.shape.fillers
        hope = [0.0] * int(self.heads)
        for _ in range(2):
            had = gone = 0
            for head in range(int(self.heads)):
                if self.role[head] != MAYBE:
                    continue
                had += 1
                most = self.cutoff
                if load[fillers + head] <= room:
                    self.role[head] = IN
                    most = self.child(head, saved, paid, base, room, theta, flow, float("inf"), False)
                    self.role[head] = MAYBE
                if most <= self.cutoff:
                    self.role[head] = OUT
                    gone += 1
                hope[head] = most
            if 5 * gone <= had:
                break
        return hope

    def child(
        self,
        head: i64,
        saved: vec[float],
        paid: vec[float],
        base: float,
        room: float,
        theta: float,
        flow: vec[float],
        known: float,
        deeper: bool,
    ) -> float:
        """The bound with one head more; `deeper`, what lies below it is searched if that may be worth enough."""
        shape, box = self.shape, self.box
        saved, paid, flow = saved[:], paid[:], flow[:]
        i = shape.fillers + head
        partner, weight, there = shape.partner, shape.weight, box.pays.there
        k = shape.first[i]
        end = shape.first[i + 1]
        while k < end:
            t = partner[k]
            saved[t] += weight[k]
            paid[t] += there[k]
            k += 1
        base += box.own[i]
        room -= shape.load[i]
        if deeper and self.spent > self.steps:
            self.open = max(self.open, known)
            return known
        base_out = base - self.gained(saved, paid)
        most, price = self.walked(base_out, room, theta, flow, float("inf") if deeper else self.reach)
        if deeper and most > self.cutoff:
            self.node(saved, paid, base, room, price, flow, min(most, known))
        return most

    def walked(self, base: float, room: float, theta: float, flow: vec[float], reach: float) -> tuple[float, float]:
        """The least bound over some prices of room, downhill from one; and that price."""
        best = self.bounded(base, room, theta, flow)
        at = theta
        if best <= self.cutoff or best > self.cutoff + reach:
            return best, at
        used = 0.0
        t: i64 = 0
        while t < self.shape.fillers:
            if self.want[t] > 0.0:
                used += self.shape.load[t]
            t += 1
        factor = STEP if used > room else 1.0 / STEP
        tried = theta
        for n in range(WALK):
            tried *= factor
            most = self.bounded(base, room, tried, flow)
            if most < best:
                best, at = most, tried
                if best <= self.cutoff:
                    break
            elif n == 0:
                factor, tried = 1.0 / factor, theta
            else:
                break
        return best, at

    def fill_up(
        self, saved: vec[float], paid: vec[float], base: float, room: float, theta: float, flow: vec[float]
    ) -> None:
        """The heads that are in, and any fillers."""
        base -= self.gained(saved, paid)
        self.fills = 0
        state = ints([0] * int(self.shape.fillers))
        self.filled(state, base, room, theta, flow[:])

    def filled(self, state: vec[i64], value: float, room: float, theta: float, flow: vec[float]) -> None:
        """Bounds what open fillers may add, then decides on one of them."""
        shape, gain, want = self.shape, self.gain, self.want
        load, fillers = shape.load, shape.fillers
        low, high = 0.0, -1.0
        best, at = float("inf"), theta
        self.fills += 1
        inflow = floats([0.0] * int(fillers))
        for _ in range(HALVINGS):
            self.spent += 1
            t: i64 = 0
            while t < fillers:
                want[t] = gain[t] - theta * load[t] if state[t] == 0 and load[t] <= room else 0.0
                t += 1
            self.come(room)
            bound = value + theta * room + self.flown(flow)
            used = 0.0
            t = 0
            while t < fillers:
                if want[t] > 0.0:
                    used += load[t]
                t += 1
            if bound < best:
                best, at = bound, theta
                if best <= self.cutoff:
                    return
                t = 0
                while t < fillers:
                    inflow[t] = gain[t] - theta * load[t] - want[t]
                    t += 1
            if used <= room:
                high = theta
                if theta <= 1e-9:
                    break
            else:
                low = theta
            theta = theta * 1.3 + 1e-4 if high < 0.0 else 0.5 * (low + high)
            if high >= 0.0 and high - low < 1e-3 * high:
                break
        self.completed(state, value, room)
        if best <= self.cutoff:
            return
        if self.fills > FILLS:
            self.open = max(self.open, best)
            return
        one = self.branched(state, room, at, inflow)
        if one < 0:
            return
        state = state[:]
        rest = self.rest[:]
        state[one] = 1
        taken = self.takes(one)
        self.filled(state, value + gain[one] - taken, room - load[one], at, flow[:])
        self.rest = rest
        state[one] = LEFT_OUT
        self.filled(state, value, room, at, flow)

    def branched(self, state: vec[i64], room: float, theta: float, inflow: vec[float]) -> i64:
        """The open filler of which heads outside take most; where they take nothing, the densest."""
        load, gain = self.shape.load, self.gain
        best: i64 = -1
        dense: i64 = -1
        most = 0.0
        densest = 0.0
        t: i64 = 0
        while t < self.shape.fillers:
            if state[t] == 0 and load[t] <= room:
                if gain[t] > theta * load[t] and inflow[t] > most:
                    best, most = t, inflow[t]
                if gain[t] > densest * (load[t] + 1e-9):
                    dense, densest = t, gain[t] / (load[t] + 1e-9)
            t += 1
        return best if best >= 0 else dense

    def takes(self, t: i64) -> float:
        """What heads outside take for a filler that comes in; so much less is left to them."""
        shape, there, rest = self.shape, self.box.pays.there, self.rest
        total = 0.0
        k = shape.first[t]
        end = shape.first[t + 1]
        while k < end:
            h = shape.partner[k] - shape.fillers
            if self.role[h] == OUT:
                x = min(rest[h], there[k])
                rest[h] -= x
                total += x
            k += 1
        return total

    def completed(self, state: vec[i64], value: float, room: float) -> None:
        """A whole set: fillers as long as they are worth something, the densest first."""
        shape, gain, there = self.shape, self.gain, self.box.pays.there
        load, first, partner, fillers = shape.load, shape.first, shape.partner, shape.fillers
        rest, state = self.rest, state[:]
        kept = rest[:]
        while True:
            best, one, worth = 0.0, -1, 0.0
            t: i64 = 0
            while t < fillers:
                if state[t] == 0 and load[t] <= room:
                    much = gain[t]
                    k = first[t]
                    end = first[t + 1]
                    while k < end:
                        h = partner[k] - fillers
                        if self.role[h] == OUT:
                            much -= min(rest[h], there[k])
                        k += 1
                    if much > best * (load[t] + 1e-9):
                        best, one, worth = much / (load[t] + 1e-9), int(t), much
                t += 1
            if one < 0:
                break
            state[one] = 1
            value += worth
            room -= load[one]
            self.takes(one)
        self.rest = kept
        if value > self.value:
            self.value = value
            self.best = [int(t) for t in range(fillers) if state[t] == 1]
            self.best += [int(fillers + h) for h in range(self.heads) if self.role[h] == IN]
            self.cutoff = max(self.cutoff, value)
