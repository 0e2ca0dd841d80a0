"""The manager: the paper's four modules (proxies and brokers, topics, services, devices) behind one HTTP API."""

from metromq.control.core import Counts, Device, LoopSettings, Patience, PolicyName, ServiceSpec, Statistics
from metromq.control.manager.counting import OwnCounters, added_up
from metromq.control.manager.loop import LoopOptions
from metromq.control.manager.manager import Manager, ManagerOptions
from metromq.control.manager.serving import serve_manager

__all__ = [
    "Counts",
    "Device",
    "LoopOptions",
    "LoopSettings",
    "Manager",
    "ManagerOptions",
    "OwnCounters",
    "Patience",
    "PolicyName",
    "ServiceSpec",
    "Statistics",
    "added_up",
    "serve_manager",
]
