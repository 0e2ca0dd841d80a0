"""The placement file: what is read, and the field that every refusal names."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from metromq.errors import ConfigError
from metromq.planning.problem_files import read_placement, read_problem
from tests.planning.problems import document


def test_a_file_with_links_becomes_hops() -> None:
    problem = read_problem(document())
    assert problem.hops == ((0, 1, 2), (1, 0, 1), (2, 1, 0))
    assert problem.topics[0].client_mbps == {"mast": 6.0, "depot": 2.0}
    assert problem.services[0].topic_mbps == {"air": 4.0, "noise": 2.0}


def test_hops_may_name_each_pair_once() -> None:
    raw = document()
    del raw["links"]
    raw["hops"] = {"mast": {"mast": 0, "kiosk": 1, "depot": 2}, "depot": {"kiosk": 1.0}}
    assert read_problem(raw).hops == ((0, 1, 2), (1, 0, 1), (2, 1, 0))


def at(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        place: Any = raw
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def without(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        place: Any = raw
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def hops(value: object) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        del raw["links"]
        raw["hops"] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            at("topics", 1, "client_mbps", "dev9", value=1),
            "topics[1].client_mbps.dev9: unknown device; use one of depot",
        ),
        (
            at("topics", 0, "client_mbps", "mast", value=-1),
            "topics[0].client_mbps.mast: must be from 0 to 1000000000, not -1",
        ),
        (
            at("topics", 0, "client_mbps", "mast", value=math.nan),
            "topics[0].client_mbps.mast: must be a finite number, not nan",
        ),
        (at("topics", 0, "client_mbps", "mast", value="6"), 'topics[0].client_mbps.mast: must be a number, not "6"'),
        (at("topics", 0, "client_mbps", value=[6]), "topics[0].client_mbps: must be a table, not a list"),
        (at("topics", 1, "name", value="air"), 'topics[1].name: "air" is already the name of topics[0]'),
        (
            at("topics", 0, "colour", value="red"),
            "topics[0].colour: unknown field; the fields are client_mbps, name, statistics",
        ),
        (
            at("topics", 0, "statistics", value={"publishers_inside": -1}),
            "topics[0].statistics.publishers_inside: must be",
        ),
        (
            at("services", 0, "topic_mbps", "smell", value=1),
            "services[0].topic_mbps.smell: unknown topic; use one of air",
        ),
        (at("services", 0, "user_mbps", "dev9", value=1), "services[0].user_mbps.dev9: unknown device"),
        (without("services", 0, "user_workload_per_mbps"), "services[0].user_workload_per_mbps: is missing"),
        (
            at("services", 0, "mqtt_workload_per_mbps", value=True),
            "services[0].mqtt_workload_per_mbps: must be a number",
        ),
        (at("devices", 1, "name", value="mast"), 'devices[1].name: "mast" is already the name of devices[0]'),
        (at("devices", 1, "name", value=7), "devices[1].name: must be text, not 7"),
        (at("devices", 0, "capacity_workload", value="400 MHz"), "devices[0].capacity_workload: must be a number"),
        (
            at("devices", 0, "capacity_workload", value=math.inf),
            "devices[0].capacity_workload: must be a finite number, not inf",
        ),
        (at("devices", value=[]), "devices: there must be at least one device"),
        (at("devices", value="mast"), 'devices: must be a list, not "mast"'),
        (at("devices", 0, value="mast"), "devices[0]: must be a table, not"),
        (without("topics"), "topics: is missing"),
        (without("network_mw_per_mbps"), "network_mw_per_mbps: is missing"),
        (at("broker_workload_per_mbps", value=-10), "broker_workload_per_mbps: must be from 0 to 1000000000, not -10"),
        (without("links"), "hops: either hops or links must be given"),
        (at("hops", value={}), "hops: is also given as links; keep only one of them"),
        (at("links", value=[["mast", "kiosk"]]), "links: the graph is disconnected: no path leads from mast to depot"),
        (at("links", 1, value=["kiosk", "moon"]), 'links[1][1]: unknown device "moon"'),
        (at("links", 1, value=["kiosk"]), "links[1]: must be a list of 2 values, and has 1"),
        (at("links", value="all"), 'links: must be a list, not "all"'),
        (hops({"mast": {"kiosk": 1}, "kiosk": {"depot": 1}}), "hops.mast.depot: is missing: every two devices"),
        (hops({"mast": {"kiosk": 1.5}}), "hops.mast.kiosk: must be a whole number, not 1.5"),
        (hops({"mast": {"kiosk": 0}}), "hops.mast.kiosk: a device is 0 hops from itself"),
        (hops({"mast": {"kiosk": 1}, "kiosk": {"mast": 2}}), "hops.kiosk.mast: is 2, but hops.mast.kiosk is 1"),
        (hops({"moon": {"mast": 1}}), "hops.moon: unknown device"),
        (at("wifi", value=1), "wifi: unknown field; the fields are broker_workload_per_mbps"),
    ],
)
def test_a_wrong_file_is_refused_by_field(change: Callable[[dict[str, Any]], None], message: str) -> None:
    raw = document()
    change(raw)
    with pytest.raises(ConfigError) as caught:
        read_problem(raw)
    first = str(caught.value).removeprefix("configuration: 2 problems:\n  ")  # one more that follows from it
    assert first.startswith(message)
    with pytest.raises(ConfigError, match=r"^city\.json: "):
        read_problem(raw, "city.json")


def test_a_capacity_in_another_unit_shows_because_nothing_fits() -> None:
    raw = document()
    for device, gigahertz in zip(raw["devices"], (2.4, 3.2, 1.8), strict=True):
        device["capacity_workload"] = gigahertz
    with pytest.raises(
        ConfigError, match=r"^devices\[1\]\.capacity_workload: 3\.2 is the largest .* needs 50.*unit\?$"
    ):
        read_problem(raw)


def test_something_else_than_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a table"):
        read_problem([1, 2])


def test_a_plan_can_be_the_present_placement() -> None:
    problem = read_problem(document())
    placement = read_placement(
        {"topics": {"air": "mast", "gone": "depot"}, "services": {}, "status": "optimal"}, problem
    )
    assert placement.topics == {"air": "mast", "gone": "depot"}
    with pytest.raises(ConfigError, match=r'^old\.json: services\.map: unknown device "moon"'):
        read_placement({"services": {"map": "moon"}}, problem, "old.json")
