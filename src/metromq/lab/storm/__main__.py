"""`python -m metromq.lab.storm --seeds 300`: plays storms, prints the seeds that break the contract."""

import argparse
import sys
import time
from collections import Counter

from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import history_of
from metromq.lab.storm.simulated import SimulatedStorm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m metromq.lab.storm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many storms to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--show", action="store_true", help="print the history of every failing seed")
    options = parser.parse_args()
    start = time.perf_counter()
    kinds: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        history = history_of(seed, options.brokers, steps=options.steps)
        breaches = judge(SimulatedStorm(history).play())
        if breaches:
            failed += 1
            kinds.update({breach.split(":")[0] for breach in breaches})
            print(f"seed {seed} ({history.routing}): {len(breaches)} breaches; {breaches[0]}", flush=True)
            if options.show:
                print(history)
                print("\n".join(breaches))
    rate = options.seeds / (time.perf_counter() - start)
    print(f"{options.seeds - failed} passed, {failed} failed; {rate:.1f} storms/s; {dict(kinds)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
