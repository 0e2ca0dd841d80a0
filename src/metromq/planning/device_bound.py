"""More than which no set of a device can be worth, as long as it is open which heads and fillers are in it.

A bound prices room. A head outside takes up to its price from the fillers that are its partners, whichever of them are
inside: so what it takes may be split over them (a flow), and every split is valid. A head that may still come spreads
its cost over its partners likewise, and a filler counts those that fit beside it. `device_proof.py` branches on it.
"""

from librt.vecs import vec
from mypy_extensions import i64

from metromq.planning.device_sets import Box, floats, ints

OUT: i64 = 0  # what a head may be
MAYBE: i64 = 1
IN: i64 = 2


class SetBound:
    """One device at given prices, and the role of each head. It has many attributes, because a search changes them
    from node to node and its loops read them."""

    def __init__(self, box: Box) -> None:
        shape = box.shape
        self.box, self.shape = box, shape
        self.spent: i64 = 0  # bounds so far
        fillers, heads = int(shape.fillers), int(shape.count - shape.fillers)
        self.heads: i64 = heads
        self.role = ints([1] * heads)
        self.gain = floats([0.0] * fillers)  # of a filler, at the heads that are in
        self.left = floats([0.0] * heads)  # what a head outside may still take
        self.rest = floats([float(box.cap[i]) for i in range(shape.fillers, shape.count)])
        self.want = floats([0.0] * fillers)  # what a filler is worth before heads outside take theirs
        self.alive = ints([0] * fillers)
        self.width: i64 = max([int(shape.first[t + 1] - shape.first[t]) for t in range(fillers)] + [1])
        places = fillers * int(self.width)
        self.more = floats([0.0] * places)  # what heads that may come add to a filler,
        self.weigh = floats([0.0] * places)  # and their load
        self.many = ints([0] * fillers)

    def gained(self, saved: vec[float], paid: vec[float]) -> float:
        """Sets what each filler is worth inside rather than outside; returns what is paid if all are outside."""
        box, gain, fillers, third = self.box, self.gain, self.shape.fillers, self.shape.third
        own, cap, cap3 = box.own, box.cap, box.cap3
        total = 0.0
        t: i64 = 0
        while t < fillers:
            pays = paid[t] if paid[t] < cap[t] else cap[t]
            if cap3[t] > 0.0:
                pays += min(cap3[t], third * saved[t])
            total += pays
            gain[t] = own[t] + saved[t] + pays
            t += 1
        return total

    def bounded(self, base: float, room: float, theta: float, flow: vec[float]) -> float:
        """No set with the heads that are in, and some of those that may be, is worth more."""
        self.spent += 1
        shape = self.shape
        want, gain, alive, load, partner = self.want, self.gain, self.alive, shape.load, shape.partner
        fillers, width = shape.fillers, self.width
        t: i64 = 0
        while t < fillers:
            want[t] = gain[t] - theta * load[t]
            self.many[t] = 0
            t += 1
        h: i64 = 0
        while h < self.heads:
            if self.role[h] == MAYBE:
                k = shape.first[fillers + h]
                end = shape.first[fillers + h + 1]
                while k < end:
                    want[partner[k]] += shape.weight[k]
                    k += 1
            h += 1
        t = 0
        while t < fillers:
            alive[t] = 1 if want[t] > 0.0 and load[t] <= room else 0
            want[t] = gain[t] - theta * load[t]
            t += 1
        bound = base + theta * room
        h = 0
        while h < self.heads:
            if self.role[h] == MAYBE:
                bound += self.spread(h, theta)
            h += 1
        t = 0
        while t < fillers:
            if alive[t]:
                free = room - load[t] + 1e-6  # heads count a trifle more than their load
                k = t * width
                end = k + self.many[t]
                while k < end:
                    if self.weigh[k] <= free:
                        want[t] += self.more[k]
                        free -= self.weigh[k]
                    else:
                        want[t] += self.more[k] * free / self.weigh[k]
                        break
                    k += 1
            else:
                want[t] = 0.0
            t += 1
        return bound + self.flown(flow)

    def spread(self, h: i64, theta: float) -> float:
        """Tells a head's partners what it may add to them, sorted by that per load; returns what it adds by itself."""
        shape, want, alive, more, weigh = self.shape, self.want, self.alive, self.more, self.weigh
        partner, weight, there = shape.partner, shape.weight, self.box.pays.here
        i = shape.fillers + h
        load = shape.load[i] + 1e-9
        alone = self.box.own[i] - theta * shape.load[i]
        whole = 0.0
        takes = 0.0
        first = shape.first[i]
        end = shape.first[i + 1]
        k = first
        while k < end:
            if alive[partner[k]]:
                takes += there[k]
                whole += weight[k]
            k += 1
        part = min(1.0, self.rest[h] / takes) if takes > 0.0 else 0.0
        whole += part * takes
        share = 1.0
        if alone < 0.0:
            share = max(0.0, 1.0 + alone / whole) if whole > 0.0 else 0.0
        k = first
        while k < end:
            t = partner[k]
            if alive[t]:
                outside = part * there[k]
                want[t] -= outside
                adds = (weight[k] + outside) * share
                if adds > 0.0:
                    at = t * self.width + self.many[t]
                    start = t * self.width
                    while at > start and more[at - 1] * load < adds * weigh[at - 1]:
                        more[at] = more[at - 1]
                        weigh[at] = weigh[at - 1]
                        at -= 1
                    more[at] = adds
                    weigh[at] = load
                    self.many[t] += 1
            k += 1
        return alone if alone > 0.0 else 0.0

    def flown(self, flow: vec[float]) -> float:
        """What heads outside leave of what fillers want: first as in `flow`, then whatever they may still take."""
        shape, want, left, role = self.shape, self.want, self.left, self.role
        first, partner, fillers, there = shape.first, shape.partner, shape.fillers, self.box.pays.there
        h: i64 = 0
        while h < self.heads:
            left[h] = self.rest[h] if role[h] == OUT else 0.0
            h += 1
        t: i64 = 0
        while t < fillers:
            much = want[t]
            k = first[t]
            end = first[t + 1]
            while k < end:
                h = partner[k] - fillers
                x = flow[k]
                if x > 0.0:
                    if x > left[h]:
                        x = left[h]
                    if x > much:
                        x = much
                    if x < 0.0:
                        x = 0.0
                    flow[k] = x
                    left[h] -= x
                    much -= x
                k += 1
            want[t] = much
            t += 1
        total = 0.0
        t = 0
        while t < fillers:
            much = want[t]
            k = first[t]
            end = first[t + 1]
            while k < end and much > 0.0:
                h = partner[k] - fillers
                x = there[k] - flow[k]
                if x > left[h]:
                    x = left[h]
                if x > much:
                    x = much
                if x > 0.0:
                    flow[k] += x
                    left[h] -= x
                    much -= x
                k += 1
            if much < 0.0:
                much = 0.0
            want[t] = much
            total += much
            t += 1
        return total
