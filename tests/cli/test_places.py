"""Ports for the brokers of a city: free ones, that no outgoing connection takes before a broker opens them."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from metromq.control import places
from metromq.control.places import hold_port


def test_held_ports_are_all_different_and_not_for_outgoing_connections() -> None:
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with ExitStack() as stack:
        ports = [stack.enter_context(hold_port("127.0.0.1")).getsockname()[1] for _ in range(50)]
        assert len(set(ports)) == 50
        if first_outgoing > places.LOWEST_PORT:
            assert all(places.LOWEST_PORT <= port < first_outgoing for port in ports)


def test_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(places, "_candidates", lambda: iter([number, number, 0]))
        with hold_port("127.0.0.1") as held:
            assert held.getsockname()[1] not in (0, number)


@pytest.mark.parametrize("text", ["", "what\n", "1000 2000\n"])
def test_where_the_range_is_not_known_any_port_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "range"
    file.write_text(text)
    monkeypatch.setattr(places, "_OUTGOING", file)
    with hold_port("127.0.0.1") as held:
        assert held.getsockname()[1] > 0


def test_an_address_of_somebody_else_is_an_error() -> None:
    with pytest.raises(OSError, match="assign"):
        hold_port("192.0.2.1")
