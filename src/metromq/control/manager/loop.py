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
    left_alone,
    loop_steps,
    propose,
    scene_of,
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
    left: tuple[str, ...] = ()  # what people decided, and the loop does not touch


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
        scene = scene_of(around, self.options.settings.levels)
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
        left = tuple(left_alone(around.peoples, around))
        found = Look(proposal, plan if plan.steps else None, waiting, left)
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
