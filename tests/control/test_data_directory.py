"""A city's files on one machine, and ports for its brokers that no outgoing connection takes before them."""

import dataclasses
import os
import socket
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from metromq.city_file import city_text, load_city
from metromq.control import data_directory
from metromq.control.data_directory import (
    BROKER_FILE,
    CITY_FILE,
    RunningBroker,
    choose_ports,
    city_named,
    city_running,
    forget_place,
    hold_port,
    is_free,
    keep_city,
    keep_place,
    lives,
    only_one,
    read_place,
    with_chosen_ports,
)
from metromq.errors import ConfigError, UsageError
from metromq.federation.city import grid_city
from tests.control.http_pages import dead_pid


def test_held_ports_are_all_different_and_not_for_outgoing_connections() -> None:
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with ExitStack() as stack:
        ports = [stack.enter_context(hold_port("127.0.0.1")).getsockname()[1] for _ in range(50)]
        assert len(set(ports)) == 50
        if first_outgoing > data_directory.LOWEST_PORT:
            assert all(data_directory.LOWEST_PORT <= port < first_outgoing for port in ports)


def test_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(data_directory, "_candidates", lambda: iter([number, number, 0]))
        with hold_port("127.0.0.1") as held:
            assert held.getsockname()[1] not in (0, number)


@pytest.mark.parametrize("text", ["", "what\n", "1000 2000\n"])
def test_where_the_range_is_not_known_any_port_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "range"
    file.write_text(text)
    monkeypatch.setattr(data_directory, "_OUTGOING", file)
    with hold_port("127.0.0.1") as held:
        assert held.getsockname()[1] > 0


def test_an_address_of_somebody_else_is_an_error() -> None:
    with pytest.raises(OSError, match="assign"):
        hold_port("192.0.2.1")


def test_ports_that_are_left_open_are_chosen_and_kept(tmp_path: Path) -> None:
    city = choose_ports(grid_city(count=4))
    ports = [broker.port for broker in city.brokers]
    assert 0 not in ports
    assert len(set(ports)) == 4
    assert choose_ports(city) == city
    keep_city(tmp_path, city)
    assert with_chosen_ports(grid_city(count=4), load_city(tmp_path / CITY_FILE).by_name) == city
    moved = dataclasses.replace(city.brokers[0], listen="10.0.0.1:7")
    again = with_chosen_ports(grid_city(count=4), {moved.name: moved})
    assert again.brokers[0].listen == "127.0.0.1:0", "the port of another address says nothing about this one"


def test_an_address_that_is_not_ours_is_named() -> None:
    plain = grid_city(count=2)
    strange = dataclasses.replace(plain.brokers[0], listen="192.0.2.1:0")
    with pytest.raises(ConfigError, match=r"^broker b00: cannot listen on 192\.0\.2\.1: "):
        choose_ports(dataclasses.replace(plain, brokers=(strange, plain.brokers[1])))


def test_the_city_may_hold_a_secret_so_only_we_may_read_it(tmp_path: Path) -> None:
    file = keep_city(tmp_path / "new", grid_city(count=2))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_city(file) == grid_city(count=2)


def test_a_place_is_kept_found_and_forgotten_by_its_own_process(tmp_path: Path) -> None:
    place = RunningBroker("b1", 4711, "127.0.0.1:1883", "127.0.0.1:8080", 12.5)
    assert read_place(tmp_path / "b1") is None
    keep_place(tmp_path / "b1", place)
    assert read_place(tmp_path / "b1") == place
    forget_place(tmp_path / "b1", 4712)
    assert read_place(tmp_path / "b1") == place
    forget_place(tmp_path / "b1", 4711)
    assert read_place(tmp_path / "b1") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "b1"}', '{"name": 1, "pid": "x"}'])
def test_a_file_that_is_no_place_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / BROKER_FILE).write_text(text)
    assert read_place(tmp_path) is None


def test_a_newer_broker_may_say_more_of_its_place(tmp_path: Path) -> None:
    text = '{"name": "b1", "pid": 1, "listen": "a:1", "http": "a:2", "started": 3, "mood": "good"}'
    (tmp_path / BROKER_FILE).write_text(text)
    assert read_place(tmp_path) == RunningBroker("b1", 1, "a:1", "a:2", 3.0)


def test_a_directory_has_one_supervisor(tmp_path: Path) -> None:
    refused = pytest.raises(UsageError, match=rf"already running in .* \(process {os.getpid()}\): stop it first")
    with only_one(tmp_path / "data"), refused, only_one(tmp_path / "data"):
        raise AssertionError("two at once")
    with only_one(tmp_path / "data"):
        pass


def test_cities_by_file_by_preset_and_by_directory(tmp_path: Path) -> None:
    assert city_named("geographic", {}).routing == "geographic"
    with pytest.raises(UsageError, match="no file nowhere and no such preset; the presets are central"):
        city_named("nowhere", {})
    with pytest.raises(UsageError, match="no city has been started"):
        city_running(None, tmp_path, {})
    chosen = choose_ports(grid_city(count=2))
    keep_city(tmp_path, chosen)
    assert city_running(None, tmp_path, {}) == chosen
    file = tmp_path / "mine.toml"
    file.write_text(city_text(grid_city(count=2)))
    assert city_running(str(file), tmp_path, {}) == chosen
    assert city_named(str(file), {"METROMQ_CITY_NAME": "other", "HOME": "/"}).name == "other"


def test_processes_live_and_end() -> None:
    assert lives(os.getpid())
    assert not lives(dead_pid())


def test_a_port_is_free_until_it_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free("127.0.0.1", port)
    assert is_free("127.0.0.1", port)
