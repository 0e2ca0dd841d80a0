"""What `metromq plan` answers: exit statuses, what a policy left out, quiet cities, bad numbers, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from metromq.cli import plan as plan_command
from metromq.cli.main import group
from metromq.cli.plan_sources import city_source
from metromq.cli.plan_tables import show_plan
from metromq.cli.plan_work import StoppedEarly, answered, interrupts, ordered
from metromq.errors import ConfigError, UsageError
from metromq.federation.status import AreaStatus, BrokerStatus, CityStatus, LinkStatus, Traffic
from metromq.lab.delegation.instances import Family, draw
from metromq.planning.arrays import compile_arrays
from metromq.planning.model import Goal, Limits, Placement, Plan, Problem
from metromq.planning.planner import Method, make_placement, move_price
from metromq.planning.problem_files import read_problem
from metromq.planning.steps import Transition, route_between
from metromq.planning.timing import Job
from tests.cli.test_plan import plan, run
from tests.planning.problems import clock, document
from tests.planning.test_large import PUZZLES, puzzle

AMPLE = ("--time-limit", 600)  # these take a second of processor time: only a machine that stands still runs out of it
ANSWERED_S = 30.0  # a second where nobody else works; without Ctrl-C it would be the whole time limit

# The command as users start it, which also says when it has a plan: how long that takes is the machine's affair.
TELLING = """
import sys
from metromq.cli.main import main
from metromq.planning.timing import Job

keep = Job.keep


def told(self, *found):
    keep(self, *found)
    print("has a plan", file=sys.stderr, flush=True)


Job.keep = told
main()
"""


def write(path: Path, problem: Problem) -> Path:
    names = [device.name for device in problem.devices]
    raw = asdict(problem)
    raw["hops"] = {a: {b: problem.hops[i][j] for j, b in enumerate(names)} for i, a in enumerate(names)}
    for topic in raw["topics"]:
        del topic["statistics"]
    path.write_text(json.dumps(raw))
    return path


def test_not_found_and_proven_infeasible_have_their_own_statuses(tmp_path: Path) -> None:
    file = write(tmp_path / "puzzle.json", puzzle(PUZZLES[0]).problem)
    stuck = run("--from", file, "--method", "greedy", "--json")
    assert (stuck.exit_code, json.loads(stuck.stdout)["status"]) == (3, "not-found")
    assert "does not mean that there is none" in stuck.stderr
    assert plan("--from", file, "--method", "large", *AMPLE)["status"] in ("optimal", "feasible")
    tight = document()
    for device, capacity in zip(tight["devices"], (160, 119, 119), strict=True):  # 330 of 398, but air needs 120
        device["capacity_workload"] = capacity
    other = tmp_path / "tight.json"
    other.write_text(json.dumps(tight))
    for method in ("optimal", "large", "optimal-paper"):
        none = run("--from", other, "--method", method, "--json", *AMPLE)
        assert (none.exit_code, json.loads(none.stdout)["status"]) == (1, "infeasible")
        assert json.loads(none.stdout)["objective"] is None
        assert "short on" in json.loads(none.stdout)["shortage"]


def test_json_has_the_goal_and_what_the_policy_left_out(tmp_path: Path) -> None:
    raw = document()
    raw["topics"].append({"name": "unheard", "client_mbps": {"mast": 1}})
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(raw))
    found = plan("--from", file, "--policy", "LP", "--budget", 60, "--weight", "latency=3")
    assert found["delegation"] == {
        "policy": "LP",
        "delegated": ["noise"],
        "no_room": ["air"],
        "not_wanted": ["unheard"],
        "workload": 50.0,
    }
    assert found["weights"] == {"power": 1.0, "traffic": 0.0, "latency": 3.0, "move": 0.0}
    assert found["objective"] == pytest.approx(found["power_mw"] + 3 * found["worst_hops"])
    assert found["moves"] == 0
    assert plan("--from", file)["delegation"] is None


def quiet_city(bytes_per_s: dict[str, float]) -> CityStatus:
    """Sixteen brokers, one area each; their clients send so much."""
    names = [f"b{i}{j}" for i in range(4) for j in range(4)]
    brokers = tuple(
        BrokerStatus(
            name,
            "up",
            areas=(AreaStatus(f"{name[1]}/{name[2]}", 0, True),),
            traffic=Traffic(bytes_received_per_s=bytes_per_s.get(name, 0.0)),
        )
        for name in names
    )
    return CityStatus("test", "geographic", 0.0, brokers)


def moves_of(status: CityStatus, move: float | None = None) -> int:
    source = city_source(status, None)
    assert source.present is not None
    cost = move_price(source.problem, source.present) if move is None else move
    goal = Goal(present=source.present, move=cost)
    counts = set()
    methods: tuple[Method, ...] = ("optimal", "large")
    for method in methods:
        found = make_placement(source.problem, method, clock(), goal, Limits(1.0))
        assert found.feasible
        counts.add(found.moves)
    return max(counts)


def test_a_quiet_city_stays_as_it_is() -> None:
    idle = quiet_city({})
    assert moves_of(idle) == moves_of(idle, move=0.0) == 0
    assert "any placement is as good" in city_source(idle, None).notes[0]
    some = quiet_city({"b00": 1000.0, "b12": 50_000.0})
    assert moves_of(some, move=0.0) == 0  # nothing can be saved: the idle ones do not move for nothing


def test_a_move_must_earn_its_cost() -> None:
    """Clients that favour another device by a hair: eight areas would move for 0.3 % of the power."""
    names = [f"b{i}" for i in range(8)]
    machines: dict[str, Any] = {
        "broker_workload_per_mbps": 10,
        "network_mw_per_mbps": 0.0137,
        "devices": [
            {"name": name, "capacity_workload": 300, "mw_per_workload": 0.19 * (1 if n % 2 else 0.997)}
            for n, name in enumerate([*names, *(f"c{i}" for i in range(8))])
        ],
        "services": [],
    }
    everyone = [device["name"] for device in machines["devices"]]
    machines["links"] = [[a, b] for n, a in enumerate(everyone) for b in everyone[n + 1 :]]
    brokers = tuple(
        BrokerStatus(name, "up", areas=(AreaStatus(str(n), 0, True),), traffic=Traffic(bytes_received_per_s=2_500_000))
        for n, name in enumerate(names)
    )
    source = city_source(CityStatus("test", "geographic", 0.0, brokers), machines)
    free = replace(source.problem, network_mw_per_mbps=0.0)
    assert source.present is not None
    loose = make_placement(free, "optimal", clock(), Goal(present=source.present))
    assert loose.moves == 4  # every second device is dearer by three thousandths
    cost = move_price(free, source.present)
    assert cost == pytest.approx(0.1 * sum(200 * 0.19 * (1 if n % 2 else 0.997) for n in range(8)) / 8)
    assert make_placement(free, "optimal", clock(), Goal(present=source.present, move=cost)).moves == 0


def city_of_two() -> CityStatus:
    """Clients of b01 publish on 0/1/... only; nobody subscribes elsewhere, so no link carries it."""
    areas = {"b00": ("0/0", "0/1"), "b01": ("1/0", "1/1", "1/2", "1/3")}
    return CityStatus(
        "test",
        "geographic",
        0.0,
        tuple(
            BrokerStatus(
                name,
                "up",
                areas=tuple(AreaStatus(area, 0, True) for area in found),
                traffic=Traffic(bytes_received_per_s=500_000 if name == "b01" else 0),
                links=(LinkStatus("b01" if name == "b00" else "b00", "up"),),
            )
            for name, found in areas.items()
        ),
    )


def test_traffic_goes_to_the_topics_that_carried_it() -> None:
    tau = [
        {"topic": "0/1/3/sensors/7", "device": "b01", "mbps": 3.0},
        {"topic": "0/1", "device": "b01", "mbps": 1.0},
        {"topic": "0/12/x", "device": "b01", "mbps": 0.25},
        {"topic": "0/0/1", "device": "moon", "mbps": 0.5},
    ]
    source = city_source(city_of_two(), None, tau)
    assert {t.name: dict(t.client_mbps) for t in source.problem.topics} == {
        "0/0/#": {},
        "0/1/#": {"b01": 4.0},
        "1/0/#": {},
        "1/1/#": {},
        "1/2/#": {},
        "1/3/#": {},
    }
    assert len(source.notes) == 2
    assert "0.25 Mbps of topics outside" in source.notes[0]
    assert "0.5 Mbps of site moon" in source.notes[1]
    assert source.present is not None
    goal = Goal(present=source.present, move=move_price(source.problem, source.present))
    found = make_placement(replace(source.problem, network_mw_per_mbps=13.7), "optimal", clock(), goal)
    assert found.placement.topics == {**source.present.topics, "0/1/#": "b01"}


def test_without_topics_the_assumption_is_told() -> None:
    assert "not by topic" in city_source(city_of_two(), None).notes[0]


BAD = [
    ('"network_mw_per_mbps": 1.5', f'"network_mw_per_mbps": {"9" * 400}', "network_mw_per_mbps"),
    ('"network_mw_per_mbps": 1.5', f'"network_mw_per_mbps": {"9" * 5000}', "network_mw_per_mbps"),
    ('"network_mw_per_mbps": 1.5', '"network_mw_per_mbps": NaN', "network_mw_per_mbps"),
    ('"network_mw_per_mbps": 1.5', '"network_mw_per_mbps": 1e999', "network_mw_per_mbps"),
    ('"capacity_workload": 400', '"capacity_workload": 1e300', r"devices[0].capacity_workload"),
    ('"mast": 6', '"mast": 1e300', "topics[0].client_mbps.mast"),
    ('"mast": 6', f'"mast": {"[" * 100_000}{"]" * 100_000}', "topics[0].client_mbps.mast[0]"),
    ('"mast": 6', '"mast": 6, "mast": 7', "topics[0].client_mbps.mast"),
    ('"capacity_workload": 400', '"capacity_workload": -1', r"devices[0].capacity_workload"),
]


@pytest.mark.parametrize(("old", "new", "field"), BAD, ids=range(len(BAD)))
def test_bad_numbers_are_told_by_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    text = json.dumps(document())
    assert old in text
    file = tmp_path / "bad.json"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        run("--from", file)
    assert field in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_byte_order_mark_and_bad_options_are_told(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    file.write_text("\ufeff" + json.dumps(document()))
    with pytest.raises(ConfigError, match="byte order mark"):
        run("--from", file)
    file.write_text(json.dumps(document()))
    for option in ("--time-limit", "--budget"):
        for value in ("nan", "inf", "-1", "1e300", "9" * 400, "x"):
            result = run("--from", file, "--policy", "LP", option, value)
            assert result.exit_code == 2, (option, value)
            assert option in result.stderr
    with pytest.raises(UsageError, match="--weight power=2: power is given more than once"):
        run("--from", file, "--weight", "power=1", "--weight", "power=2")
    for value in ("nan", "1e300", "9" * 400):
        with pytest.raises(UsageError, match="--weight traffic="):
            run("--from", file, "--weight", f"traffic={value}")
    present = tmp_path / "present.json"
    present.write_text('{"topics": {"air": "mast", "air": "depot"}}')
    with pytest.raises(ConfigError, match=r"topics\.air: is given more than once"):
        run("--from", file, "--present", present)


@pytest.mark.parametrize("method", ["optimal", "large"])
def test_ctrl_c_gets_the_best_plan_so_far(method: Method) -> None:
    """Sent as soon as there is a plan: in the midst of search, bound or solver."""
    problem = draw(Family(20, 60, 40, workload_ratio=0.6), np.random.default_rng(0))
    sent: list[float] = []

    def work(job: Job) -> Plan:
        def press() -> None:
            while job.found is None:
                time.sleep(0.01)
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        return make_placement(problem, method, time.perf_counter, limits=Limits(1000.0), job=job)

    answer = answered(work, time.perf_counter)
    took = time.perf_counter() - sent[0]
    assert answer.plan.status == "interrupted"
    assert 0 < answer.plan.bound_mw <= answer.plan.objective
    assert len(answer.plan.placement.topics) == 60
    assert took < ANSWERED_S


def test_a_planner_that_does_not_look_up_is_left_behind() -> None:
    arrays = compile_arrays(read_problem(document()))
    release = threading.Event()

    def work(job: Job) -> Plan:
        job.keep(arrays, np.array([0, 0, 2]))
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(60)
        raise AssertionError("nobody waits for this")

    answer = answered(work, time.perf_counter)
    assert answer.left_behind
    assert answer.plan.placement.services == {"map": "depot"}

    def nothing(job: Job) -> Plan:
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(60)
        raise AssertionError("nobody waits for this")

    with pytest.raises(StoppedEarly):
        answered(nothing, time.perf_counter)


def test_ctrl_c_twice_does_not_lose_the_plan() -> None:
    arrays = compile_arrays(read_problem(document()))
    release, all_sent = threading.Event(), threading.Event()

    def work(job: Job) -> Plan:
        job.keep(arrays, np.array([0, 0, 2]))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            release.wait(0.1)
        all_sent.set()
        release.wait(60)
        raise AssertionError("nobody waits for this")

    with interrupts():  # on a slow machine the last ones come when the answer is there
        assert answered(work, time.perf_counter).plan.placement.services == {"map": "depot"}
        assert all_sent.wait(60)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_the_plan_is_printed_does_not_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "city.json"
    file.write_text(json.dumps(document()))

    def pressed(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        show_plan(*arguments)

    monkeypatch.setattr(plan_command, "show_plan", pressed)
    result = run("--from", file)
    assert result.exit_code == 0, result.output
    assert "kiosk" in result.stdout


SWALLOWING = """
import time

print("importing", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt as error:
    raise ImportError("as extension modules do") from error
"""


def test_ctrl_c_while_a_command_is_imported_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(SWALLOWING)
    program = "from metromq.cli import main; main.COMMANDS['slow'] = ('slow_module', ''); main.main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command_line = [sys.executable, "-c", program, "slow"]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=ANSWERED_S)
    assert (process.returncode, err) == (130, b"metromq: stopped\n")


def test_a_process_that_gets_ctrl_c_prints_a_plan(tmp_path: Path) -> None:
    file = write(tmp_path / "city.json", draw(Family(20, 60, 40, workload_ratio=0.6), np.random.default_rng(0)))
    words = ["plan", "--from", str(file), "--method", "optimal", "--json", "--time-limit", "1000"]
    command_line = [sys.executable, "-c", TELLING, *words]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"has a plan\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=ANSWERED_S)
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert json.loads(out)["status"] == "interrupted"


def test_ctrl_c_while_steps_are_ordered_prints_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is searched as far as it was when Ctrl-C came; once more does no harm."""
    file, present = tmp_path / "city.json", tmp_path / "now.json"
    file.write_text(json.dumps(document()))
    present.write_text(json.dumps({"topics": {"air": "depot", "noise": "depot"}, "services": {"map": "mast"}}))
    jobs: list[Job] = []

    def pressed(problem: Problem, now: Placement, planned: Placement, *job: Job) -> Transition:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        jobs.extend(job)
        return route_between(problem, now, planned, *job)

    monkeypatch.setattr(plan_command, "route_between", pressed)
    result = run("--from", file, "--present", present, "--diff", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["order"] in ("safe", "none-found")
    assert "stopped" in result.stderr
    assert [job.stopped for job in jobs] == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_once_ctrl_c_came_nobody_waits_for_the_order_of_steps() -> None:
    def until_stopped(job: Job) -> Transition:
        end = time.monotonic() + ANSWERED_S
        while not job.stopped and time.monotonic() < end:
            time.sleep(0.01)
        return Transition(())

    with interrupts() as ctrl_c:
        os.kill(os.getpid(), signal.SIGINT)  # between two jobs: it stops the next one
        assert ordered(until_stopped, ctrl_c) == (Transition(()), True)
        assert ordered(until_stopped, ctrl_c) == (Transition(()), True)  # the one after that gets a moment
        assert ordered(lambda job: Transition(()), ctrl_c) == (Transition(()), False)


def test_ctrl_c_before_anything_is_read_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr(plan_command, "from_file", pressed)
    result = CliRunner().invoke(group, ["plan", "--from", "city.json"])
    assert (result.exit_code, result.stderr) == (130, "metromq: stopped\n")


@pytest.mark.parametrize("method", ["greedy", "greedy-by-kind", "random"])
def test_methods_without_a_limit_of_moves_refuse_it(tmp_path: Path, method: str) -> None:
    file, present = tmp_path / "city.json", tmp_path / "now.json"
    file.write_text(json.dumps(document()))
    present.write_text(json.dumps({"topics": {"air": "depot", "noise": "depot"}, "services": {"map": "mast"}}))
    with pytest.raises(UsageError, match=f"{method} .*; use one of auto, optimal, optimal-paper, large"):
        run("--from", file, "--present", present, "--max-moves", 1, "--method", method)


@pytest.mark.parametrize("method", ["auto", "optimal", "optimal-paper", "large"])
def test_the_other_methods_keep_to_it(tmp_path: Path, method: str) -> None:
    file, present = tmp_path / "city.json", tmp_path / "now.json"
    file.write_text(json.dumps(document()))
    present.write_text(json.dumps({"topics": {"air": "depot", "noise": "depot"}, "services": {"map": "mast"}}))
    words = ("--from", file, "--present", present, "--method", method, *AMPLE)
    assert plan(*words, "--weight", "move=0")["moves"] > 1
    assert plan(*words, "--weight", "move=0", "--max-moves", 1)["moves"] == 1
