"""Statistics in, a frozen plan out: where brokers and services should run, and which topics to delegate; no I/O."""

from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Ints, Price, compile_arrays, make_plan, place_numbers, price
from metromq.planning.baselines import greedy_places, random_places, simple_bound
from metromq.planning.model import (
    INFEASIBLE,
    NOT_FOUND,
    Clock,
    Device,
    Goal,
    Limits,
    Placement,
    Plan,
    Problem,
    Service,
    Topic,
    Watch,
    nobody,
    plan_document,
)
from metromq.planning.optimal import fits_at_all, optimal
from metromq.planning.planner import METHODS, Method, make_placement, move_price, priced
from metromq.planning.policies import POLICIES, Choice, Policy, choose, delegating, service_workload, statistics_of
from metromq.planning.problem_files import check_machines, read_placement, read_problem
from metromq.planning.steps import NONE_EXISTS, SAFE, PlanStep, Transition, route_between
from metromq.planning.timing import Deadline, Job

__all__ = [
    "INFEASIBLE",
    "METHODS",
    "NONE_EXISTS",
    "NOT_FOUND",
    "POLICIES",
    "SAFE",
    "Arrays",
    "Choice",
    "Clock",
    "Deadline",
    "Device",
    "Goal",
    "Ints",
    "Job",
    "Limits",
    "Method",
    "Placement",
    "Plan",
    "PlanStep",
    "Policy",
    "Price",
    "Problem",
    "Service",
    "Topic",
    "Transition",
    "Watch",
    "anneal",
    "check_machines",
    "choose",
    "compile_arrays",
    "delegating",
    "fits_at_all",
    "greedy_places",
    "make_placement",
    "make_plan",
    "move_price",
    "nobody",
    "optimal",
    "place_numbers",
    "plan_document",
    "price",
    "priced",
    "random_places",
    "read_placement",
    "read_problem",
    "route_between",
    "service_workload",
    "simple_bound",
    "statistics_of",
]
