"""The planner's measures: proven optima, the tight program beside the paper's, and cities too large for either."""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from metromq.cli.plan_helpers import planning_helpers
from metromq.lab.delegation.instances import PRINTED_MW_PER_MBPS, Family, draw
from metromq.planning.arrays import Arrays, compile_arrays, price
from metromq.planning.baselines import greedy_places
from metromq.planning.large import large
from metromq.planning.model import Limits, Plan
from metromq.planning.optimal import ALL_PARTS, NO_PARTS, Parts, optimal, optimal_cold, optimal_paper
from metromq.planning.timing import Deadline

clock = time.perf_counter
# Two ways to draw: the paper's printed price of a hop, where pairs hardly count, and a thousand times that, where the
# published savings appear (see metromq.lab.delegation.instances).
RATIOS = (0.2, 0.35, 0.5, 0.65, 0.8)
MEDIUM = Family(20, 60, 40, workload_ratio=0.6)
# Clients of a topic at 3 of 200 devices, 10 topics to a service: a city in which it matters where containers run.
LOCAL = Family(200, 2000, 500, utilisation=0.005, spread=0.015, density=0.0075, workload_ratio=0.6)


@dataclass(frozen=True, slots=True)
class Line:
    """One measure: what, our figure, the target, and whether it is met (None: for information)."""

    name: str
    value: str
    target: str
    met: bool | None
    detail: str


def printed(family: Family) -> Family:
    return replace(family, network_mw_per_mbps=PRINTED_MW_PER_MBPS)


def instance(family: Family, seed: int) -> Arrays:
    return compile_arrays(draw(family, np.random.default_rng(seed)))


def small(count: int, limit_s: float) -> list[Line]:
    """6 devices, 10 topics, 10 services at workload ratios of 20-80 %: seconds to the proof of a gap below 0.01 %."""
    lines = []
    for label, family in (("printed", printed(Family(services=10))), ("calibrated", Family(services=10))):
        plans, cpu = [], []
        for seed in range(count):
            arrays = instance(replace(family, workload_ratio=RATIOS[seed % len(RATIOS)]), seed)
            before = time.process_time()
            plans.append(optimal(arrays, Limits(limit_s), clock))
            cpu.append(time.process_time() - before)
        seconds = median(plan.seconds for plan in plans)
        proven = sum(1 for plan in plans if plan.status == "optimal")
        open_gap = max((plan.gap for plan in plans if plan.status == "time-limit"), default=0.0)
        worst = max(plan.seconds for plan in plans)
        detail = (
            f"{median(cpu):.2f} s of CPU; {proven} of {count} proven in {limit_s:g} s, longest {worst:.1f} s, "
            f"largest open gap {open_gap:.2%}"
        )
        lines.append(Line(f"6/10/10 {label}: median seconds", f"{seconds:.2f}", "< 0.5", seconds < 0.5, detail))
    return lines


def formulations(count: int, limit_s: float) -> list[Line]:
    """10 devices, 30 topics, 20 services: both programs to the same gap with the same solver, one thread each."""
    lines = []
    for label, gap, family in (
        ("printed", 0.01, printed(Family(10, 30, 20, workload_ratio=0.5))),
        ("calibrated", 0.15, Family(10, 30, 20, workload_ratio=0.5)),
    ):
        ratios, details = [], []
        at_least = False
        for seed in range(count):
            arrays = instance(family, seed)
            ours = optimal(arrays, Limits(limit_s, gap), clock)
            paper = optimal_paper(arrays, Limits(limit_s, gap), clock)
            ratios.append(paper.seconds / ours.seconds)
            at_least |= paper.status != "optimal"
            cold = optimal_cold(arrays, Limits(limit_s, gap), clock)
            details.append(f"{_reached(ours)} (cold {_reached(cold)}) against {_reached(paper)}")
        ratio = median(ratios)
        value = f"{'>= ' if at_least else ''}{ratio:.0f}x"
        text = f"to a gap of {gap:.0%}: " + "; ".join(details)
        lines.append(Line(f"10/30/20 {label}: paper's by ours", value, ">= 10x", ratio >= 10, text))
    return lines


def _reached(plan: Plan) -> str:
    if not plan.feasible:
        return f"nothing in {plan.seconds:.1f} s"
    return f"{plan.seconds:.1f} s" + ("" if plan.status == "optimal" else f" (gap {plan.gap:.0%})")


def medium(count: int, limit_s: float) -> list[Line]:
    """20 devices, 60 topics, 40 services."""
    lines = []
    for label, family in (("printed", printed(MEDIUM)), ("calibrated", MEDIUM)):
        plans = []
        for seed in range(count):
            with planning_helpers() as helpers:
                plans.append(optimal(instance(family, seed), Limits(limit_s, 0.001), clock, helpers=helpers))
        gap = max(plan.gap for plan in plans)
        most, target = (0.01, "<= 1 %") if label == "printed" else (0.05, "<= 5 %")
        met = gap <= most
        detail = ", ".join(f"{plan.gap:.2%} in {plan.seconds:.0f} s" for plan in plans)
        lines.append(Line(f"20/60/40 {label}: gap", f"{gap:.2%}", target, met, detail))
    return lines


def city(count: int, limit_s: float) -> list[Line]:
    """200 devices, 2,000 topics, 500 services."""
    lines = []
    for label, family in (("local clients", LOCAL), ("printed", printed(replace(LOCAL, spread=1.0)))):
        for seed in range(count if label == "local clients" else 1):
            arrays = instance(family, seed)
            where, stuck = greedy_places(arrays)
            seeing, lost = greedy_places(arrays, sees_placed=True)
            plan = large(arrays, Limits(limit_s), seed, clock)
            base = price(arrays, where).power_mw if stuck < 0 else float("nan")
            better = 1 - plan.power_mw / base
            other = 1 - plan.power_mw / price(arrays, seeing).power_mw if lost < 0 else float("nan")
            met = (better >= 0.10 and plan.seconds <= limit_s) if label == "local clients" else None
            detail = (
                f"{plan.seconds:.1f} s, {other:.1%} better than a greedy that sees placed containers, "
                f"bound {plan.bound_mw:,.0f} mW, gap {plan.gap:.0%}"
            )
            target = ">= 10 %" if label == "local clients" else ""
            lines.append(Line(f"200/2000/500 {label}: better than greedy", f"{better:.1%}", target, met, detail))
    return lines


SIZES = {"6/10/10": (6, 10, 10), "10/30/20": (10, 30, 20)}
VARIANTS = {
    "plain": NO_PARTS,
    "plain, annealed": Parts(tree=False, lists=False, sets=False),
    "tree, annealed": Parts(lists=False, sets=False),
    "tree and lists, annealed": Parts(sets=False),
}
# Sets bound nothing in two seconds, and nobody asks for them where hops are cheap or problems small.
WITH_SETS = {
    "plain, annealed": VARIANTS["plain, annealed"],
    "tree and lists, annealed": VARIANTS["tree and lists, annealed"],
    "tree, lists and sets, annealed": ALL_PARTS,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One solve: seconds of CPU, whether proven, and the gap that was left."""

    cpu_s: float
    proven: bool
    gap: float


def own_parts(count: int, limit_s: float) -> list[Line]:
    """Annealing, tree and lists, each against the same without it: same program, same start, CPU seconds."""
    lines = []
    for size, numbers in SIZES.items():
        for label in ("printed", "calibrated"):
            runs = _runs(Family(*numbers), label, VARIANTS, count, limit_s)
            for old, new in itertools.pairwise(VARIANTS):
                lines.append(_against(f"{size} {label}: {new} against {old}", runs[old], runs[new]))
    return lines


def set_bound(count: int, limit_s: float) -> list[Line]:
    """The bound by sets against the same without it, and against the plain solver with the same start."""
    runs = _runs(Family(*SIZES["10/30/20"]), "calibrated", WITH_SETS, count, limit_s)
    *others, sets = WITH_SETS
    return [_against(f"10/30/20 calibrated: {sets} against {old}", runs[old], runs[sets]) for old in reversed(others)]


def _runs(
    family: Family, label: str, variants: Mapping[str, Parts], count: int, limit_s: float
) -> dict[str, list[Run]]:
    """Every instance with every variant, one after the other."""
    family = printed(family) if label == "printed" else family
    runs: dict[str, list[Run]] = {name: [] for name in variants}
    for seed in range(count):
        arrays = instance(replace(family, workload_ratio=RATIOS[seed % len(RATIOS)]), seed)
        for name, parts in variants.items():
            before = time.process_time()
            cpu = Deadline.after(limit_s, time.process_time)  # other work on the machine costs nobody time
            plan = optimal(arrays, Limits(100 * limit_s), time.process_time, time=cpu, parts=parts)
            gap = plan.gap if plan.feasible else 1.0
            runs[name].append(Run(time.process_time() - before, plan.status == "optimal", gap))
    return runs


def _against(name: str, old: list[Run], new: list[Run]) -> Line:
    """Means of CPU seconds, where an unproven run counts its whole limit; who was better instance by instance."""
    cpu = [float(np.mean([run.cpu_s for run in runs])) for runs in (old, new)]
    better = sum(_faster(b, a) for a, b in zip(old, new, strict=True))
    worse = sum(_faster(a, b) for a, b in zip(old, new, strict=True))
    told = [
        f"{sum(run.proven for run in runs)} of {len(runs)} proven, mean gap left {np.mean([r.gap for r in runs]):.2%}"
        for runs in (old, new)
    ]
    detail = f"{cpu[1]:.2f} s of CPU ({told[1]}) against {cpu[0]:.2f} s ({told[0]}); better {better}, worse {worse}"
    print(name, detail, file=sys.stderr, flush=True)  # all of them take long
    return Line(name, f"{cpu[0] / cpu[1]:.2f}x", "", None, detail)


def _faster(one: Run, other: Run) -> bool:
    """Proven in a tenth less time, or proven where the other is not, or left with a smaller gap."""
    if one.proven and other.proven:
        return one.cpu_s < 0.9 * other.cpu_s
    if one.proven != other.proven:
        return one.proven
    return one.gap < 0.99 * other.gap


PARTS: dict[str, Callable[[int, float], list[Line]]] = {
    "small": small,
    "parts": own_parts,
    "sets": set_bound,
    "formulations": formulations,
    "medium": medium,
    "city": city,
}
COUNTS = {"small": 20, "parts": 30, "sets": 30, "formulations": 3, "medium": 2, "city": 1}
LIMITS_S = {"small": 20.0, "parts": 2.0, "sets": 10.0, "formulations": 60.0, "medium": 60.0, "city": 60.0}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench planner", description=__doc__)
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="may be repeated")
    parser.add_argument("--instances", type=int, help="how many per measure (default: 20, 30, 30, 3, 2, 1)")
    parser.add_argument("--json", type=Path, default=Path("bench-results-planner.json"), metavar="FILE")
    options = parser.parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=170)
    found: list[Line] = []
    for name, measure in PARTS.items():
        if options.only and name not in options.only:
            continue
        with console.status(f"{name} ..."):
            found += measure(options.instances or COUNTS[name], LIMITS_S[name])
    table = Table(title="planner (HiGHS on one thread)", title_justify="left")
    for column in ("measure", "value", "target", "", "detail"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for line in found:
        verdict = "" if line.met is None else "[green]met[/]" if line.met else "[red]missed[/]"
        table.add_row(line.name, line.value, line.target, verdict, line.detail)
    console.print(table)
    options.json.write_text(json.dumps([asdict(line) for line in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
