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
NEVER: Final = 1e300  # the load of a head that does not come
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
        self.coming = floats([0.0] * heads)  # the load of a head that may come, else `NEVER`
        self.takes_ = floats([0.0] * heads)  # what such a head takes if it stays outside and all partners come,
        self.part = floats([0.0] * heads)  # which part of that it may take,
        self.fits = floats([0.0] * heads)  # the same for the partners that fit beside it,
        self.whole = floats([0.0] * heads)  # what it adds to those,
        self.share = floats([0.0] * heads)  # and which part of that is left when its own cost is paid
        width = max([int(shape.first[t + 1] - shape.first[t]) for t in range(fillers)] + [1])
        self.more = floats([0.0] * width)  # what heads that may come add to a filler,
        self.weigh = floats([0.0] * width)  # and their load

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
        self.enlivened(room, theta)
        bound = base + theta * room + self.spread(theta)
        want, alive = self.want, self.alive
        t: i64 = 0
        while t < self.shape.fillers:
            if alive[t]:
                want[t] += self.joined(t, room)
            t += 1
        return bound + self.flown(flow)

    def come(self, room: float) -> None:
        """Tells heads that may come from those outside; who has no room left is outside as well."""
        role, rest, left, coming, load = self.role, self.rest, self.left, self.coming, self.shape.load
        fillers, heads, takes, fits, whole = self.shape.fillers, self.heads, self.takes_, self.fits, self.whole
        h: i64 = 0
        while h < heads:
            coming[h] = NEVER
            left[h] = 0.0
            if role[h] == OUT:
                left[h] = rest[h]
            elif role[h] == MAYBE:
                more = load[fillers + h]
                if more <= room + TRIFLE:
                    coming[h] = more
                    takes[h] = 0.0
                    fits[h] = 0.0
                    whole[h] = 0.0
                else:
                    left[h] = rest[h]
            h += 1

    def enlivened(self, room: float, theta: float) -> None:
        """What each filler is worth by itself; it is alive if heads that fit beside it may make it worth something.
        Heads that may come count what they could take from those, and add to them."""
        shape, want, gain, alive, coming = self.shape, self.want, self.gain, self.alive, self.coming
        first, partner, weight, load, there = shape.first, shape.partner, shape.weight, shape.load, self.box.pays.there
        fillers, takes, fits, whole = shape.fillers, self.takes_, self.fits, self.whole
        t: i64 = 0
        while t < fillers:
            worth = gain[t] - theta * load[t]
            free = room - load[t] + TRIFLE
            want[t] = 0.0
            alive[t] = 0
            if load[t] <= room:
                begin = first[t]
                end = first[t + 1]
                hoped = worth
                k = begin
                while k < end and hoped <= 0.0:
                    if coming[partner[k] - fillers] <= free:
                        hoped += weight[k]
                    k += 1
                if hoped > 0.0:
                    want[t] = worth
                    alive[t] = 1
                    k = begin
                    while k < end:
                        h = partner[k] - fillers
                        more = coming[h]
                        if more < NEVER:
                            takes[h] += there[k]
                            if more <= free:
                                fits[h] += there[k]
                                whole[h] += weight[k]
                        k += 1
            t += 1

    def spread(self, theta: float) -> float:
        """Which part of what it takes or adds a head that may come tells its partners; what such heads are worth by
        themselves."""
        own, load, fillers, rest = self.box.own, self.shape.load, self.shape.fillers, self.rest
        coming, takes, fits, whole, part, share = (
            self.coming,
            self.takes_,
            self.fits,
            self.whole,
            self.part,
            self.share,
        )
        total = 0.0
        h: i64 = 0
        while h < self.heads:
            if coming[h] < NEVER:
                alone = own[fillers + h] - theta * load[fillers + h]
                taken = takes[h]
                some = 1.0 if taken <= rest[h] else rest[h] / taken
                part[h] = some
                share[h] = 1.0
                if alone > 0.0:
                    total += alone
                else:
                    adds = whole[h] + some * fits[h]
                    share[h] = 1.0 + alone / adds if adds > -alone else 0.0
            h += 1
        return total

    def joined(self, t: i64, room: float) -> float:
        """What heads that may come add to a filler, as far as there is room, less what they take if they do not."""
        shape, coming, part, share, more, weigh = self.shape, self.coming, self.part, self.share, self.more, self.weigh
        partner, weight, there, fillers = shape.partner, shape.weight, self.box.pays.there, shape.fillers
        free = room - shape.load[t] + TRIFLE
        least = NEVER
        second = NEVER
        total = 0.0
        loads = 0.0
        largest = 0.0
        taken = 0.0
        count: i64 = 0
        k = shape.first[t]
        end = shape.first[t + 1]
        while k < end:
            h = partner[k] - fillers
            size = coming[h]
            if size < NEVER:
                outside = part[h] * there[k]
                taken += outside
                adds = (weight[k] + outside) * share[h]
                if size <= free and adds > 0.0:
                    more[count] = adds
                    weigh[count] = size
                    count += 1
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
            return total - taken
        if least + second > free:
            return largest - taken
        return self.packed(count, free) - taken

    def packed(self, count: i64, free: float) -> float:
        """The densest first, and a part of the one that is too large."""
        more, weigh = self.more, self.weigh
        total = 0.0
        while count > 0:
            best: i64 = 0
            j: i64 = 1
            while j < count:
                if more[j] * weigh[best] > more[best] * weigh[j]:
                    best = j
                j += 1
            if weigh[best] > free:
                return total + more[best] * free / weigh[best]
            total += more[best]
            free -= weigh[best]
            count -= 1
            more[best] = more[count]
            weigh[best] = weigh[count]
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
