"""The manager says that proxies know only of those that do, and waits for those that come again after its start."""

import asyncio
from collections.abc import Awaitable, Callable

from metromq.control.manager.proxies import ProxyDesk, made_table

TABLE = made_table("127.0.0.1:1", {"a/#": "b1"}, {"b1": "127.0.0.1:2"})


def played(story: Callable[[ProxyDesk], Awaitable[None]]) -> None:
    async def run() -> None:
        desk = ProxyDesk()
        await desk.tell(TABLE)
        await story(desk)

    asyncio.run(run())


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_proxy_that_has_not_come_again_after_the_managers_start_is_waited_for() -> None:
    async def story(desk: ProxyDesk) -> None:
        waiting = asyncio.create_task(desk.unknowing(["gate"], 60))
        await turns()
        assert not waiting.done()
        assert await desk.asked("gate", "older", 0, 0) == TABLE
        await turns()
        assert not waiting.done(), "it was told, and has not said that it knows"
        await desk.asked("gate", TABLE.version, 0, 0)
        assert await waiting == []

    played(story)


def test_one_that_does_not_come_is_named_and_told_when_it_comes() -> None:
    async def story(desk: ProxyDesk) -> None:
        await desk.asked("other", TABLE.version, 0, 0)
        assert await desk.unknowing(["gate", "other"], 0.01) == ["gate"]
        assert await desk.asked("gate", "", 0, 60) == TABLE

    played(story)


def test_one_that_has_been_away_for_long_holds_up_no_plan() -> None:
    async def story(desk: ProxyDesk) -> None:
        desk._since -= 60
        assert await desk.unknowing(["gate"], 3600) == ["gate"]
        assert await desk.unknowing([], 3600) == []

    played(story)


def test_no_table_is_given_before_there_is_one() -> None:
    """A proxy with a table would lose it."""

    async def run() -> None:
        desk = ProxyDesk()
        assert not (await desk.asked("gate", "older", 0, 0)).version
        asking = asyncio.create_task(desk.asked("gate", "older", 0, 60))
        await turns()
        assert not asking.done()
        await desk.tell(TABLE)
        assert await asking == TABLE

    asyncio.run(run())
