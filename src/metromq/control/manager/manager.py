"""The manager's shell: carries out what the core decides, keeps programs running, and knows what the city does."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from metromq.control.core import (
    OPEN,
    ActionPlan,
    Change,
    Device,
    DeviceSet,
    Effect,
    ManagerCore,
    Record,
    Run,
    ServiceRestarted,
    Snapshot,
    State,
    Statistics,
    Supervision,
    Surroundings,
    Write,
    delegation_problem,
    fallen,
    heal_plan,
)
from metromq.control.delegating import delegations
from metromq.control.manager.actions import Actions
from metromq.control.manager.counting import LakeReader, OwnCounters
from metromq.control.manager.loop import Loop, LoopOptions
from metromq.control.manager.place import Workplace
from metromq.control.manager.proxies import ProxyDesk, made_table
from metromq.control.manager.record_log import RecordLog
from metromq.control.manager.runtimes import RuntimeFailed
from metromq.control.manager.usage import ServiceUsage, spool
from metromq.errors import MetroError
from metromq.federation import City

LOOK_S = 0.5
MOST_REMEMBERED = 10_000  # records that history shows; the log has at most twice as many
MOST_PLANS = 1_000  # that have ended, and can be shown and undone
MOST_MOVED = 10_000  # filters whose last move is known
BACK_FOR_S = 3.0  # who is there again for so long gets its filters again


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    data: Path
    tunnel_host: str = "127.0.0.1"
    span_s: float = 120.0  # of own counters
    window_s: float = 10.0  # of the telemetry that the manager writes
    loop: LoopOptions = field(default_factory=LoopOptions)


class Manager:
    """`open` it, ask it, `close` it. What it runs goes on when it is closed, or dies; the next one finds it again.

    It has many parts because here they meet: the core, its log, the steps, proxies, counters, the loop.
    """

    def __init__(
        self, city: City, options: ManagerOptions, lake: LakeReader | None = None, tell: Callable[[str], None] = print
    ) -> None:
        self.options = options
        self.place = Workplace(city, options.data, options.tunnel_host)
        self.state = State()
        self.desk = ProxyDesk()
        self.counters = OwnCounters(options.data, options.span_s)
        self.usage = ServiceUsage(self.place.usage)
        self.records: list[Record] = []
        self.delegated: dict[str, str] = {}
        self._core = ManagerCore(self.state)
        self._actions = Actions(self.place, self.state, self.desk, self.refresh, self.statistics)
        self.loop = Loop(self, options.loop)
        self._lake = lake
        self.tell = tell
        self._log = RecordLog(self.place.directory)
        self._supervision = Supervision()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Condition()
        self._back_since: dict[str, float] = {}
        self._is_missed = False  # the central broker
        self._window_at = time.time()

    async def open(self) -> None:
        for record in self._log.read():
            self.state.apply(record)
            self._remember(record)
        if not self.state.devices and not self.records:
            central = self.place.city.central
            for name in self.place.city.names:
                if name != central:
                    self.note(DeviceSet(Device(name, name)), "manager")
        await self._ask_central()
        self._carry(self._core.resume(time.time()))
        self.spawn(self._watch())
        self.spawn(self.loop.run())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._log.close()

    def spawn(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Effects.

    def _remember(self, record: Record) -> None:
        if isinstance(record.change, Snapshot):
            return  # nobody's change
        self.records.append(record)
        if len(self.records) > 2 * MOST_REMEMBERED:
            del self.records[:MOST_REMEMBERED]

    def _shorten(self) -> None:
        """The log begins anew, and this manager knows from now on what the next one will read there."""
        if self._log.lines > 2 * MOST_REMEMBERED:
            kept = Record(self.state.last, time.time(), "manager", self.state.snapshot(MOST_PLANS, MOST_MOVED))
            try:
                self._log.begin_anew(kept, self.records[-MOST_REMEMBERED:])
            except OSError as error:  # it stays long, and is whole
                self.tell(f"the log could not be shortened: {error}")
                return
            self.state.apply(kept)

    def _carry(self, effects: list[Effect]) -> None:
        """Writes are on disk before anything that follows them is done."""
        written = [effect.record for effect in effects if isinstance(effect, Write)]
        self._log.append(written)
        for record in written:
            self._remember(record)
        self._shorten()
        for effect in effects:
            if isinstance(effect, Run):
                self.spawn(self._run(effect))
        self.spawn(self._say())

    async def _say(self) -> None:
        async with self._ended:
            self._ended.notify_all()

    async def _run(self, effect: Run) -> None:
        plan = self.state.plans[effect.plan].plan
        failed, result = False, ""
        try:
            if effect.back:
                result = await self._actions.take_back(effect.what, plan, effect.result)
            else:
                result = await self._actions.do(effect.what, plan)
        except (MetroError, OSError) as error:
            failed, result = True, str(error)
        except Exception as error:  # a bug must not leave a plan under way for ever
            failed, result = True, f"unexpected: {error!r}"
        if failed:
            self.tell(f"plan {effect.plan}, step {effect.step + 1} ({effect.what.action}) failed: {result}")
        self._carry(self._core.ended(effect.plan, effect.step, result, failed, effect.back, time.time()))

    def accept(self, plan: ActionPlan, author: str) -> int:
        number, effects = self._core.accept(plan, author, time.time())
        self._carry(effects)
        return number

    def note(self, change: Change, author: str) -> None:
        self._carry(self._core.note(change, author, time.time()))

    async def finished(self, number: int, wait_s: float) -> None:
        """Until the plan has ended, or the patience has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._ended:
                await self._ended.wait_for(lambda: self.state.plans[number].phase not in OPEN)

    # What is known.

    async def statistics(self) -> Statistics:
        if self._lake is not None:
            return await self._lake()
        await self._count()
        return self.counters.statistics()

    async def _count(self) -> None:
        self.usage.saw(await self.counters.look(), self.state.services)

    async def surroundings(self, counted: bool = True) -> Surroundings:
        """Raises MetroError while the central broker does not answer. To count may take a while with a lake."""
        await self.refresh()
        return Surroundings(
            self.place.city.central,
            dict(self.state.devices),
            dict(self.delegated),
            dict(self.state.services),
            await self.statistics() if counted else Statistics(),
            dict(self.state.decisions),
        )

    async def refresh(self) -> None:
        """What is delegated now, and the proxies' table of it."""
        found = await delegations(self.place.city, self.options.data)
        self.delegated = {one.filter: one.broker for one in found}
        central = self.place.broker_address(self.place.city.central)
        await self.desk.tell(made_table(central, self.delegated, await self._tunnels()))

    async def _tunnels(self) -> dict[str, str]:
        edges: dict[str, str] = {}
        for device in self.state.devices.values():
            if device.tunnel:
                edges[device.broker] = device.tunnel
            elif await self.place.tunnel_is_up(device.broker):
                edges[device.broker] = self.place.tunnel_address(device.broker)
        return edges

    # Looking after things.

    async def _watch(self) -> None:
        while True:
            try:
                await self._look()
            except MetroError as error:
                self.tell(str(error))
            except Exception as error:  # whatever it is, the watch goes on
                self.tell(f"unexpected: {error!r}")
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        await self._ask_central()
        await self._keep_running()
        self._heal()
        await self._count()
        self.usage.read_users(list(self.state.services))
        now = time.time()
        if now - self._window_at >= self.options.window_s:
            self._window_at = now
            window = self.usage.window(now)
            if window is not None:
                await asyncio.to_thread(spool, self.options.data / self.place.city.central, window)

    async def _ask_central(self) -> None:
        """People are told once that it does not answer, and when it does."""
        try:
            await self.refresh()
        except MetroError as error:
            if not self._is_missed:
                self.tell(f"{error}; until the central broker answers nothing changes hands, and no service enters")
            self._is_missed = True
        else:
            if self._is_missed:
                self.tell(f"{self.place.city.central}, the central broker, answers")
            self._is_missed = False

    def _busy(self) -> set[str]:
        """What the present plan is at work on is nobody else's business."""
        current = self.state.current
        return {step.what for step in current.plan.steps} if current is not None else set()

    async def _keep_running(self) -> None:
        busy = self._busy()
        wanted: dict[str, Callable[[], Awaitable[None]]] = {}
        running: list[str] = []
        for broker in self.state.brokers - busy:
            wanted[f"broker-{broker}"] = partial(self.place.programs.start, self.place.broker_unit(broker))
        for broker in self._wanted_tunnels():
            wanted[f"tunnel-{broker}"] = partial(self.place.programs.start, self.place.tunnel_unit(broker))
        running += [name for name in wanted if await self.place.programs.is_running(name)]
        for name, state in self.state.services.items():
            device = self.state.devices.get(state.device)
            if name in busy or device is None:
                continue
            runtime, unit = self.place.runtime(state.spec), self.place.service_unit(state.spec, device)
            wanted[unit.name] = partial(runtime.start, unit)
            running += [unit.name] if await runtime.is_running(unit.name) else []
        for name in self._supervision.look(wanted, running, time.monotonic()):
            await self._start_again(name, wanted[name])

    def _wanted_tunnels(self) -> set[str]:
        """Also beside brokers that have no filter any more: clients that were away may have messages waiting there."""
        own = {device.broker for device in self.state.devices.values() if not device.tunnel}
        return own & {*self.delegated.values(), *self.place.tunnels()} if self.state.proxies else set()

    async def _start_again(self, name: str, start: Callable[[], Awaitable[None]]) -> None:
        kind, _, rest = name.partition("-")
        if kind != "tunnel":
            self.tell(f"{kind} {rest} does not run; starting it again")
        try:
            await start()
        except (RuntimeFailed, OSError) as error:
            self.tell(str(error))
        if kind == "service":
            self.note(ServiceRestarted(rest, self.state.services[rest].restarts + 1), "manager")

    def _heal(self) -> None:
        """Filters that fell back go to their broker again once it has been there for a while."""
        now, central = time.monotonic(), self.place.city.central
        missing = fallen(self.state.decisions, self.delegated, central)
        up = {broker for broker in set(missing.values()) if self.place.is_up(broker)}
        self._back_since = {broker: self._back_since.get(broker, now) for broker in up}
        lost = {
            one: broker
            for one, broker in missing.items()
            if not delegation_problem(one, self.delegated) and now - self._back_since.get(broker, now) >= BACK_FOR_S
        }
        if lost and self.state.current is None and self.place.is_up(central):
            for broker in lost.values():
                self._back_since[broker] = now  # if it fails, not again at once
            self.accept(heal_plan(lost, self.state.decisions), "manager")
