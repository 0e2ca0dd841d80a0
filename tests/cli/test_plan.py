"""`metromq plan`: files, errors, tables, JSON, differences, and problems from a city and from the lake's rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from metromq.cli.plan import command
from metromq.cli.plan_sources import city_source, lake_document
from metromq.errors import ConfigError, MetroError, UsageError
from metromq.federation.status import AreaStatus, BrokerStatus, CityStatus, LinkStatus, Traffic
from metromq.planning.model import TopicStatistics
from metromq.planning.problem_files import read_problem
from tests.planning.problems import document

KEYS = ["topics", "services", "power_mw", "objective", "bound_mw", "gap", "network_mbps", "worst_hops", "moves", "load"]
KEYS += ["method", "status", "shortage", "seconds", "weights", "delegation", "notes"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document()))
    return path


def run(*words: object) -> Result:
    result = CliRunner().invoke(command, [str(word) for word in words], env={"COLUMNS": "140"})
    if isinstance(result.exception, MetroError):
        raise result.exception
    return result


def plan(*words: object) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("method", ["auto", "optimal", "optimal-paper", "greedy", "random", "large"])
def test_every_method_prints_the_plan_as_json(file: Path, method: str) -> None:
    found = plan("--from", file, "--method", method, "--time-limit", 600)
    assert list(found) == KEYS
    assert set(found["topics"]) == {"air", "noise"}
    assert set(found["services"]) == {"map"}
    assert sum(found["load"].values()) == pytest.approx(330)
    assert found["bound_mw"] <= found["power_mw"] + 1e-6
    if method in ("auto", "optimal", "optimal-paper"):
        assert found["status"] == "optimal"


def test_the_table_shows_places_loads_and_the_comparison(file: Path, tmp_path: Path) -> None:
    present = tmp_path / "now.json"
    present.write_text(json.dumps(plan("--from", file, "--method", "random", "--seed", 5)))
    result = run("--from", file, "--present", present, "--diff")
    assert result.exit_code == 0
    for word in ("air", "noise", "map", "kiosk", "█", "greedy", "present", "saved by the plan", "gap 0.00%", "steps"):
        assert word in result.stdout, result.stdout


def test_toml_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(
        """
        broker_workload_per_mbps = 10
        network_mw_per_mbps = 0.0137
        links = [["a", "b"]]
        services = []
        [[devices]]
        name = "a"
        capacity_workload = 100
        mw_per_workload = 0.2
        [[devices]]
        name = "b"
        capacity_workload = 100
        mw_per_workload = 0.1
        [[topics]]
        name = "air"
        [topics.client_mbps]
        a = 5
        """
    )
    assert plan("--from", path)["topics"] == {"air": "b"}


def test_moves_are_limited_and_listed(file: Path, tmp_path: Path) -> None:
    present = tmp_path / "now.json"
    present.write_text(json.dumps({"topics": {"air": "depot", "noise": "depot"}, "services": {"map": "mast"}}))
    stay = plan("--from", file, "--present", present, "--max-moves", 0)
    assert stay["topics"] == {"air": "depot", "noise": "depot"}
    one = plan("--from", file, "--present", present, "--max-moves", 1, "--diff")
    assert [step["action"] for step in one["steps"]] == ["move"]
    assert one["power_mw"] < stay["power_mw"]
    dear = plan("--from", file, "--present", present, "--weight", "move=1000000")
    assert dear["topics"] == stay["topics"]
    with pytest.raises(UsageError, match="--max-moves needs the present placement"):
        run("--from", file, "--max-moves", 1)


def test_weights_change_the_plan_and_wrong_ones_are_refused(file: Path) -> None:
    power = plan("--from", file)
    traffic = plan("--from", file, "--weight", "power=0", "--weight", "traffic=1")
    assert traffic["network_mbps"] <= power["network_mbps"]
    for word in ("speed=1", "traffic", "traffic=-1", "traffic=nan"):
        with pytest.raises(UsageError, match="--weight"):
            run("--from", file, "--weight", word)


def test_a_policy_with_a_budget_delegates_fewer_topics(file: Path) -> None:
    assert set(plan("--from", file, "--policy", "LP")["topics"]) == {"air", "noise"}
    found = plan("--from", file, "--policy", "LP", "--budget", 60)
    assert set(found["topics"]) == {"noise"}
    assert "air" in run("--from", file, "--policy", "LP", "--budget", 60).stdout
    with pytest.raises(UsageError, match="--budget only works with --policy"):
        run("--from", file, "--budget", 60)


def test_nothing_fits_is_said_with_the_shortage(tmp_path: Path) -> None:
    raw = document()
    raw["devices"][0]["capacity_workload"] = raw["devices"][1]["capacity_workload"] = 60
    raw["devices"][2]["capacity_workload"] = 150
    path = tmp_path / "short.json"
    path.write_text(json.dumps(raw))
    result = run("--from", path, "--json")
    assert result.exit_code == 1
    assert "service map needs 160 workload, but the largest capacity is 150 (depot): short by 10" in result.stderr
    found = json.loads(result.stdout)
    assert list(found) == KEYS
    assert found["status"] == "infeasible"
    assert found["power_mw"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"x\.json: is not JSON"),
        ("[]", r"x\.json: must be a table"),
        ('{"devices": 1}', r"x\.json: devices: must be a list"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        run("--from", path)
    with pytest.raises(UsageError, match="No such file"):
        run("--from", tmp_path / "missing.json")


def test_a_file_of_devices_that_nobody_would_read_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="--devices only works with --from city or lake"):
        run("--from", file, "--devices", file)


def test_help_has_examples() -> None:
    assert "metromq plan --from lake" in run("--help").stdout


def site() -> dict[str, Any]:
    raw = document()
    del raw["topics"]
    raw["services"] = [{"name": "map", "mqtt_workload_per_mbps": 20, "user_workload_per_mbps": 5}]
    return raw


def test_the_lakes_rows_and_a_devices_file_make_a_problem() -> None:
    tau = [{"topic": "air", "device": "mast", "mbps": 6.0}, {"topic": "air", "device": "depot", "mbps": 2.0}]
    dsd = [{"service": "map", "device": "depot", "mbps": 8.0}]
    dst = [{"service": "map", "topic": "air", "mbps": 4.0}, {"service": "map", "topic": "noise", "mbps": 2.0}]
    counts = [
        _seen("air", "mast", (1, 3), (2, 5)),
        _seen("air", "elsewhere", (3, 1), (5, 2)),
    ]
    problem = read_problem(lake_document(site(), tau, dsd, dst, counts))
    assert [topic.name for topic in problem.topics] == ["air", "noise"]
    assert problem.topics[0].client_mbps == {"mast": 6.0, "depot": 2.0}
    assert problem.topics[0].statistics == TopicStatistics(1, 3, 2, 5)
    assert problem.services[0].topic_mbps == {"air": 4.0, "noise": 2.0}
    with pytest.raises(ConfigError, match="planner_dst has service 'other'"):
        lake_document(site(), tau, dsd, [{"service": "other", "topic": "air", "mbps": 1.0}], counts)


def _seen(topic: str, place: str, publishers: tuple[int, int], subscribers: tuple[int, int]) -> dict[str, Any]:
    return {
        "topic": topic,
        "site": place,
        "publishers_inside": publishers[0],
        "publishers_outside": publishers[1],
        "subscribers_inside": subscribers[0],
        "subscribers_outside": subscribers[1],
        "publications_per_second": 1.0,
    }


def test_the_lake_is_read_from_its_tables(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    arrow = pytest.importorskip("pyarrow")
    lake = tmp_path / "lake"
    rows = {
        "planner_tau": {"topic": ["air"], "device": ["mast"], "mbps": [6.0]},
        "planner_dsd": {"service": ["map"], "device": ["depot"], "mbps": [8.0]},
        "planner_dst": {"service": ["map"], "topic": ["air"], "mbps": [4.0]},
    }
    devices = tmp_path / "devices.json"
    devices.write_text(json.dumps(site()))
    with pytest.raises(UsageError, match="has no table planner_tau"):
        run("--from", "lake", "--lake", lake, "--devices", devices)
    for name, columns in rows.items():
        deltalake.write_deltalake(str(lake / name), arrow.table(columns))
    found = plan("--from", "lake", "--lake", lake, "--devices", devices)
    assert set(found["topics"]) == {"air"}
    assert set(found["services"]) == {"map"}
    with pytest.raises(UsageError, match="needs --devices"):
        run("--from", "lake", "--lake", lake)


def city() -> CityStatus:
    def broker(name: str, area: str, site: str, peer: str, received: float) -> BrokerStatus:
        return BrokerStatus(
            name,
            "up",
            site=site,
            areas=(AreaStatus(area, 0, True),),
            traffic=Traffic(bytes_received_per_s=125_000, bytes_sent_per_s=250_000),
            links=(LinkStatus(peer, "up", bytes_sent_per_s=125_000, bytes_received_per_s=received),),
        )

    down = BrokerStatus("b02", "down")
    return CityStatus(
        "test", "geographic", 0.0, (broker("b00", "0", "x", "b01", 125_000), broker("b01", "1", "y", "b00", 0), down)
    )


def test_a_running_city_is_a_problem_with_its_present_placement() -> None:
    source = city_source(city(), None)
    assert [device.name for device in source.problem.devices] == ["b00", "b01"]
    assert [(t.name, dict(t.client_mbps)) for t in source.problem.topics] == [
        ("0/#", {"b01": 1.0, "b00": 2.0}),
        ("1/#", {"b01": 2.0}),
    ]
    assert source.present is not None
    assert source.present.topics == {"0/#": "b00", "1/#": "b01"}


def test_devices_of_a_city_may_be_its_sites() -> None:
    machines = {
        "broker_workload_per_mbps": 10,
        "network_mw_per_mbps": 1,
        "devices": [{"name": n, "capacity_workload": 100, "mw_per_workload": 0.2} for n in ("x", "y")],
        "links": [["x", "y"]],
    }
    source = city_source(city(), machines)
    assert source.present is not None
    assert source.present.topics == {"0/#": "x", "1/#": "y"}
    machines["devices"] = [{"name": "x", "capacity_workload": 100, "mw_per_workload": 0.2}]
    with pytest.raises(ConfigError, match="no device for broker b01"):
        city_source(city(), machines)
    with pytest.raises(UsageError, match="no broker of test is up"):
        city_source(CityStatus("test", "geographic", 0.0, ()), None)
