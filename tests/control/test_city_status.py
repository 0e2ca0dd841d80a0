"""The status of a city: what each broker says, what peers say of those that do not answer, and who is gone."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from metromq.broker.http_listener import HttpAnswer
from metromq.control.city_status import NoAnswer, ask_city, get, get_json, is_ready
from metromq.federation.city import grid_city
from metromq.federation.status import DOWN, UNREACHABLE, UP, BrokerStatus, to_json
from tests.control.http_pages import dead_pid, fixed, pages_at, place
from tests.peers import free_ports, play

CITY = grid_city(count=4)  # b00, b10, b20, b30


def said(name: str, **more: object) -> dict[str, object]:
    return {**to_json(BrokerStatus(name, UP, clients=3, alive=("b00", "b30"))), **more}


def test_a_page_or_the_reason_why_not() -> None:
    async def story() -> None:
        pages = {"/a": fixed(b"text"), "/bad": fixed(b"not now\n", 503), "/json": fixed({"a": 1}), "/list": fixed([1])}
        async with pages_at(pages) as address:
            assert await get(address, "/a") == b"text"
            assert await get_json(address, "/json") == {"a": 1}
            with pytest.raises(NoAnswer, match=r"/bad: not now$"):
                await get(address, "/bad")
            for page in ("/a", "/list"):
                with pytest.raises(NoAnswer, match="is not a JSON object"):
                    await get_json(address, page)
        with pytest.raises(NoAnswer, match="does not answer"):
            await get(address, "/a")

    play(story())


def test_questions_are_quoted() -> None:
    asked: list[dict[str, str]] = []

    async def story() -> None:
        def note(query: Mapping[str, str]) -> HttpAnswer:
            asked.append(dict(query))
            return HttpAnswer(b"")

        async with pages_at({"/q": note}) as address:
            await get(address, "/q", {"topic": "a b/+/#&=é"})

    play(story())
    assert asked == [{"topic": "a b/+/#&=é"}]


def test_ready_is_who_says_so_and_has_the_number(tmp_path: Path) -> None:
    async def story() -> None:
        async with pages_at({"/healthz": fixed(b"ok")}) as well, pages_at({"/healthz": fixed(b"ill", 503)}) as ill:
            assert not await is_ready(tmp_path / "b1", 1)
            place(tmp_path, "b1", well)
            assert await is_ready(tmp_path / "b1", os.getpid())
            assert not await is_ready(tmp_path / "b1", os.getpid() + 1), "the file of an earlier process"
            place(tmp_path, "b1", ill)
            assert not await is_ready(tmp_path / "b1", os.getpid())

    play(story())


def test_every_broker_of_a_city_has_a_state_and_a_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with pages_at({"/status": fixed(said("b00", mood="good"))}) as first:
            place(tmp_path, "b00", first)
            place(tmp_path, "b10", f"127.0.0.1:{free_ports(1)[0]}")
            gone = place(tmp_path, "b20", first, dead_pid())
            status = await ask_city(CITY, tmp_path)
        assert (status.city, status.routing) == ("city", "geographic")
        b00, b10, b20, b30 = status.brokers
        assert (b00.state, b00.clients) == (UP, 3)
        assert (b10.state, b10.pid) == (UNREACHABLE, os.getpid())
        assert "does not answer" in b10.problem
        assert (b20.state, b20.problem) == (DOWN, f"its process {gone.pid} is gone")
        assert (b30.state, b30.problem) == (UNREACHABLE, "its peers hear from it, but it does not answer here")

    play(story())


@pytest.mark.parametrize(("ahead_s", "state"), [(None, DOWN), (0.0, UNREACHABLE)])
def test_who_was_never_heard_is_not_there_though_a_broker_that_has_just_started_hopes_so(
    tmp_path: Path, ahead_s: float | None, state: str
) -> None:
    links = [{"peer": "b30", "state": DOWN, "clock_ahead_s": ahead_s}]

    async def story() -> None:
        async with pages_at({"/status": fixed(said("b00", alive=["b00", "b30"], links=links))}) as first:
            place(tmp_path, "b00", first)
            status = await ask_city(CITY, tmp_path)
        assert status.brokers[3].state == state

    play(story())


@pytest.mark.parametrize("answer", [b"{", b"[]", b"\xff", {"state": "up"}, said("b00", clients="many")])
def test_an_answer_of_another_shape_is_no_traceback(tmp_path: Path, answer: object) -> None:
    async def story() -> None:
        async with pages_at({"/status": fixed(answer)}) as address:
            place(tmp_path, "b00", address)
            broker = (await ask_city(CITY, tmp_path)).brokers[0]
        assert broker.state == UNREACHABLE
        assert broker.problem

    play(story())


def test_nobody_has_been_started(tmp_path: Path) -> None:
    status = play(ask_city(CITY, tmp_path))
    assert {(broker.state, broker.problem) for broker in status.brokers} == {(DOWN, "not running here")}
