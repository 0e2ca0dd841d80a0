"""Who decides on a filter: what a person decided, only people change, whatever services, loop, undo and crashes do."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.control.core import (
    DELEGATE,
    DONE,
    ActionPlan,
    Counts,
    Decision,
    Device,
    LoopSettings,
    NotPossible,
    PolicyName,
    Record,
    ServiceSpec,
    ServiceState,
    State,
    Statistics,
    Surroundings,
    decided_by,
    decode_record,
    delegation_steps,
    encode_record,
    entry_plan,
    fallen,
    heal_plan,
    left_alone,
    loop_steps,
    overruled,
    place_entry,
    propose,
    removal_steps,
    scene_of,
    standing,
    undo_steps,
)
from tests.control.core.test_acting import Shell, World

DEVICES = {"d1": Device("d1", "b1"), "d2": Device("d2", "b2")}
NOISE = ServiceSpec("noise", ("noise/#",), ("run",))


def both(rate: float) -> Counts:
    return Counts(rate, rate * 100, 1, 1, rate, rate * 100)


def around(
    delegations: dict[str, str], decisions: dict[str, Decision], rows: dict[str, dict[str, Counts]], at: str = "d1"
) -> Surroundings:
    services = {"noise": ServiceState(NOISE, at, 1)}
    return Surroundings("c", DEVICES, delegations, services, Statistics(rows, 60.0, "a test"), decisions)


def looked(around: Surroundings, policy: PolicyName = "auto") -> ActionPlan:
    """As the loop does it when somebody asks."""
    scene = scene_of(around, 2)
    found = propose(scene, around.statistics, LoopSettings(policy), lambda: 0.0)
    wishes = {one: found.filters.get(one, "") for one in (*scene.present, *found.filters)}
    return loop_steps(wishes, found.services, (), around)


FAR = {"noise/1": {"b1": both(1000)}}  # all of it is at b1


@pytest.mark.parametrize("policy", ["LP", "NS", "EP", "auto"])
def test_the_loop_leaves_a_services_filter_where_a_person_put_it(policy: PolicyName) -> None:
    free = around({"noise/#": "b2"}, {"noise/#": Decision("b2", "service noise")}, FAR)
    assert [(step.what, step.where) for step in looked(free, policy).steps if step.action == DELEGATE] == [
        ("noise/#", "b1")
    ]
    for by in ("person alice", "person"):
        theirs = around({"noise/#": "b2"}, {"noise/#": Decision("b2", by)} if by != "person" else {}, FAR)
        assert not looked(theirs, policy).steps
    assert left_alone(theirs.peoples, theirs) == [
        "left alone: noise/# at b2, delegated by somebody without the manager"
    ]
    fixed = around({}, {"noise/#": Decision("", "person alice")}, FAR)
    assert not looked(fixed, policy).steps, "she wants it at the central broker"
    assert left_alone(fixed.peoples, fixed) == ["left alone: noise/# at c, delegated by alice"]
    assert [step.where for step in looked(around({}, {}, FAR), policy).steps if step.action == DELEGATE] == ["b1"]


def test_what_the_manager_had_and_somebody_moved_without_it_is_theirs() -> None:
    moved = around({"noise/#": "b2", "air/#": "b2"}, {"noise/#": Decision("b1", "service noise")}, FAR)
    assert moved.peoples.keys() == {"noise/#", "air/#"}
    assert not looked(moved).steps
    assert [step.action for step in removal_steps("noise", moved).steps] == ["stop-service"]


def test_the_loop_does_not_return_its_own_filter_because_a_part_of_it_is_a_persons() -> None:
    """It leaves alone what touches people's filters: where it is, not where it was."""
    split = around(
        {"air/x/#": "b1", "air/x/1": "b2"}, {"air/x/#": Decision("b1", "loop")}, {"air/x/2": {"b1": both(9)}}
    )
    assert not [step for step in looked(split).steps if step.what.startswith("air")]


@pytest.mark.parametrize("policy", ["LP", "NS", "EP", "auto"])
def test_a_services_filter_stays_too_unless_a_tenth_of_the_average_cost_is_saved(policy: PolicyName) -> None:
    def goes(here: float, there: float) -> list[tuple[str, str]]:
        rows = {"noise/1": {"b1": both(here), "b2": both(there)}}
        known = around({"noise/#": "b1"}, {"noise/#": Decision("b1", "service noise")}, rows)
        return [(step.what, step.where) for step in looked(known, policy).steps if step.action == DELEGATE]

    assert goes(100, 101) == []
    assert goes(100, 104) == []
    assert goes(10, 1000) == [("noise/#", "b2")]


@pytest.mark.parametrize("policy", ["LP", "NS", "EP", "auto"])
def test_what_a_service_uses_is_not_returned_because_nothing_is_published(policy: PolicyName) -> None:
    assert not looked(around({"noise/#": "b1"}, {"noise/#": Decision("b1", "service noise")}, {}), policy).steps


def test_a_service_that_enters_leaves_what_people_decided() -> None:
    pinned = Surroundings("c", DEVICES, {}, decisions={"noise/#": Decision("", "person alice")})
    placed, grounds = place_entry(NOISE, pinned, lambda: 0.0)
    plan = entry_plan(NOISE, placed, grounds, pinned)
    assert DELEGATE not in [step.action for step in plan.steps]
    assert plan.grounds[-1] == "left alone: noise/# at c, delegated by alice"


def test_a_service_that_leaves_returns_what_was_delegated_for_services_only() -> None:
    for by, returned in (("service noise", True), ("service gone", True), ("loop", False), ("person alice", False)):
        plan = removal_steps("noise", around({"noise/#": "b1"}, {"noise/#": Decision("b1", by)}, {}))
        assert (DELEGATE in [step.action for step in plan.steps]) == returned
        assert plan.grounds == (() if returned else (f"left alone: noise/# at b1, {decided_by(by)}",))


def test_a_service_that_leaves_does_not_come_back_as_a_filter() -> None:
    """A wider one stands for it: without that it must not be handed over again."""
    merged = around({"#": "b1"}, {"noise/#": Decision("b1", "service noise")}, {})
    steps = [step for step in removal_steps("noise", merged).steps if step.action == DELEGATE]
    assert [(step.what, step.where, step.decision) for step in steps] == [("noise/#", "", None)]


def test_who_decides_is_said_as_people_say_it() -> None:
    assert decided_by("person loop") == "delegated by loop"
    assert decided_by("loop") == "delegated by the loop"
    assert decided_by("service air") == "delegated for service air"


def test_decisions_that_are_not_so_are_found() -> None:
    decisions = {
        "a/#": Decision("b1", "person x"),
        "b/#": Decision("", "person x"),
        "b/1": Decision("", "person x"),
        "c/#": Decision("b1", "loop"),
        "d/#": Decision("b1", "loop"),
    }
    now = {"b/#": "b2", "c/#": "b2", "d": "b1", "e/#": "b1"}
    assert fallen(decisions, now, "c") == {"a/#": "b1", "b/1": "c", "d/#": "b1"}
    assert fallen(decisions, {"a/#": "b1", "#": "b1"}, "c") == {"b/#": "c", "b/1": "c"}


def test_an_older_log_is_read() -> None:
    """Steps said nothing of decisions, and snapshots had filters of the manager."""

    def plan(number: int, kind: str, *steps: tuple[str, str, str]) -> dict[str, object]:
        fields = [dict(zip(("action", "what", "where", "before"), (DELEGATE, *step), strict=True)) for step in steps]
        return {"plan": number, "what": {"kind": kind, "subject": "x", "steps": fields}}

    none: dict[str, object] = {name: [] for name in ("devices", "proxies", "services", "plans", "brokers")}
    changes: list[tuple[str, dict[str, object]]] = [
        ("snapshot", {**none, "filters": {"old/#": "b1"}, "moved": {}}),
        ("plan", plan(1, "delegate", ("x", "b2", ""))),
        ("step-ended", {"plan": 1, "step": 0}),
        ("plan", plan(2, "loop", ("y", "b2", ""), ("old/#", "b2", "b1"))),
        ("step-ended", {"plan": 2, "step": 0}),
        ("step-ended", {"plan": 2, "step": 1}),
        ("step-ended", {"plan": 2, "step": 1, "back": True}),
    ]
    state = State()
    for number, (kind, change) in enumerate(changes, 1):
        line = {"number": number, "time": 1.0, "author": "alice", "kind": kind, "change": change}
        state.apply(decode_record(json.dumps(line).encode()))
    assert state.decisions == {
        "old/#": Decision("b1", "loop"),
        "x": Decision("b2", "person alice"),
        "y": Decision("b2", "loop"),
    }


FILTERS = ("a/#", "a/1", "b/#")
SPECS = [ServiceSpec(f"s{number}", (one,), ("run",)) for number, one in enumerate(FILTERS)]


@dataclass
class Town:
    """Everybody acts at random; `chosen` is what people decided last, as a person with a notebook would write it."""

    world: World = field(default_factory=World)
    log: list[bytes] = field(default_factory=list)
    chosen: dict[str, Decision] = field(default_factory=dict)
    before: dict[int, dict[str, Decision]] = field(default_factory=dict)

    def shell(self) -> Shell:
        """A manager that has just started, every time; every other one finds a log that began anew."""
        return Shell(self.world, self.log, 10_000 + len(self.log) % 2)

    def around(self, shell: Shell) -> Surroundings:
        counted = Statistics({"a/1": {"b1": both(5)}, "b/1": {"b2": both(5)}}, 1.0, "a test")
        return Surroundings("c", DEVICES, dict(self.world.owners), shell.state.services, counted, shell.state.decisions)

    def act(self, who: str, one: str, broker: str) -> None:
        shell = self.shell()
        try:
            plan = self.plan(shell, who, one, broker)
        except NotPossible:
            return
        if plan is None or not plan.steps:
            return
        number, effects = shell.core.accept(plan, who, 1.0)
        self.before[number] = dict(self.chosen)
        if who in ("alice", "bob") and broker:
            self.chosen[one] = Decision("" if broker == "c" else broker, f"person {who}")
        elif who in ("alice", "bob"):
            self.chosen.pop(one, None)
        elif who == "undo":
            for name in {step.what for step in plan.steps if step.action == DELEGATE}:
                self.chosen.pop(name, None)
                if name in self.before[plan.undoes]:
                    self.chosen[name] = self.before[plan.undoes][name]
        shell.carry(effects)
        assert shell.state.plans[number].phase == DONE

    def plan(self, shell: Shell, who: str, one: str, broker: str) -> ActionPlan | None:
        around = self.around(shell)
        spec = SPECS[FILTERS.index(one)]
        if who in ("alice", "bob"):
            return delegation_steps(one, broker, who, around)
        if who == "enter":
            return entry_plan(spec, *place_entry(spec, around, lambda: 0.0), around)
        if who == "remove":
            return removal_steps(spec.name, around)
        if who == "heal":
            lost = fallen(around.decisions, around.delegations, "c")
            return heal_plan(lost, around.decisions) if lost else None
        if who == "undo":
            last = max(shell.state.plans, default=0)
            return undo_steps(shell.state.plans[last], around) if last else None
        scene = scene_of(around, 2)
        return loop_steps({name: broker for name in (*scene.present, *scene.units)}, {}, (), around)

    def lose(self, broker: str) -> None:
        self.world.owners = {one: who for one, who in self.world.owners.items() if who != broker}


ACTORS = st.sampled_from(["alice", "bob", "enter", "remove", "loop", "loop", "undo", "heal", "lost"])
ACTS = st.lists(st.tuples(ACTORS, st.sampled_from(FILTERS), st.sampled_from(["", "b1", "b2", "c"])), max_size=14)


@given(ACTS)
@settings(max_examples=150)
def test_what_people_decided_stands_until_people_change_it(acts: list[tuple[str, str, str]]) -> None:
    town = Town()
    for who, one, broker in acts:
        if who == "lost":
            town.lose(broker)
        else:
            held = {name: town.world.owners.get(name, "") for name in town.chosen}
            town.act(who, one, broker)
            if who in ("enter", "remove", "loop"):
                assert {name: town.world.owners.get(name, "") for name in town.chosen} == held
        state = town.shell().state
        peoples = {name: known for name, known in state.decisions.items() if known.by.startswith("person")}
        assert peoples == town.chosen
        assert standing(state.decisions, town.world.owners, "c") == state.decisions, "everybody asked the manager"
        if who == "heal":
            for name, known in town.chosen.items():
                if name in town.world.owners:
                    assert town.world.owners[name] == (known.broker or "c")


def test_a_person_who_decided_since_a_plan_was_made_is_not_overruled() -> None:
    loops = Decision("b1", "loop")
    assert not overruled(loops, loops)
    assert not overruled(None, loops)
    assert not overruled(Decision("b2", "service noise"), loops)
    assert overruled(Decision("b1", "person alice"), loops)
    assert not overruled(Decision("b1", "person alice"), Decision("b1", "person alice"))


def test_undo_of_what_decided_nothing_has_nothing_to_take_back() -> None:
    """What was healed, or ordered twice, would fall back and be healed again."""
    shell = Shell(World(), [], 10_000)
    hers = {"noise/#": Decision("b1", "person alice")}
    again = delegation_steps("noise/#", "b1", "alice", around({"noise/#": "b1"}, hers, {}))
    for plan in (heal_plan({"noise/#": "b1"}, hers), again):
        number, effects = shell.core.accept(plan, "manager", 1.0)
        shell.carry(effects)
        with pytest.raises(NotPossible, match="nothing of plan"):
            undo_steps(shell.state.plans[number], around({"noise/#": "b1"}, hers, {}))


def test_undo_says_what_it_leaves_and_why() -> None:
    shell = Shell(World(), [], 10_000)
    plan = looked(around({}, {}, FAR))
    number, effects = shell.core.accept(plan, "loop", 1.0)
    shell.carry(effects)
    hers = around({"noise/#": "b1"}, {"noise/#": Decision("b1", "person alice")}, FAR)
    with pytest.raises(NotPossible, match="left alone: noise/# at b1, delegated by alice"):
        undo_steps(shell.state.plans[number], hers)


def test_a_snapshot_keeps_who_decided() -> None:
    state = State()
    state.decisions = {"x": Decision("", "person alice"), "y": Decision("b1", "loop")}
    after = State()
    after.apply(decode_record(encode_record(Record(1, 1.0, "m", state.snapshot(1, 1)))))
    assert after.decisions == state.decisions
