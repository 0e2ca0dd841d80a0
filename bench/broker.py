"""MetroMQ beside its peers: every scenario against every broker, interleaved, several rounds, medians."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress

from bench.machine import CORES, Shares, Watch, average, raise_file_limit
from bench.marks import beside_flashmq
from bench.measured import Probe
from bench.peers import FETCHED, Peer, Running, find_peers, running
from bench.report import Run, lines, show, show_marks, write
from bench.scenarios import SCENARIOS, Scenario, histogram
from metromq.errors import UsageError


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench broker", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (default 3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each measurement lasts (default 2)")
    parser.add_argument(
        "--only", action="append", metavar="SCENARIO", help="may be repeated: " + ", ".join(s.name for s in SCENARIOS)
    )
    parser.add_argument(
        "--peer", action="append", metavar="NAME", help="only brokers whose name has this in it; may be repeated"
    )
    parser.add_argument("--pure", action="store_true", help="also measure MetroMQ without compiled modules")
    for name in FETCHED:
        text = f"leave out {name}, which pip installs into build/"
        parser.add_argument(f"--no-{name}", dest="left_out", action="append_const", const=name, default=[], help=text)
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), metavar="FILE")
    return parser.parse_args(argv)


def measure(scenario: Scenario, peers: Sequence[Peer], round: int, seconds: float) -> list[Run]:
    if scenario.probe is not None:
        return _take_turns(scenario, scenario.probe, peers, round, seconds)
    (peer,) = peers
    assert scenario.run is not None
    with running(peer, scenario.durability) as broker:
        watch = Watch(broker.pid)
        measured = scenario.run(broker, seconds)
        return [Run(scenario.name, peer.name, peer.family, round, measured.values, measured.lost, watch.stop())]


def _take_turns(
    scenario: Scenario, probe: Callable[[Running], Probe], peers: Sequence[Peer], round: int, seconds: float
) -> list[Run]:
    """All brokers are up, and a slice of each follows a slice of the other: the machine's moods meet them alike."""
    with ExitStack() as stack:
        brokers = [stack.enter_context(running(peer, scenario.durability)) for peer in peers]
        probes = [probe(broker) for broker in brokers]
        results: list[list[dict[str, float]]] = [[] for _ in peers]
        latencies: list[list[int]] = [[] for _ in peers]
        lost = [0] * len(peers)
        pids = [broker.pid for broker in brokers]
        shares: list[list[Shares]] = [[] for _ in peers]
        for turn in range(max(1, ceil(seconds / scenario.slice_s))):
            for number in range(len(peers)) if turn % 2 == 0 else reversed(range(len(peers))):  # neighbours alternate
                take = probes[number]
                watch = Watch(pids[number], pids[:number] + pids[number + 1 :])
                found, missing = take(min(scenario.slice_s, seconds))
                shares[number].append(watch.stop())
                results[number].append(scenario.summary(found))
                latencies[number] += found if scenario.unit == "us" else []
                lost[number] += missing
        return [
            Run(scenario.name, peer.name, peer.family, round, medians(slices), missing, average(used), histogram(all))
            for peer, slices, missing, used, all in zip(peers, results, lost, shares, latencies, strict=True)
        ]


def medians(slices: Sequence[dict[str, float]]) -> dict[str, float]:
    """A pause of the host falls into one slice or two, and says nothing of the others."""
    return {name: median([one[name] for one in slices]) for name in slices[0]}


def _chosen(only: Sequence[str] | None) -> list[Scenario]:
    names = {scenario.name for scenario in SCENARIOS}
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise UsageError(f"no scenario is named {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return [scenario for scenario in SCENARIOS if not only or scenario.name in only]


def _turns(scenario: Scenario, peers: Sequence[Peer]) -> list[tuple[Scenario, list[Peer]]]:
    """Who is measured together."""
    taking_part = [peer for peer in peers if peer.family in scenario.families]
    return [(scenario, taking_part)] if scenario.probe is not None else [(scenario, [peer]) for peer in taking_part]


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    console = Console() if sys.stdout.isatty() else Console(width=170)
    raise_file_limit()
    broker_core, generator_core = CORES
    if broker_core == generator_core:
        console.print("[yellow]only one core: broker and generator share it, so the ratios say little[/]")
    os.sched_setaffinity(0, {generator_core})
    scenarios = _chosen(options.only)
    peers, missing = find_peers(options.pure, options.left_out)
    if options.peer:
        peers = [peer for peer in peers if any(name in peer.name for name in options.peer)]
    for word in missing:
        console.print(f"[yellow]not measured: {word}[/]")
    runs: list[Run] = []
    plan = [turn for scenario in scenarios for turn in _turns(scenario, peers)]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(plan) * options.rounds)
        for round in range(options.rounds):
            for scenario, present in plan if round % 2 == 0 else list(reversed(plan)):
                title = f"{scenario.title}: {', '.join(peer.name for peer in present)}"
                progress.update(task, description=title)
                try:
                    runs += measure(scenario, present, round, options.seconds)
                except (UsageError, OSError) as error:
                    console.print(f"[red]{title}: {error}[/]")
                progress.advance(task)
    found = lines(scenarios, runs)
    marks = beside_flashmq({line.scenario: line.ratio for line in found if line.value == "rate"})
    show(console, found)
    if any(mark.ours is not None for mark in marks):
        show_marks(console, marks)
    write(options.json, found, marks, runs, missing)
    console.print(f"broker on core {broker_core}, generator on core {generator_core}; all runs are in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
