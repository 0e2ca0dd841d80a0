"""Plans are carried out, resumed after a crash at any moment, and taken back when a step fails."""

from dataclasses import dataclass, field
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.control.core import (
    DELEGATE,
    DONE,
    ROLLED_BACK,
    START_BROKER,
    START_SERVICE,
    STOP_SERVICE,
    STUCK,
    ActionPlan,
    Device,
    DeviceSet,
    Effect,
    ManagerCore,
    ProxyPlace,
    ProxySeen,
    Record,
    Run,
    ServiceRestarted,
    ServiceSpec,
    ServiceState,
    State,
    Step,
    Surroundings,
    Write,
    decode_record,
    encode_record,
    entry_plan,
    place_entry,
    undo_steps,
)

SPEC = ServiceSpec("noise", ("noise/#",), ("run",))
AROUND = Surroundings("c", {"d1": Device("d1", "b1"), "d2": Device("d2", "b2")}, {})


@dataclass
class World:
    """What steps change; each may be done twice."""

    owners: dict[str, str] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    brokers: set[str] = field(default_factory=set)
    fails_at: frozenset[int] = frozenset()
    fails_back_at: frozenset[int] = frozenset()

    def do(self, run: Run) -> tuple[str, bool]:
        if run.step in (self.fails_back_at if run.back else self.fails_at):
            return "broken", True
        step = run.what
        if step.action == DELEGATE:
            self._give(step.what, step.before if run.back else step.where)
        elif step.action == START_BROKER:
            if run.back and run.result == "started":
                self.brokers.discard(step.what)
            elif not run.back:
                self.brokers.add(step.what)
            return "started", False
        elif (step.action == START_SERVICE) != run.back and step.action in (START_SERVICE, STOP_SERVICE):
            self.services[step.what] = step.where
        elif step.action in (START_SERVICE, STOP_SERVICE):
            self.services.pop(step.what, None)
        return "", False

    def _give(self, topic_filter: str, owner: str) -> None:
        self.owners.pop(topic_filter, None)
        if owner:
            self.owners[topic_filter] = owner


class Crashed(Exception):
    pass


class Shell:
    """As the manager's: writes first. It crashes after so many things that it did. Every other one that starts finds a
    log that began anew with a snapshot."""

    def __init__(self, world: World, log: list[bytes], lives: int) -> None:
        self.world, self.log, self.lives = world, log, lives
        self.state = State()
        for line in log:
            self.state.apply(decode_record(line))
        if lives % 2 and log:
            log[:] = [encode_record(Record(self.state.last, 1.0, "manager", self.state.snapshot(1, 10))), *log[-3:]]
            self.state = State()
            for line in log:
                self.state.apply(decode_record(line))
        self.core = ManagerCore(self.state)

    def live(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise Crashed

    def carry(self, effects: list[Effect]) -> None:
        waiting = list(effects)
        while waiting:
            effect = waiting.pop(0)
            self.live()
            if isinstance(effect, Write):
                self.log.append(encode_record(effect.record))
                continue
            result, failed = self.world.do(effect)
            self.live()
            waiting += self.core.ended(effect.plan, effect.step, result, failed, effect.back, 1.0)


@cache
def entry() -> ActionPlan:
    placed, grounds = place_entry(SPEC, AROUND, lambda: 0.0)
    return entry_plan(SPEC, placed, grounds, AROUND)


def carried_out(plan: ActionPlan, world: World, crashes: list[int]) -> State:
    log: list[bytes] = []
    for lives in [*crashes, 10_000]:
        shell = Shell(world, log, lives)
        try:
            if not shell.state.plans:
                shell.carry(shell.core.accept(plan, "me", 1.0)[1])
            else:
                shell.carry(shell.core.resume(1.0))
        except Crashed:
            continue
        break
    final = Shell(world, log, 0)
    assert final.state.current is None
    return final.state


def test_the_steps_are_those_of_figure_6_in_its_order() -> None:
    actions = [step.action for step in entry().steps]
    assert actions == [
        *("measure", "check", "approve", "place", "pull", "start-broker", "start-tunnel"),
        *("delegate", "tell-proxies", "start-service", "await-service"),
    ]


def test_a_plan_is_carried_out_whatever_crashes_and_when() -> None:
    undisturbed = carried_out(entry(), World(), [])
    for lives in range(60):
        for again in (0, 3):
            world = World()
            state = carried_out(entry(), world, [lives, again])
            assert state.plans[1].phase == DONE
            assert world.services == {"noise": "d1"}
            assert world.owners == {"noise/#": "b1"}
            assert state.plans[1].results == undisturbed.plans[1].results
            assert state.filters == {"noise/#": "b1"}


@pytest.mark.parametrize("step", range(11))
def test_a_step_that_fails_takes_everything_back_through_crashes_too(step: int) -> None:
    for lives in range(50):
        world = World(owners={"other": "b2"}, fails_at=frozenset({step}))
        state = carried_out(entry(), world, [lives])
        assert state.plans[1].phase == ROLLED_BACK
        assert state.plans[1].why == "broken"
        assert (world.owners, world.services, world.brokers) == ({"other": "b2"}, {}, set())
        assert not state.services
        assert not state.filters
        assert not state.brokers


def test_what_cannot_be_taken_back_is_said() -> None:
    world = World(fails_at=frozenset({10}), fails_back_at=frozenset({7}))
    state = carried_out(entry(), world, [])
    assert state.plans[1].phase == STUCK
    assert "step 8 back: broken" in state.plans[1].why
    assert world.services == {}, "the others are taken back all the same"


@given(st.lists(st.integers(0, 30), max_size=6), st.frozensets(st.integers(0, 10), max_size=2))
def test_any_crashes_and_failures_end_in_all_or_nothing(crashes: list[int], fails: frozenset[int]) -> None:
    world = World(fails_at=fails)
    state = carried_out(entry(), world, crashes)
    if fails:
        assert (world.owners, world.services, world.brokers) == ({}, {}, set())
    else:
        assert (world.owners, world.services) == ({"noise/#": "b1"}, {"noise": "d1"})
    assert (state.plans[1].phase == DONE) == (not fails)


def test_the_check_finds_a_manager_that_does_not_write_ahead() -> None:
    """The planted bug: records are written after the step. A crash in between forgets the plan."""
    world, log = World(), list[bytes]()

    class Late(Shell):
        def carry(self, effects: list[Effect]) -> None:
            super().carry(sorted(effects, key=lambda effect: isinstance(effect, Write)))

    shell = Late(world, log, 1)
    with pytest.raises(Crashed):
        shell.carry(shell.core.accept(entry(), "me", 1.0)[1])
    assert not Shell(world, log, 0).state.plans, "nobody would finish it"


def test_plans_wait_for_each_other() -> None:
    world, log = World(), list[bytes]()
    shell = Shell(world, log, 10_000)
    first = shell.core.accept(entry(), "me", 1.0)[1]
    number, second = shell.core.accept(ActionPlan("delegate", "x", (Step(DELEGATE, "x", "b2"),)), "me", 1.0)
    assert [type(effect) for effect in second] == [Write]
    shell.carry([*first, *second])
    assert shell.state.plans[number].phase == DONE
    assert world.owners == {"noise/#": "b1", "x": "b2"}
    assert shell.state.filters == {"noise/#": "b1"}, "what a person delegates is theirs"


def test_undo_restores_what_was_before() -> None:
    world = World()
    state = carried_out(entry(), world, [])
    after = Surroundings("c", AROUND.devices, dict(world.owners), state.services, decisions=state.decisions)
    back = undo_steps(state.plans[1], after)
    assert [step.action for step in back.steps] == ["stop-service", "delegate", "tell-proxies"]
    assert back.steps[1].where == ""


def test_undo_leaves_topics_where_they_are_that_another_service_uses() -> None:
    world = World()
    state = carried_out(entry(), world, [])
    other = ServiceState(ServiceSpec("other", ("noise/1",), ("true",)), "d1", 2)
    after = Surroundings(
        "c", AROUND.devices, dict(world.owners), {**state.services, "other": other}, decisions=state.decisions
    )
    assert [step.action for step in undo_steps(state.plans[1], after).steps] == ["stop-service"]


def test_a_snapshot_is_all_that_its_records_come_to() -> None:
    shell = Shell(World(), [], 10_000)
    for _ in range(3):
        shell.carry(shell.core.accept(entry(), "me", 1.5)[1])
        shell.carry(shell.core.accept(ActionPlan("delegate", "x", (Step(DELEGATE, "x", "b2"),)), "me", 1.0)[1])
    shell.carry(shell.core.note(DeviceSet(Device("d9", "b2")), "me", 1.0))
    shell.carry(shell.core.note(ProxySeen(ProxyPlace("gate", "127.0.0.1:1")), "me", 1.0))
    shell.carry(shell.core.note(ServiceRestarted("noise", 7), "manager", 1.0))
    kept = State()
    kept.apply(decode_record(encode_record(Record(shell.state.last, 1.0, "m", shell.state.snapshot(100, 100)))))
    assert {name: value for name, value in vars(kept).items() if name != "_appliers"} == {
        name: value for name, value in vars(shell.state).items() if name != "_appliers"
    }
    assert not [name for name, value in vars(kept).items() if not value], "every kind of thing was there"


def test_a_snapshot_keeps_the_newest_plans_and_those_that_somebody_needs() -> None:
    shell = Shell(World(), [], 10_000)
    shell.carry(shell.core.accept(entry(), "me", 1.5)[1])
    for _ in range(5):
        shell.carry(shell.core.accept(ActionPlan("delegate", "x", (Step(DELEGATE, "x", "b2"),)), "me", 1.0)[1])
    waiting, _ = shell.core.accept(entry(), "me", 1.5)
    kept = shell.state.snapshot(2, 10)
    assert [plan.number for plan in kept.plans] == [1, 5, 6, waiting]
    after = State()
    after.apply(Record(shell.state.last, 1.0, "m", kept))
    for line in shell.log:  # history speaks of plans that are forgotten
        after.apply(decode_record(line))
    assert list(after.plans) == [1, 5, 6, waiting]


def test_a_record_comes_back_as_it_was() -> None:
    shell = Shell(World(), [], 10_000)
    shell.carry(shell.core.accept(entry(), "me", 1.5)[1])
    records: list[Record] = [decode_record(line) for line in shell.log]
    assert [encode_record(record) for record in records] == shell.log
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    for line in (b"{}", b"[]", b"nonsense", b'{"number":1,"time":1,"author":"a","kind":"other","change":{}}'):
        with pytest.raises(ValueError):
            decode_record(line)
