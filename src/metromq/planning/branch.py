"""Branch and bound on containers, with HiGHS solving the relaxations: one LP, kept warm, its bounds moved about.

A container runs on exactly one device, so a node branches into "on this device" for each device left to a container.
This beats a general solver on these programs several times over: nearly all its time goes into cuts that move little.
A node in which few placements could still be better is not branched on: they are listed (`listing`).
"""

import heapq
from dataclasses import dataclass, replace

import highspy
import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints, price
from metromq.planning.listing import Shares, beam, cheapest, part_bytes, shares
from metromq.planning.model import Limits, Watch, nobody
from metromq.planning.programs import Program
from metromq.planning.solver import loaded
from metromq.planning.timing import Deadline, Job

WHOLE = 1e-6  # how near to 0 or 1 counts as whole
FEW = 200_000  # parts of placements that are listed at a node; most are far shorter
MANY_BYTES = 32 << 20  # the same at the root, in memory: there a list spares the whole tree
WIDTH = 20_000  # of the beam that looks for a better plan where the list is too long
SHORT_LISTS = 4  # in a row, before they are tried nearer to the root
NEAR = 0.01  # a root whose relaxation is farther than this from the best plan is not listed
FIRST_STEP, STEPS = 1e-4, 1.4  # by how much of the price, then by which factor the list at the root grows
OPTIMAL = highspy.HighsModelStatus.kOptimal
CUT_OFF = highspy.HighsModelStatus.kObjectiveBound
EMPTY = highspy.HighsModelStatus.kInfeasible


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best places found or None, a proven bound, and whether the search was finished."""

    where: Ints | None
    bound: float
    finished: bool
    nodes: int


class Tree:
    """The open nodes and the one LP. A node is a mask of the devices still open to each
    container. Many attributes, because one LP is kept and changed from node to node."""

    def __init__(
        self,
        arrays: Arrays,
        program: Program,
        start: Ints | None,
        limits: Limits,
        watch: Watch = nobody,
        lists: bool = True,
    ) -> None:
        self.arrays = arrays
        self.limits = limits
        self.watch = watch
        self.place = program.place
        self.highs = loaded(replace(program, integer=np.zeros_like(program.integer)), limits)
        self.highs.setOptionValue("presolve", "off")  # the model stays: presolving it anew for each node would not pay
        self.highs.setOptionValue("solver", "simplex")
        self.set = program.place >= 0  # what the LP's bounds say now
        self.best = start
        self.cost = price(arrays, start).objective if start is not None else np.inf
        self.job = Job()
        self.floor = np.inf  # the lowest bound of anything cut off
        self.nodes = 0
        self.open: list[tuple[float, int, Bools]] = []
        weight = np.bincount(arrays.edge_topic, weights=arrays.pair_price, minlength=arrays.count)
        weight += np.bincount(arrays.edge_service, weights=arrays.pair_price, minlength=arrays.count)
        self.weight = weight + np.ptp(arrays.linear, axis=1) + 1e-9
        listable = lists and not arrays.goal.latency and arrays.goal.max_moves is None
        self.pairs = program.pairs if listable else None
        self.duals = np.zeros(0)  # of the last relaxation
        self.short = 0  # lists in a row that were short enough
        self.listed_from = 0  # so many containers must be fixed before a list is short enough, as far as was seen

    def cutoff(self) -> float:
        return self.cost - self.limits.gap * abs(self.cost) if np.isfinite(self.cost) else np.inf

    def run(self, time: Deadline, floor: float) -> Outcome:
        """Plunges from the most promising open node to the ground, then takes the next; `floor` is a known bound."""
        self.job = time.job
        floor = max(floor, self.list_root(time))
        if floor < self.cutoff() or not np.isfinite(self.cost):
            self.push(floor, self.set.copy())
        else:
            self.floor = min(self.floor, floor)
        while self.open:
            bound, _, mask = heapq.heappop(self.open)
            self.job.raise_bound(min(bound, self.floor, self.cost))
            self.watch("proving", self.cost if np.isfinite(self.cost) else None, min(bound, self.floor, self.cost))
            while True:
                if bound >= self.cutoff():
                    self.floor = min(self.floor, bound)
                    break
                if time.up():
                    self.push(bound, mask)
                    return self.outcome(finished=False)
                children = self.expand(bound, mask, time.left())
                if children is None:
                    self.push(bound, mask)
                    return self.outcome(finished=False)
                if not children:
                    break
                for child in children[1:]:
                    self.push(*child)
                bound, mask = children[0]
        return self.outcome(finished=True)

    def push(self, bound: float, mask: Bools) -> None:
        heapq.heappush(self.open, (bound, self.nodes * 1000 + len(self.open), mask))

    def outcome(self, finished: bool) -> Outcome:
        lowest = min((bound for bound, _, _ in self.open), default=np.inf)
        return Outcome(self.best, float(min(lowest, self.floor, self.cost)), finished, self.nodes)

    def expand(self, bound: float, mask: Bools, seconds: float) -> list[tuple[float, Bools]] | None:
        """Solves a node and returns its children, the nearest to the LP first; None when the time ran out."""
        solved = self.relax(mask, seconds)
        if solved is None:
            return None
        value, x, reduced = solved
        value = max(value, bound)
        if value >= self.cutoff() or not len(x):
            self.floor = min(self.floor, value)
            return []
        split = 1 - x.max(axis=1)
        if split.max() < WHOLE:
            self.take(np.argmax(x, axis=1).astype(np.int64))
            self.floor = min(self.floor, value)
            return []
        dear = mask & (x < WHOLE) & (value + reduced > self.cutoff())
        if dear.any():
            self.floor = min(self.floor, float((value + reduced[dear]).min()))
            mask = mask & ~dear
        if self.listed(mask):
            return []
        i = int(np.argmax(split * self.weight))
        children = []
        for d in np.argsort(-x[i], kind="stable").tolist():
            if mask[i, d]:
                child = mask.copy()
                child[i] = False
                child[i, d] = True
                children.append((value + max(float(reduced[i, d]), 0.0) * (x[i, d] < WHOLE), child))
        return children

    def list_root(self, time: Deadline) -> float:
        """Lists ever more placements until one is among them, which then is the best; returns a bound."""
        whole = self.set.copy()
        start_known = self.pairs is not None and np.isfinite(self.cost)
        solved = self.relax(whole, time.left()) if start_known else None
        if solved is None or not len(solved[1]):
            return -np.inf
        costs = self.shares(whole)
        bound = costs.base
        if self.cost - bound > NEAR * abs(self.cost):
            return bound
        excess = max(FIRST_STEP * abs(self.cost), 1e-9)
        while not time.up():
            most = self.cutoff() - costs.base
            found = cheapest(self.arrays, costs, min(excess, most), MANY_BYTES // part_bytes(self.arrays))
            if found.where is not None:
                self.take(found.where)
            if not found.complete:
                where = beam(self.arrays, costs, self.cutoff() - costs.base, WIDTH)
                if where is not None:
                    self.take(where)
                self.listed_from = 1
                return bound
            bound = costs.base + min(excess, most)
            if found.where is not None:
                return costs.base + found.excess
            if excess >= most:
                return bound
            excess *= STEPS
        return bound

    def listed(self, mask: Bools) -> bool:
        """Tries to close a node by a list of all in it that could be better; True: it is closed."""
        fixed = int((mask.sum(axis=1) == 1).sum())
        if self.pairs is None or not np.isfinite(self.cost) or fixed < self.listed_from:
            return False
        costs, cutoff = self.shares(mask), self.cutoff()
        found = cheapest(self.arrays, costs, cutoff - costs.base, FEW)
        self.learn_depth(fixed, found.complete)
        if found.where is not None:
            self.take(found.where)
        if found.complete:
            self.floor = min(self.floor, cutoff, costs.base + found.excess)
        return found.complete

    def learn_depth(self, fixed: int, short: bool) -> None:
        """A list that was too long is tried deeper down from now on; after some that were short, nearer to the root."""
        self.short = self.short + 1 if short else 0
        if not short:
            self.listed_from = fixed + 1
        elif self.short >= SHORT_LISTS:
            self.listed_from, self.short = max(self.listed_from - 1, 0), 0

    def shares(self, mask: Bools) -> Shares:
        """The price by the multipliers of the last relaxation."""
        assert self.pairs is not None
        count = self.arrays.count
        room = -self.duals[count : count + len(self.arrays.capacity)]
        topic, service = (
            np.where(rows >= 0, sign * self.duals[np.maximum(rows, 0)], 0.0)
            for rows, sign in zip((self.pairs.topic, self.pairs.service), self.pairs.signs, strict=True)
        )
        return shares(self.arrays, mask, self.pairs.edges, room, topic, service)

    def take(self, where: Ints) -> None:
        cost = price(self.arrays, where)
        if cost.fits and cost.objective < self.cost:
            self.best, self.cost = where, cost.objective
            self.job.keep(self.arrays, where)

    def relax(self, mask: Bools, seconds: float) -> tuple[float, Floats, Floats] | None:
        """The LP of a node: its value, x and reduced costs; x is empty when the node has no solution worth having."""
        changed = self.set != mask
        columns = self.place[changed].astype(np.int32)
        if len(columns):
            self.highs.changeColsBounds(len(columns), columns, np.zeros(len(columns)), mask[changed].astype(np.float64))
            self.set = mask
        if np.isfinite(self.cost):
            self.highs.setOptionValue("objective_bound", float(self.cost))
        spent = self.highs.getRunTime()  # the solver's clock adds up all its runs
        self.highs.setOptionValue("time_limit", spent + max(seconds, 0.01))
        self.highs.run()
        self.nodes += 1
        status = self.highs.getModelStatus()
        nothing = np.zeros((0, 0))
        if status == CUT_OFF:
            return self.cost, nothing, nothing
        if status == EMPTY:
            return np.inf, nothing, nothing
        if status != OPTIMAL:
            return None
        solution = self.highs.getSolution()
        self.duals = np.asarray(solution.row_dual)
        columns_of = np.maximum(self.place, 0)
        x = np.where(self.place >= 0, np.asarray(solution.col_value)[columns_of], 0.0)
        reduced = np.where(self.place >= 0, np.asarray(solution.col_dual)[columns_of], 0.0)
        return float(self.highs.getInfo().objective_function_value), x, reduced
