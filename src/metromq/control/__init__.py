"""Runs a city: where its files are, the processes on this machine, and what its brokers say of themselves."""

from metromq.city_file import check_city, city_text, load_city, secret_places
from metromq.control.asking_manager import ManagerDoor, ManagerSays, NoManager, find_manager, need_manager
from metromq.control.changing import CityNow, CityVersion, city_now, give_order
from metromq.control.city_status import NoAnswer, ask_city
from metromq.control.data_directory import (
    CITY_FILE,
    DEFAULT_DATA,
    RunningBroker,
    city_named,
    city_running,
    forget_place,
    is_free,
    keep_city,
    keep_place,
    keep_worker,
    new_key,
    only_one,
    running_here,
    with_chosen_ports,
)
from metromq.control.delegating import delegate, delegations, delegations_at
from metromq.control.processes import Keeper
from metromq.control.reclustering import ClusterChange, recluster
from metromq.control.running import CityOptions, RunningCity
from metromq.control.tracing import Leg, Trace, is_running, live_ask, planned_ask, trace

__all__ = [
    "CITY_FILE",
    "DEFAULT_DATA",
    "CityNow",
    "CityOptions",
    "CityVersion",
    "ClusterChange",
    "Keeper",
    "Leg",
    "ManagerDoor",
    "ManagerSays",
    "NoAnswer",
    "NoManager",
    "RunningBroker",
    "RunningCity",
    "Trace",
    "ask_city",
    "check_city",
    "city_named",
    "city_now",
    "city_running",
    "city_text",
    "delegate",
    "delegations",
    "delegations_at",
    "find_manager",
    "forget_place",
    "give_order",
    "is_free",
    "is_running",
    "keep_city",
    "keep_place",
    "keep_worker",
    "live_ask",
    "load_city",
    "need_manager",
    "new_key",
    "only_one",
    "planned_ask",
    "recluster",
    "running_here",
    "secret_places",
    "trace",
    "with_chosen_ports",
]
