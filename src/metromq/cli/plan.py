"""`metromq plan`: where brokers and services should run, what that saves, and the steps that lead there."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from metromq.control.places import DEFAULT_DATA
from metromq.errors import UsageError

try:
    from metromq.cli.plan_sources import Source, from_city, from_file, from_lake, present_from
    from metromq.cli.plan_tables import show_choice, show_plan, steps_table
    from metromq.planning.model import Goal, Limits, Plan, Problem, Watch, nobody, plan_document, steps_between
    from metromq.planning.planner import METHODS, Method, make_placement, priced
    from metromq.planning.policies import POLICIES, Choice, Policy, choose, delegating, service_workload, statistics_of
except ImportError as error:
    raise UsageError("planning needs an extra package: pip install 'metromq[plan]'") from error

WEIGHTS = ("power", "traffic", "latency", "move")

EPILOG = """\b
Examples:
  metromq plan --from city.json                          the optimal plan, proven to be so
  metromq plan --from city.json --method large --time-limit 60
  metromq plan --from city.json --json > plan.json       for programs
  metromq plan --from city.json --present plan.json --max-moves 3 --diff
  metromq plan --from city.json --weight traffic=1 --weight latency=100
  metromq plan --from city.json --policy NS --budget 50000
  metromq plan --from lake --devices devices.toml        traffic as measured by the pipeline
  metromq plan --from city --diff                        a running city and its traffic now

\b
Methods: optimal (integer program, proven), large (search with a bound, any size), auto (one of these two by size),
optimal-paper (the paper's own program, slower), greedy and random (the paper's baselines).
Weights: power (per mW, 1 by default), traffic (per Mbps x hop), latency (per hop of the worst path),
move (per moved container). docs/planner.md describes the file and docs/json.md the output.

\b
Exit status: 0 with a plan, 1 if nothing fits (the reason is on stderr), 2 if the input is wrong.
"""


@click.command("plan", epilog=EPILOG)
@click.option("--from", "origin", metavar="FILE|city|lake", required=True, help="Where to read the problem.")
@click.option("--city", "city_name", metavar="CITY", help="For --from city: a TOML file or the name of a preset.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="For --from city: data directory, as given to `up`.",
)
@click.option(
    "--lake",
    type=click.Path(path_type=Path),
    default=Path("metromq-lake"),
    show_default=True,
    help="For --from lake: the lake.",
)
@click.option(
    "--devices", type=click.Path(path_type=Path), help="For --from city or lake: file with the devices and links."
)
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True, help="See below.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds after which the best plan so far is taken.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Random seed for the methods random and large.",
)
@click.option("--present", type=click.Path(path_type=Path), help="The present plan: a file printed by --json.")
@click.option("--max-moves", type=click.IntRange(min=0), help="Move at most this many containers of the present plan.")
@click.option("--weight", "weights", multiple=True, metavar="NAME=X", help="See below; may be repeated.")
@click.option("--policy", type=click.Choice(POLICIES), help="Delegate only the topics that this policy selects.")
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    help="For --policy: workload available to brokers. Default: whatever the services leave free.",
)
@click.option("--diff", is_flag=True, help="Show the steps from the present placement to the plan.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(
    origin: str,
    city_name: str | None,
    data: Path,
    lake: Path,
    devices: Path | None,
    method: Method,
    time_limit: float,
    seed: int,
    present: Path | None,
    max_moves: int | None,
    weights: Sequence[str],
    policy: Policy | None,
    budget: float | None,
    diff: bool,
    as_json: bool,
) -> None:
    """Plan which devices should run the brokers of topics and users' services: least power, no device overloaded."""
    source = _source(origin, city_name, data, lake, devices)
    problem, choice = _delegated(source.problem, policy, budget)
    now = present_from(present, source.problem) if present is not None else source.present
    if max_moves is not None and now is None:
        raise UsageError("--max-moves needs the present placement: add --present FILE, or use --from city")
    goal = Goal(**_weights(weights), present=now, max_moves=max_moves)
    with _watched(as_json, time_limit) as watch:
        plan = make_placement(problem, method, time.perf_counter, goal, Limits(time_limit), seed, watch)
    steps = steps_between(now, plan.placement) if plan.feasible else ()
    if as_json:
        document = plan_document(plan) | ({"steps": [asdict(step) for step in steps]} if diff else {})
        click.echo(json.dumps(document, indent=2))
    else:
        _show(problem, plan, goal, choice, policy)
        if diff and plan.feasible:
            Console().print(steps_table(steps))
    if not plan.feasible:
        click.echo(f"metromq: nothing fits: {plan.shortage}", err=True)
        sys.exit(1)


def _source(origin: str, city: str | None, data: Path, lake: Path, devices: Path | None) -> Source:
    if origin == "city":
        return from_city(city, data, devices)
    if origin == "lake":
        return from_lake(lake, devices)
    return from_file(Path(origin))


def _delegated(problem: Problem, policy: Policy | None, budget: float | None) -> tuple[Problem, Choice | None]:
    """Without a budget brokers may take what the services leave free."""
    if policy is None:
        if budget is not None:
            raise UsageError("--budget only works with --policy")
        return problem, None
    if budget is None:
        free = sum(device.capacity_workload for device in problem.devices) - service_workload(problem)
        budget = max(free, 0.0)
    choice = choose(problem, policy, budget, statistics_of(problem))
    return delegating(problem, choice), choice


def _weights(words: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if name not in WEIGHTS or not 0 <= value < float("inf"):
            raise UsageError(f"--weight {word}: must be NAME=X, where NAME is one of {', '.join(WEIGHTS)} and X >= 0")
        found[name] = value
    return found


@contextmanager
def _watched(silent: bool, seconds: float) -> Iterator[Watch]:
    """A line on stderr while a solver works; none for programs, which would only see its control characters."""
    console = Console(stderr=True)
    if silent or not console.is_terminal:
        yield nobody
        return
    columns = (TextColumn("{task.description}"), TimeElapsedColumn(), TextColumn(f"of {seconds:g} s"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("planning", total=None)

        def watch(what: str, price: float | None, bound: float | None) -> None:
            best = "" if price is None else f", best {price:,.1f}"
            proven = "" if bound is None else f", at least {bound:,.1f}"
            progress.update(task, description=f"{what}{best}{proven}")

        yield watch


def _show(problem: Problem, plan: Plan, goal: Goal, choice: Choice | None, policy: str | None) -> None:
    console = Console()
    if choice is not None and policy is not None:
        show_choice(console, choice, policy)
    if not plan.feasible:
        return
    others: dict[str, Plan | None] = {}
    if plan.method != "greedy":
        others["greedy"] = make_placement(problem, "greedy", time.perf_counter, Goal(present=goal.present))
    if goal.present is not None:
        others["present"] = priced(problem, goal.present, Goal(present=goal.present))
    show_plan(console, problem, plan, goal.present, others)
