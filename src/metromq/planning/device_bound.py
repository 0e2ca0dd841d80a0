"""More than which no set of a device can be worth, as long as it is open which heads and fillers are in it.

A bound prices room. A head outside takes up to its price from the fillers that are its partners, whichever of them are
inside: so what it takes may be split over them (a flow), and every split is valid. A head that may still come spreads
its cost over its partners likewise, and a filler counts those that fit beside it. `device_proof.py` branches on it.
"""

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from metromq.planning.device_sets import Box, floats, ints

OUT: Final[i64] = 0  # what a head may be
MAYBE: Final[i64] = 1
IN: Final[i64] = 2
NEVER: Final = 1e300  # a load that no device has room for
TRIFLE: Final = 1e-6  # of load, for rounding


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
        self.coming = ints([0] * heads)  # heads that may come and for which there is room: the first `able`
        self.able: i64 = 0
        self.width: i64 = max([int(shape.first[t + 1] - shape.first[t]) for t in range(fillers)] + [1])
        places = fillers * int(self.width)
        self.more = floats([0.0] * places)  # what heads that may come add to a filler that they fit beside,
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
        self.come(room)
        self.enliven(room, theta)
        bound = base + theta * room
        n: i64 = 0
        while n < self.able:
            bound += self.spread(self.coming[n], room, theta)
            n += 1
        want, many, load = self.want, self.many, self.shape.load
        t: i64 = 0
        while t < self.shape.fillers:
            if many[t]:
                want[t] += self.joined(t, room - load[t] + TRIFLE)
            t += 1
        return bound + self.flown(flow)

    def come(self, room: float) -> None:
        """Tells heads that may come from those outside; who has no room left is outside as well."""
        role, rest, left, coming, load = self.role, self.rest, self.left, self.coming, self.shape.load
        fillers, heads = self.shape.fillers, self.heads
        able: i64 = 0
        h: i64 = 0
        while h < heads:
            left[h] = 0.0
            if role[h] == MAYBE and load[fillers + h] <= room + TRIFLE:
                coming[able] = h
                able += 1
            elif role[h] != IN:
                left[h] = rest[h]
            h += 1
        self.able = able

    def enliven(self, room: float, theta: float) -> None:
        """What each filler is worth by itself; it is alive if heads that fit beside it may make it worth something."""
        shape, want, gain, alive, many = self.shape, self.want, self.gain, self.alive, self.many
        first, partner, weight, load, coming = shape.first, shape.partner, shape.weight, shape.load, self.coming
        fillers = shape.fillers
        t: i64 = 0
        while t < fillers:
            want[t] = gain[t] - theta * load[t]
            many[t] = 0
            t += 1
        n: i64 = 0
        while n < self.able:
            i = fillers + coming[n]
            free = room - load[i] + TRIFLE
            k = first[i]
            end = first[i + 1]
            while k < end:
                t = partner[k]
                want[t] += weight[k] if load[t] <= free else 0.0
                k += 1
            n += 1
        t = 0
        while t < fillers:
            alive[t] = 0
            if want[t] > 0.0 and load[t] <= room:
                alive[t] = 1
                want[t] = gain[t] - theta * load[t]
            else:
                want[t] = 0.0
            t += 1

    def spread(self, h: i64, room: float, theta: float) -> float:
        """Tells a head's partners what it may add to them, and takes from them its part of what it takes if it stays
        outside; returns what it adds by itself."""
        shape, want, alive, more, weigh, many = self.shape, self.want, self.alive, self.more, self.weigh, self.many
        partner, weight, there, load = shape.partner, shape.weight, self.box.pays.here, shape.load
        i = shape.fillers + h
        free = room - load[i] + TRIFLE
        alone = self.box.own[i] - theta * load[i]
        takes = 0.0  # from all partners
        fits = 0.0  # from those that fit beside it
        whole = 0.0
        first = shape.first[i]
        end = shape.first[i + 1]
        k = first
        while k < end:
            t = partner[k]
            if alive[t]:
                takes += there[k]
                if load[t] <= free:
                    fits += there[k]
                    whole += weight[k]
            k += 1
        part = self.rest[h] / takes if takes > self.rest[h] else 1.0
        whole += part * fits
        share = 1.0
        if alone < 0.0:
            share = 1.0 + alone / whole if whole > -alone else 0.0
        k = first
        while k < end:
            t = partner[k]
            if alive[t]:
                outside = part * there[k]
                want[t] -= outside
                if share > 0.0 and load[t] <= free:
                    at = t * self.width + many[t]
                    more[at] = (weight[k] + outside) * share
                    weigh[at] = load[i]
                    many[t] += 1
            k += 1
        return alone if alone > 0.0 else 0.0

    def joined(self, t: i64, free: float) -> float:
        """What heads that may come add to a filler, as far as there is room for them."""
        more, weigh = self.more, self.weigh
        start = t * self.width
        end = start + self.many[t]
        least = NEVER
        second = NEVER
        total = 0.0
        loads = 0.0
        largest = 0.0
        k = start
        while k < end:
            adds = more[k]
            size = weigh[k]
            total += adds
            loads += size
            if adds > largest:
                largest = adds
            if size < least:
                second = least
                least = size
            elif size < second:
                second = size
            k += 1
        if loads <= free:
            return total
        return largest if least + second > free else self.packed(start, end, free)

    def packed(self, start: i64, end: i64, free: float) -> float:
        """The densest first, and a part of the one that is too large."""
        more, weigh = self.more, self.weigh
        total = 0.0
        while start < end:
            best = start
            k = start + 1
            while k < end:
                if more[k] * weigh[best] > more[best] * weigh[k]:
                    best = k
                k += 1
            if weigh[best] > free:
                return total + more[best] * free / weigh[best]
            total += more[best]
            free -= weigh[best]
            end -= 1
            more[best] = more[end]
            weigh[best] = weigh[end]
        return total

    def flown(self, flow: vec[float]) -> float:
        """What heads outside leave of what fillers want: first as in `flow`, then whatever is `left` to them.

        What `flow` says of a filler that wants nothing stays as it was, for a time when it wants something again."""
        shape, want, left = self.shape, self.want, self.left
        first, partner, fillers, there = shape.first, shape.partner, shape.fillers, self.box.pays.there
        t: i64 = 0
        while t < fillers:
            much = want[t]
            if much > 0.0:
                k = first[t]
                end = first[t + 1]
                while k < end:
                    x = flow[k]
                    if x > 0.0:
                        h = partner[k] - fillers
                        if x > left[h]:
                            x = left[h]
                        if x > much:
                            x = much
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
            if much > 0.0:
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
                want[t] = much
                total += much
            else:
                want[t] = 0.0
            t += 1
        return total
