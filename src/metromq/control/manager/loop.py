"""The closed loop: statistics, planner, the difference to what runs, and a plan that is carried out; on a schedule."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metromq.control.core import (
    ActionPlan,
    Hysteresis,
    LoopSettings,
    Patience,
    Proposal,
    Scene,
    Surroundings,
    loop_steps,
    propose,
    units_of,
)
from metromq.errors import MetroError

if TYPE_CHECKING:
    from metromq.control.manager.manager import Manager


@dataclass(frozen=True, slots=True)
class LoopOptions:
    every_s: float = 0.0  # 0: only when somebody asks
    settings: LoopSettings = field(default_factory=LoopSettings)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class Look:
    """One evaluation: what should be, which of it may change now, and the plan for that (None: nothing to do)."""

    proposal: Proposal
    plan: ActionPlan | None
    waiting: tuple[str, ...] = ()


class Loop:
    def __init__(self, manager: "Manager", options: LoopOptions) -> None:
        self._manager = manager
        self.options = options
        self._patience = Hysteresis(options.patience)
        self.last: Look | None = None

    async def run(self) -> None:
        if not self.options.every_s:
            return
        while True:
            await asyncio.sleep(self.options.every_s)
            try:
                if self._manager.state.current is None:
                    await self.turn("loop")
            except MetroError as error:
                self._manager.tell(f"the loop could not look: {error}")

    async def look(self, patient: bool, dry: bool) -> Look:
        """`patient`: with hysteresis; a person who asks may have it at once. A dry look counts for nothing."""
        around = await self._manager.surroundings()
        scene = self._scene(around)
        proposal = await asyncio.to_thread(propose, scene, around.statistics, self.options.settings, time.monotonic)
        present = {f"filter {one}": broker for one, broker in scene.present.items()}
        present |= {f"service {name}": device for name, (_, device) in scene.services.items()}
        wanted = {f"filter {one}": broker for one, broker in proposal.filters.items()}
        wanted |= {f"service {name}": device for name, device in proposal.services.items()}
        if not patient or dry:
            allowed = {one: wanted.get(one, "") for one in (*present, *wanted) if present.get(one) != wanted.get(one)}
        else:
            allowed = self._patience.settle(present, wanted, self._moved(), time.time())
        filters = {one[7:]: to for one, to in allowed.items() if one.startswith("filter ")}
        services = {one[8:]: to for one, to in allowed.items() if one.startswith("service ") and to}
        plan = loop_steps(filters, services, proposal.grounds, around)
        waiting = tuple(
            f"{one} wants to be at {to or around.central}, for {looks} looks"
            for one, (to, looks) in self._patience.waiting().items()
            if one not in allowed
        )
        found = Look(proposal, plan if plan.steps else None, waiting)
        if not dry:
            self.last = found
        return found

    async def turn(self, author: str, patient: bool = True) -> int | None:
        """Looks, and carries out what is to be done; the number of the plan, if there is one."""
        found = await self.look(patient, dry=False)
        return self._manager.accept(found.plan, author) if found.plan is not None else None

    def _moved(self) -> dict[str, float]:
        state = self._manager.state
        moved = {f"filter {one}": at for one, at in state.moved.items()}
        for name, service in state.services.items():
            moved[f"service {name}"] = state.plans[service.plan].time
        return moved

    def _scene(self, around: Surroundings) -> Scene:
        """People's own delegations are left alone, and so is what overlaps with them."""
        wanted = [one for state in around.services.values() if state.spec.delegate for one in state.spec.topics]
        theirs = [one for one in around.delegations if one not in around.own_filters]
        own = {one: broker for one, broker in around.delegations.items() if one in around.own_filters}
        fixed = dict.fromkeys([*wanted, *own])
        units = units_of(around.statistics.rows, fixed, theirs, self.options.settings.levels)
        rows = around.statistics.rows
        return Scene(
            around.central,
            tuple(around.devices.values()),
            {unit: {topic: rows[topic] for topic in topics} for unit, topics in units.items()},
            own,
            {name: (state.spec, state.device) for name, state in around.services.items()},
        )
