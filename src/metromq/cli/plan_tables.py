"""How a plan looks to people: where containers run, how full devices are, and what the plan is worth."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metromq.planning import NONE_EXISTS, SAFE, Choice, Placement, Plan, PlanStep, Problem, Transition

BAR_CELLS = 24
MANY = 40  # containers; beyond this only the first few of each device are listed


def amount(value: float, digits: int = 1) -> str:
    """For people: a quiet city's milliwatts are not 0."""
    return f"{value:,.{digits}f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def show_plan(
    console: Console, problem: Problem, plan: Plan, present: Placement | None, others: Mapping[str, Plan | None]
) -> None:
    """The plan, its devices, and its price beside other placements."""
    console.print(containers_table(problem, plan, present))
    console.print()
    console.print(devices_table(problem, plan))
    console.print()
    console.print(comparison_table(plan, others))
    console.print(summary(plan), highlight=False)


def containers_table(problem: Problem, plan: Plan, present: Placement | None) -> Table:
    """Container -> device; of a large city the devices with what they hold."""
    if len(problem.topics) + len(problem.services) > MANY:
        return _by_device(problem, plan)
    table = Table(title="placement", title_justify="left", box=None, pad_edge=False)
    for name in ("container", "kind", "device", *(["now"] if present else [])):
        table.add_column(name, overflow="fold")
    now = present or Placement({}, {})
    for kind, planned, before in (
        ("topic", plan.placement.topics, now.topics),
        ("service", plan.placement.services, now.services),
    ):
        for name, device in planned.items():
            old = before.get(name, "-")
            text = escape(device) if old in (device, "-") else f"[yellow]{escape(device)}[/]"
            table.add_row(escape(name), kind, text, *([escape(old)] if present else []))
    return table


def _by_device(problem: Problem, plan: Plan) -> Table:
    held: dict[str, list[str]] = {device.name: [] for device in problem.devices}
    for part in (plan.placement.topics, plan.placement.services):
        for name, device in part.items():
            held[device].append(name)
    table = Table(title="placement (--json prints all of it)", title_justify="left", box=None, pad_edge=False)
    table.add_column("device", no_wrap=True)
    table.add_column("containers", justify="right")
    table.add_column("first few")
    for device, names in held.items():
        table.add_row(escape(device), str(len(names)), escape(" ".join(names[:6])))
    return table


def devices_table(problem: Problem, plan: Plan) -> Table:
    table = Table(title="devices", title_justify="left", box=None, pad_edge=False)
    table.add_column("device", overflow="fold")
    table.add_column("load")
    for name in ("", "workload", "capacity", "mW/workload"):
        table.add_column(name, justify="right")
    for device in problem.devices:
        load = plan.load[device.name]
        share = load / device.capacity_workload if device.capacity_workload else 0.0
        table.add_row(
            escape(device.name),
            bar(share),
            f"{share:.0%}",
            amount(load, 0),
            f"{device.capacity_workload:,.0f}",
            f"{device.mw_per_workload:g}",
        )
    return table


def bar(share: float) -> str:
    """`####----`, red when over capacity."""
    full = min(BAR_CELLS, round(share * BAR_CELLS))
    colour = "red" if share > 1 + 1e-6 else "yellow" if share > 0.9 else "green"
    return f"[{colour}]{'█' * full}[/][dim]{'░' * (BAR_CELLS - full)}[/]"


def comparison_table(plan: Plan, others: Mapping[str, Plan | None]) -> Table:
    table = Table(title="comparison", title_justify="left", box=None, pad_edge=False)
    table.add_column("placement")
    for name in ("power, mW", "saved by the plan", "traffic, Mbps x hops", "worst path, hops", "moves"):
        table.add_column(name, justify="right")
    for label, other in ((plan.method, plan), *others.items()):
        if other is None or not other.feasible:
            table.add_row(label, "none", "", "", "", "")
            continue
        gain = "" if other is plan or not other.power_mw else f"{1 - plan.power_mw / other.power_mw:.1%}"
        table.add_row(
            label, amount(other.power_mw), gain, amount(other.network_mbps), str(other.worst_hops), str(other.moves)
        )
    return table


def summary(plan: Plan) -> str:
    return (
        f"{plan.method}: {plan.status}, power {amount(plan.power_mw)} mW, bound {amount(plan.bound_mw)}, "
        f"gap {plan.gap:.2%}, traffic {amount(plan.network_mbps)} Mbps x hops, {plan.moves} moves, {plan.seconds:.2f} s"
    )


def show_route(console: Console, route: Transition) -> None:
    """The steps, and what is wrong with their order if no better one was found."""
    console.print(steps_table(route.steps))
    if route.order != SAFE:
        words = "there is no order" if route.order == NONE_EXISTS else "no order was found"
        console.print(f"{words} of steps that overloads no device, even with steps aside:", highlight=False)
        for text in route.overloads:
            console.print(f"  {escape(text)}", highlight=False)


def steps_table(steps: Sequence[PlanStep]) -> Table:
    """What would be done, in this order."""
    title = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("", justify="right")
    for name in ("action", "kind", "container", "from", "to"):
        table.add_column(name, overflow="fold")
    for number, step in enumerate(steps, 1):
        table.add_row(
            str(number),
            step.action,
            step.kind,
            escape(step.name),
            escape(step.source or "-"),
            escape(step.target or "-"),
        )
    return table


def show_choice(console: Console, choice: Choice, policy: str) -> None:
    console.print(
        f"policy {policy}: {len(choice.delegated)} topic{'' if len(choice.delegated) == 1 else 's'} delegated "
        f"({choice.workload:,.0f} workload); {len(choice.no_room)} that do not fit and {len(choice.not_wanted)} not "
        "selected stay with the central broker",
        highlight=False,
    )
    for label, names in (("do not fit", choice.no_room), ("not selected", choice.not_wanted)):
        if names:
            rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
            console.print(f"  {label}: {escape(', '.join(names[:10]))}{rest}", highlight=False)
