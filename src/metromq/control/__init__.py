"""Runs a city: where its files are, the processes on this machine, and what its brokers say of themselves."""

from metromq.control.city_status import ask_city
from metromq.control.data_directory import (
    CITY_FILE,
    DEFAULT_DATA,
    RunningBroker,
    city_named,
    city_running,
    forget_place,
    is_free,
    keep_place,
    only_one,
    running_here,
)
from metromq.control.processes import Keeper
from metromq.control.running import CityOptions, RunningCity
from metromq.control.tracing import Leg, Trace, is_running, live_ask, planned_ask, trace

__all__ = [
    "CITY_FILE",
    "DEFAULT_DATA",
    "CityOptions",
    "Keeper",
    "Leg",
    "RunningBroker",
    "RunningCity",
    "Trace",
    "ask_city",
    "city_named",
    "city_running",
    "forget_place",
    "is_free",
    "is_running",
    "keep_place",
    "live_ask",
    "only_one",
    "planned_ask",
    "running_here",
    "trace",
]
