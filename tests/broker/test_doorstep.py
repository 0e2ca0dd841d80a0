"""Whose share of the room a newcomer takes, and what file descriptors allow."""

import resource

import pytest

from metromq.broker.doorstep import most_newcomers, neighbourhood


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        (("10.1.2.3", 5000), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::1", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("::ffff:10.1.2.3", 5000, 0, 0), "10.1.2.3"),
        (("fe80::1%eth0", 5000, 0, 2), "fe80::/64"),
        ("", ""),
        (None, "None"),
    ],
)
def test_addresses(address: object, wanted: str) -> None:
    assert neighbourhood(address) == wanted


def test_newcomers_leave_file_descriptors_for_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    assert most_newcomers(5000) == 256
    assert most_newcomers(100) == 100
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert most_newcomers(5000) == 5000
