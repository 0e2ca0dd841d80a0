"""MetroMQ beside its peers: every scenario against every broker, interleaved, several rounds, medians."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench.machine import CORES, Watch, raise_file_limit
from bench.peers import Peer, find_peers, running
from bench.report import Run, lines, show, write
from bench.scenarios import SCENARIOS, Scenario
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
    parser.add_argument("--no-amqtt", action="store_true", help="leave out amqtt, which pip installs into build/")
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), metavar="FILE")
    return parser.parse_args(argv)


def _measure(scenario: Scenario, peer: Peer, round: int, seconds: float) -> Run:
    with running(peer, scenario.durability) as broker:
        watch = Watch(broker.pid)
        measured = scenario.run(broker, seconds)
        return Run(scenario.name, peer.name, peer.family, round, measured.values, measured.lost, watch.stop())


def _chosen(only: Sequence[str] | None) -> list[Scenario]:
    names = {scenario.name for scenario in SCENARIOS}
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise UsageError(f"no scenario is named {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return [scenario for scenario in SCENARIOS if not only or scenario.name in only]


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    console = Console() if sys.stdout.isatty() else Console(width=170)
    raise_file_limit()
    broker_core, generator_core = CORES
    if broker_core == generator_core:
        console.print("[yellow]only one core: broker and generator share it, so the ratios say little[/]")
    os.sched_setaffinity(0, {generator_core})
    scenarios = _chosen(options.only)
    peers, missing = find_peers(options.pure, not options.no_amqtt)
    if options.peer:
        peers = [peer for peer in peers if any(name in peer.name for name in options.peer)]
    for word in missing:
        console.print(f"[yellow]not measured: {word}[/]")
    runs: list[Run] = []
    plan = [(scenario, peer) for scenario in scenarios for peer in peers if peer.family in scenario.families]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(plan) * options.rounds)
        for round in range(options.rounds):
            for scenario, peer in plan if round % 2 == 0 else list(reversed(plan)):
                progress.update(task, description=f"{scenario.title}: {peer.name}")
                try:
                    runs.append(_measure(scenario, peer, round, options.seconds))
                except (UsageError, OSError) as error:
                    console.print(f"[red]{scenario.title}: {peer.name}: {error}[/]")
                progress.advance(task)
    found = lines(scenarios, runs)
    show(console, found)
    write(options.json, found, runs, missing)
    console.print(f"broker on core {broker_core}, generator on core {generator_core}; all runs are in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
