"""`python -m bench [SUITE] [options]`: one suite, or without a name every suite that is here."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence

from metromq.errors import MetroError

SUITES = (
    "broker",
    "planner",
    "federation",
    "delegation",
    "growth",
    "changing",
    "overlay",
    "overlay_live",
    "pipeline",
)  # modules of this package with `main(argv)`


def main(argv: Sequence[str]) -> int:
    here = [name for name in SUITES if importlib.util.find_spec(f"bench.{name}") is not None]
    if argv and not argv[0].startswith("-"):
        if argv[0] not in here:
            print(f"no suite is named {argv[0]}; there are {', '.join(here)}", file=sys.stderr)
            return 2
        chosen, rest = [argv[0]], list(argv[1:])
    elif argv:
        chosen, rest = ["broker"], list(argv)
    else:
        chosen, rest = here, []
    worst = 0
    for name in chosen:
        try:
            worst = max(worst, importlib.import_module(f"bench.{name}").main(rest) or 0)
        except MetroError as error:
            print(f"{name}: {error}", file=sys.stderr)
            worst = 1
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
