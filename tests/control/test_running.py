"""A city on one machine: which ports and programs it gets, and how it is started, joined and stopped."""

import dataclasses
import socket
import sys
from pathlib import Path

import pytest

from metromq.city_file import load_city
from metromq.control.data_directory import CITY_FILE, keep_city, read_place
from metromq.control.running import CityOptions, RunningCity, broker_program, resolved
from metromq.errors import UsageError
from metromq.federation.city import Membership, grid_city
from metromq.federation.status import UP
from tests.peers import play

CITY = dataclasses.replace(grid_city(count=2), membership=Membership(200, 3, 1))  # b00, b20


def test_ports_stay_from_start_to_start(tmp_path: Path) -> None:
    first = resolved(CITY, tmp_path)
    assert all(broker.port for broker in first.brokers)
    keep_city(tmp_path, first)
    assert resolved(CITY, tmp_path) == first
    with socket.create_server(("127.0.0.1", first.brokers[0].port)):
        second = resolved(CITY, tmp_path)
    assert second.brokers[0].port != first.brokers[0].port, "somebody else has it meanwhile"
    assert second.brokers[1] == first.brokers[1]


@pytest.mark.parametrize("text", ["", "this is no TOML", "brokers = 5"])
def test_a_broken_file_of_an_earlier_start_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / CITY_FILE).write_text(text)
    assert all(broker.port for broker in resolved(CITY, tmp_path).brokers)


def test_what_a_broker_is_started_with(tmp_path: Path) -> None:
    plain = broker_program(tmp_path / "c.toml", tmp_path, "b00", CityOptions())
    assert plain.command[:4] == (sys.executable, "-m", "metromq.cli.main", "serve")
    assert plain.log == tmp_path / "b00" / "broker.log"
    assert "--durability" not in plain.command
    more = broker_program(tmp_path / "c.toml", tmp_path, "b00", CityOptions("fsync", Path("x.toml")))
    assert more.command[len(plain.command) :] == ("--durability", "fsync", "--config", "x.toml")


def test_only_brokers_of_the_city_can_be_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='no broker "harbour"'):
        RunningCity(CITY, tmp_path, ("harbour",), CityOptions(), print)
    some = RunningCity(CITY, tmp_path, ("b20",), CityOptions(), print)
    assert list(some.supervisor.keepers) == ["b20"]
    assert load_city(tmp_path / CITY_FILE) == some.city, "other commands find the ports there"


def test_a_city_starts_joins_and_stops(tmp_path: Path) -> None:
    running = RunningCity(CITY, tmp_path, (), CityOptions("memory"), print)
    ready: list[str] = []
    looks: list[tuple[int, int]] = []

    async def story() -> None:
        await running.start(lambda keeper: ready.append(keeper.program.name))
        try:
            status = await running.joined(lambda up, wanted: looks.append((up, wanted)))
        finally:
            await running.stop()
        assert [broker.state for broker in status.brokers] == [UP, UP]
        assert {link.state for broker in status.brokers for link in broker.links} == {UP}

    play(story(), 90)
    assert sorted(ready) == ["b00", "b20"]
    assert looks[-1] == (2, 2)
    assert read_place(tmp_path / "b00") is None
