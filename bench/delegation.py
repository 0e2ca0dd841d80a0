"""Delegation, measured: live counts beside the paper's counting, the proxy's speed, and a filter that changes hands."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.delegated_counts import LIVE, SMALL, LiveCount, live_counts
from bench.federation import Part, Row, Target, rows, show, write
from bench.handing import hand_over
from bench.machine import raise_file_limit
from bench.proxied import Values, added, stream
from metromq.errors import UsageError

CLOSE = 0.02  # live counts deviate by no more from those of the simulator


def count_values(found: Sequence[LiveCount]) -> Values:
    values: Values = {}
    for one in found:
        values[f"{one.scheme}: external messages/s"] = one.external
        values[f"{one.scheme}: counted"] = float(one.counted_external)
        if one.scheme != "centralized":
            values[f"{one.scheme}: messages/s per edge broker"] = one.per_broker
            values[f"{one.scheme}: counted per edge broker"] = one.counted_per_broker
        values[f"{one.scheme}: deviation"] = one.worst
    return values


def parts(seconds: float) -> list[Part]:
    fast = (Target("messages/s", 100_000, at_most=False), Target("lost", 0))
    exact = tuple(Target(f"{name}: deviation", CLOSE) for name in LIVE)
    gentle = (
        Target("hand-over s, longest", 1.0),
        Target("publishers meanwhile, max ms", 200.0),
        Target("missing", 0),
    )
    networks = f"{SMALL.networks} networks, {SMALL.publishers} publishers each"
    return [
        Part("counts", networks, lambda: count_values(live_counts()), exact, False),
        Part("stream", "QoS 0, published through the proxy", lambda: stream(seconds), fast),
        Part("topics", "the same to 1,000 topics", lambda: stream(seconds, 1000), fast),
        Part("both", "published and read through the proxy", lambda: stream(seconds, 1, True)),
        Part("added", "the proxy's part at 1,000/s", lambda: added(1000, seconds), (Target("added p99 ms", 3.0),)),
        Part("hand-over", "a filter with 1,000 subscribers", hand_over, gentle),
    ]


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench delegation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3; counts once)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long streams last (default 3)")
    parser.add_argument(
        "--only", action="append", metavar="PART", help="may be repeated: " + ", ".join(p.name for p in parts(1))
    )
    parser.add_argument("--json", type=Path, default=Path("bench-results-delegation.json"), metavar="FILE")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    raise_file_limit()
    known = parts(options.seconds)
    unknown = set(options.only or ()) - {part.name for part in known}
    if unknown:
        raise UsageError(f"no part is named {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in known)}")
    found: list[Row] = []
    for part in known:
        if not options.only or part.name in options.only:
            found += rows(part, [part.measure() for _ in range(options.rounds if part.rounds else 1)])
    show(console, found, "delegation")
    write(options.json, found)
    console.print(f"all values are in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
