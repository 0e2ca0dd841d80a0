"""The way of a message through a city, from its file and from brokers that answer."""

import os
from collections.abc import Mapping
from pathlib import Path

from metromq.broker.http_listener import HttpAnswer
from metromq.control.tracing import is_running, live_ask, planned_ask, trace
from metromq.federation.city import grid_city
from metromq.federation.explaining import StepHop, TraceStep, step_to_json
from tests.control.http_pages import dead_pid, fixed, pages_at, place
from tests.peers import play

CITY = grid_city(count=4)  # b00, b10, b20, b30


def test_a_message_is_followed_from_broker_to_broker() -> None:
    found = play(trace("2/1/0/0/bus", "b10", False, planned_ask(CITY)))
    assert (found.topic, found.start, found.live) == ("2/1/0/0/bus", "b10", False)
    assert [(leg.broker, leg.sender, leg.stage) for leg in found.legs] == [
        ("b10", "", "client"),
        ("b20", "b10", "owner"),
    ]
    assert found.legs[0].why == "the client is connected here"
    assert all(leg.step is not None for leg in found.legs)


def test_a_subscription_is_explained_where_it_is_made() -> None:
    found = play(trace("2/#", "b10", False, planned_ask(CITY)))
    assert [leg.broker for leg in found.legs] == ["b10"]


def test_running_brokers_are_asked_and_the_silent_ones_left_out(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []
    hops = (StepHop("b20", "owner", "is responsible", ("b10",)), StepHop("b30", "final", "wants it"))
    first = {**step_to_json(TraceStep("b10", "t", "client", ("why",), hops, (), 1)), "mood": "good"}
    strange = {"broker": "b30", "hops": "many"}

    async def story() -> None:
        def explain(query: Mapping[str, str]) -> HttpAnswer:
            asked.append(dict(query))
            return fixed(first)(query)

        async with pages_at({"/explain": explain}) as here, pages_at({"/explain": fixed(strange)}) as there:
            place(tmp_path, "b10", here)
            place(tmp_path, "b30", there)
            found = await trace("t", "b10", True, live_ask(CITY, tmp_path))
        answered = {leg.broker: leg.step is not None for leg in found.legs}
        assert answered == {"b10": True, "b20": False, "b30": False}
        assert asked == [{"topic": "t", "stage": "client", "origin": "b10", "served": ""}]

    play(story())


def test_who_runs_here(tmp_path: Path) -> None:
    assert not is_running(CITY, tmp_path, "b00")
    place(tmp_path, "b00", "127.0.0.1:1", os.getpid())
    assert is_running(CITY, tmp_path, "b00")
    place(tmp_path, "b00", "127.0.0.1:1", dead_pid())
    assert not is_running(CITY, tmp_path, "b00")
