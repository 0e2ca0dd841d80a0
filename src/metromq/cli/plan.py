"""`metromq plan`: where brokers and services should run, what that saves, and the steps that lead there."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from metromq.cli.numbers import Number
from metromq.control import DEFAULT_DATA
from metromq.errors import UsageError
from metromq.reading import shorten

try:
    from metromq.cli.plan_helpers import planning_helpers
    from metromq.cli.plan_sources import Source, from_city, from_file, from_lake, present_from
    from metromq.cli.plan_tables import show_choice, show_plan, show_route
    from metromq.cli.plan_work import Interrupts, StoppedEarly, answered, interrupts, ordered
    from metromq.planning import (
        INFEASIBLE,
        METHODS,
        MOVE_LIMITED,
        NOT_FOUND,
        POLICIES,
        Choice,
        Goal,
        Limits,
        Method,
        Placement,
        Plan,
        Policy,
        Problem,
        Transition,
        Watch,
        choose,
        delegating,
        make_placement,
        move_price,
        nobody,
        plan_document,
        priced,
        route_between,
        service_workload,
        statistics_of,
    )
except ImportError as error:
    raise UsageError("planning needs an extra package: pip install 'metromq[plan]'") from error

WEIGHTS = ("power", "traffic", "latency", "move")
MOST_WEIGHT = 1e9
EXITS = {INFEASIBLE: 1, NOT_FOUND: 3}

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
With a present placement, a move must save at least a tenth of what the average container costs; --weight move=X sets
another price, and 0 allows every move that saves anything. Ctrl-C ends the search with the best plan so far,
and the search for an order of its steps with the best order so far.

\b
Exit status: 0 with a plan, 1 if it is proven that nothing fits, 3 if no plan was found (the reason is on stderr),
2 if the input is wrong, 130 if Ctrl-C came before there was a plan.
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
    default="metromq-lake",
    show_default=True,
    help="For --from lake: the lake. For --from city, if given: the lake with each topic's traffic.",
)
@click.option(
    "--devices", type=click.Path(path_type=Path), help="For --from city or lake: file with the devices and links."
)
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True, help="See below.")
@click.option(
    "--time-limit",
    type=Number(0.1, 1e6),
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
@click.option(
    "--max-moves",
    type=click.IntRange(min=0),
    help=f"Move at most this many containers of the present plan. For the methods {', '.join(MOVE_LIMITED)}.",
)
@click.option("--weight", "weights", multiple=True, metavar="NAME=X", help="See below; may be repeated.")
@click.option("--policy", type=click.Choice(POLICIES), help="Delegate only the topics that this policy selects.")
@click.option(
    "--budget",
    type=Number(0, 1e15),
    help="For --policy: workload available to brokers. Default: whatever the services leave free.",
)
@click.option("--diff", is_flag=True, help="Show the steps from the present placement to the plan.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(
    origin: str,
    city_name: str | None,
    data: Path,
    lake: str,
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
    for note in source.notes:
        click.echo(f"metromq: note: {note}", err=True)
    problem, choice = _delegated(source.problem, policy, budget)
    now = present_from(present, source.problem) if present is not None else source.present
    if max_moves is not None and now is None:
        raise UsageError("--max-moves needs the present placement: add --present FILE, or use --from city")
    if max_moves is not None and method not in MOVE_LIMITED:
        raise UsageError(f"{method} cannot keep to --max-moves; use one of {', '.join(MOVE_LIMITED)}")
    goal = _goal(problem, weights, now, max_moves)
    clock, limits = time.perf_counter, Limits(time_limit)
    with interrupts() as ctrl_c:
        try:
            with _watched(as_json, time_limit) as watch, planning_helpers() as helpers:
                answer = answered(
                    lambda job: make_placement(problem, method, clock, goal, limits, seed, watch, job, helpers),
                    clock,
                    ctrl_c,
                )
        except StoppedEarly as error:
            click.echo(f"metromq: {error}", err=True)
            _leave(130, at_once=True)
            return
        plan = answer.plan
        route, cut_short = Transition(()), False
        if diff and plan.feasible:
            route, cut_short = ordered(lambda job: route_between(source.problem, now, plan.placement, job), ctrl_c)
        if as_json:
            click.echo(json.dumps(_document(plan, goal, choice, policy, source, route if diff else None), indent=2))
        else:
            _show(problem, plan, goal, choice, policy, ctrl_c)
            if diff and plan.feasible:
                show_route(Console(), route)
        _say(plan, cut_short)
        _leave(EXITS.get(plan.status, 0), answer.left_behind)


def _say(plan: Plan, cut_short: bool) -> None:
    """What is no part of the plan, on stderr."""
    if plan.status == "interrupted":
        click.echo("metromq: stopped; this is the best plan so far", err=True)
    if cut_short:
        click.echo("metromq: stopped; this is the best order of the steps so far", err=True)
    if plan.status == INFEASIBLE:
        click.echo(f"metromq: nothing fits: {plan.shortage}", err=True)
    elif plan.status == NOT_FOUND:
        click.echo(f"metromq: no plan was found, which does not mean that there is none: {plan.shortage}", err=True)


def _leave(code: int, at_once: bool) -> None:
    if at_once:  # a solver still works in its thread, and Python would wait for what it is doing
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if code:
        sys.exit(code)


def _goal(problem: Problem, weights: Sequence[str], now: Placement | None, max_moves: int | None) -> Goal:
    """Where something runs already, a move must earn its cost, unless the user says what it costs."""
    goal = Goal(**_weights(weights), present=now, max_moves=max_moves)
    if now is None or any(word.startswith("move=") for word in weights):
        return goal
    return replace(goal, move=move_price(problem, now, goal))


def _document(
    plan: Plan, goal: Goal, choice: Choice | None, policy: str | None, source: Source, route: Transition | None
) -> dict[str, Any]:
    """What --json prints."""
    weights = {name: getattr(goal, name) for name in WEIGHTS}
    delegation = None if choice is None else {"policy": policy, **asdict(choice)}
    document = plan_document(plan) | {"weights": weights, "delegation": delegation, "notes": list(source.notes)}
    if route is not None:
        document |= {
            "steps": [asdict(step) for step in route.steps],
            "order": route.order,
            "overloads": list(route.overloads),
        }
    return document


def _source(origin: str, city: str | None, data: Path, lake: str, devices: Path | None) -> Source:
    if origin == "city":
        given = click.get_current_context().get_parameter_source("lake") == ParameterSource.COMMANDLINE
        return from_city(city, data, devices, lake if given else None)
    if origin == "lake":
        return from_lake(lake, devices)
    if devices is not None:
        raise UsageError("--devices only works with --from city or lake: a file has its devices in it")
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
        if name not in WEIGHTS or not 0 <= value <= MOST_WEIGHT:
            rule = f"NAME is one of {', '.join(WEIGHTS)} and X from 0 to {MOST_WEIGHT:g}"
            raise UsageError(f"--weight {shorten(word)}: must be NAME=X, where {rule}")
        if name in found:
            raise UsageError(f"--weight {shorten(word)}: {name} is given more than once; keep only one of them")
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


def _show(
    problem: Problem, plan: Plan, goal: Goal, choice: Choice | None, policy: str | None, ctrl_c: Interrupts
) -> None:
    console = Console()
    if choice is not None and policy is not None:
        show_choice(console, choice, policy)
    if not plan.feasible:
        return
    others: dict[str, Plan | None] = {}
    if plan.method != "greedy" and not ctrl_c.pressed:  # who has pressed it does not wait for a comparison
        others["greedy"] = make_placement(problem, "greedy", time.perf_counter, Goal(present=goal.present))
    if goal.present is not None:
        others["present"] = priced(problem, goal.present, Goal(present=goal.present))
    show_plan(console, problem, plan, goal.present, others)
