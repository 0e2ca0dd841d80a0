"""Does the steps of plans, and takes them back. Each may be done twice: a manager that crashed repeats its last one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from metromq.control.core import (
    APPROVE,
    AWAIT_SERVICE,
    CHECK,
    DELEGATE,
    MEASURE,
    PLACE,
    PULL,
    START_BROKER,
    START_SERVICE,
    START_TUNNEL,
    STOP_SERVICE,
    TELL_PROXIES,
    ActionPlan,
    Device,
    NotPossible,
    State,
    Statistics,
    Step,
    decided_by,
    delegation_problem,
    holder,
    overruled,
)
from metromq.control.delegating import delegate, delegations
from metromq.control.manager.place import Workplace
from metromq.control.manager.proxies import ProxyDesk
from metromq.control.manager.runtimes import Runtime, RuntimeFailed
from metromq.errors import MetroError

STARTED = "started"
WAS_RUNNING = "was running"
START_S = 60.0
LOOK_S = 0.1
HANDOVER_S = 30.0
TRIES = 5
TRY_AGAIN_S = 1.0
STEADY_LOOKS = 10  # a service that runs at each of these has started
PROXIES_S = 10.0

Done = Callable[[Step, ActionPlan], Awaitable[str]]


class StepFailed(MetroError):
    """A step cannot be done; the message says why."""


class Actions:
    """`refresh` makes the proxies' table anew; `statistics` are those of now."""

    def __init__(
        self,
        place: Workplace,
        state: State,
        desk: ProxyDesk,
        refresh: Callable[[], Awaitable[None]],
        statistics: Callable[[], Awaitable[Statistics]],
    ) -> None:
        self._place = place
        self._state = state
        self._desk = desk
        self._refresh = refresh
        self._statistics = statistics
        self._doing: Mapping[str, Done] = {
            MEASURE: self._measure,
            CHECK: self._check,
            APPROVE: self._approve,
            PLACE: self._check_place,
            PULL: self._pull,
            START_BROKER: self._start_broker,
            START_TUNNEL: self._start_tunnel,
            DELEGATE: self._delegate,
            TELL_PROXIES: self._tell_proxies,
            START_SERVICE: self._start_service,
            AWAIT_SERVICE: self._await_service,
            STOP_SERVICE: self._stop_service,
        }

    async def do(self, step: Step, plan: ActionPlan) -> str:
        """What came of it, in a word or sentence; raises MetroError."""
        return await self._doing[step.action](step, plan)

    async def take_back(self, step: Step, plan: ActionPlan, result: str) -> str:
        if step.action == START_BROKER and result == STARTED:
            await self._place.programs.stop(f"broker-{step.what}")
            return "stopped"
        if step.action == DELEGATE:
            return await self._hand(step.what, step.before, step.where)
        if step.action == START_SERVICE:
            return await self._stop_service(step, plan)
        if step.action == STOP_SERVICE:
            return await self._start_service(step, plan)
        return ""

    # Before anything changes.

    async def _measure(self, step: Step, plan: ActionPlan) -> str:
        statistics = await self._statistics()
        topics = {topic for one in plan.service(step.what).topics for topic in statistics.of_filter(one)}
        return f"{statistics.source}: {len(topics)} topics in use"

    async def _check(self, step: Step, plan: ActionPlan) -> str:
        missing = [one.what for one in plan.steps if one.action == PLACE and one.where not in self._state.devices]
        if missing:
            raise StepFailed(f"the device of {', '.join(missing)} is gone")
        if step.what in self._state.services:
            raise StepFailed(f"there is a service {step.what} already")
        return "possible"

    async def _approve(self, step: Step, plan: ActionPlan) -> str:
        known = {one.filter: one.broker for one in await delegations(self._place.city, self._place.data)}
        problem = delegation_problem(step.what, known)
        if problem:
            raise StepFailed(problem)
        return "approved"

    async def _check_place(self, step: Step, plan: ActionPlan) -> str:
        self._device(step.where)
        return step.where

    def _device(self, name: str) -> Device:
        device = self._state.devices.get(name)
        if device is None:
            raise StepFailed(f"device {name} is gone")
        return device

    # Brokers, tunnels, filters, proxies.

    async def _pull(self, step: Step, plan: ActionPlan) -> str:
        spec = plan.service(step.what)
        unit = self._place.service_unit(spec, self._device(step.where))
        await self._place.runtime(spec).prepare(unit)
        return "there"

    async def _start_broker(self, step: Step, plan: ActionPlan) -> str:
        own = f"broker-{step.what}"
        is_own = await self._place.programs.is_running(own)
        if self._place.is_up(step.what) and not is_own:
            return WAS_RUNNING
        await self._place.programs.start(self._place.broker_unit(step.what))
        try:
            async with asyncio.timeout(START_S):
                while not await self._place.is_ready(step.what):
                    if not await self._place.programs.is_running(own):
                        raise StepFailed(await self._ended_at_once(self._place.programs, own))
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            await self._place.programs.stop(own)
            raise StepFailed(f"{step.what} does not answer: {self._place.log_tail(own)}") from None
        return WAS_RUNNING if step.what in self._state.brokers else STARTED

    async def _start_tunnel(self, step: Step, plan: ActionPlan) -> str:
        """Without proxies nobody needs it; when one registers, it is started then."""
        given = any(device.broker == step.what and device.tunnel for device in self._state.devices.values())
        if given or not self._state.proxies:
            return "not needed"
        await self._place.programs.start(self._place.tunnel_unit(step.what))
        try:
            async with asyncio.timeout(START_S):
                while not await self._place.tunnel_is_up(step.what):
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise StepFailed(f"no tunnel ends: {self._place.log_tail(f'tunnel-{step.what}')}") from None
        return self._place.tunnel_address(step.what)

    async def _delegate(self, step: Step, plan: ActionPlan) -> str:
        now = self._state.decisions.get(step.what)
        if plan.kind != "delegate" and now is not None and overruled(now, step.decision_before):
            raise StepFailed(f"{step.what} was {decided_by(now.by)} since the plan was made")
        return await self._hand(step.what, step.where, step.before)

    async def _hand(self, topic_filter: str, to: str, before: str) -> str:
        """Tried again for a while: a broker that has just started may still be on its way into the city."""
        central = self._place.city.central
        for _ in range(TRIES):
            known = {one.filter: one.broker for one in await delegations(self._place.city, self._place.data)}
            owner = known.get(topic_filter, "")
            wanted = to or holder(
                topic_filter, {one: who for one, who in known.items() if one != topic_filter}, central
            )
            if holder(topic_filter, known, central) == wanted:
                return f"{wanted} has it"
            if owner not in ("", before):
                raise StepFailed(f"{topic_filter} is {owner}'s, and was {before or 'nobody'}'s when the plan was made")
            found = await delegate(self._place.city, self._place.data, topic_filter, to, HANDOVER_S)
            has_it = central if found is None else "" if found.phase else found.broker
            if has_it == wanted:
                return f"{wanted} has it"
            await asyncio.sleep(TRY_AGAIN_S)
        raise StepFailed(f"the hand-over of {topic_filter} to {to or 'the central broker'} was given up each time")

    async def _tell_proxies(self, step: Step, plan: ActionPlan) -> str:
        """A deaf proxy does not stop a plan: brokers pass on what is not theirs."""
        await self._refresh()
        there = list(self._state.proxies)
        not_yet = await self._desk.unknowing(there, PROXIES_S)
        rest = f"; {', '.join(not_yet)} will when it asks" if not_yet else ""
        return f"{len(there) - len(not_yet)} of {len(there)} proxies know{rest}"

    # Services.

    async def _start_service(self, step: Step, plan: ActionPlan) -> str:
        spec = plan.service(step.what)
        self._place.usage.mkdir(parents=True, exist_ok=True)
        runtime, unit = self._place.runtime(spec), self._place.service_unit(spec, self._device(step.where))
        if plan.kind == "enter" and not await runtime.is_running(unit.name):
            await runtime.begin_log(unit.name)
        await runtime.start(unit)
        return STARTED

    async def _await_service(self, step: Step, plan: ActionPlan) -> str:
        spec, name = plan.service(step.what), f"service-{step.what}"
        for _ in range(STEADY_LOOKS):
            await asyncio.sleep(LOOK_S)
            if not await self._place.runtime(spec).is_running(name):
                raise StepFailed(await self._ended_at_once(self._place.runtime(spec), name))
        return "runs"

    async def _ended_at_once(self, runtime: Runtime, name: str) -> str:
        how, said = await runtime.how_it_ended(name), self._place.log_tail(name)
        return f"{name.partition('-')[2]} ended at once {how}".strip() + (f": {said}" if said else ".")

    async def _stop_service(self, step: Step, plan: ActionPlan) -> str:
        await self._place.runtime(plan.service(step.what)).stop(f"service-{step.what}")
        return "stopped"


__all__ = ["Actions", "NotPossible", "RuntimeFailed", "StepFailed"]
