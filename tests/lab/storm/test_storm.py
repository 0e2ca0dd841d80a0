"""Storms by seed on whole brokers keep the contract; a broker with a planted bug does not."""

from collections.abc import Callable
from typing import Any

import pytest

from metromq.federation.directory import Directory
from metromq.federation.host.arrivals import Arrivals
from metromq.federation.host.departures import Departure, Departures
from metromq.federation.host.retained_versions import RetainedVersions
from metromq.federation.host.roaming import Roaming
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.links.inbox import Inbox
from metromq.federation.links.link import Link
from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import history_of
from metromq.lab.storm.simulated import SimulatedStorm

SEEDS = 100
FIND_WITHIN = 60


def breaches(seed: int) -> list[str]:
    return judge(SimulatedStorm(history_of(seed)).play())


@pytest.mark.timeout(600)
def test_storms_keep_the_contract() -> None:
    failed = {seed: found[0] for seed in range(SEEDS) if (found := breaches(seed))}
    assert failed == {}


def test_a_seed_is_always_the_same_storm() -> None:
    assert history_of(7) == history_of(7)
    first, second = (SimulatedStorm(history_of(7)).play() for _ in range(2))
    assert first.delivered == second.delivered


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def ends_at_once(self: Departures, departure: Departure) -> None:
    self._hub.sessions.close(departure.session)


def remembers_no_deletion(accepts: Callable[..., bool]) -> Callable[..., bool]:
    def planted(self: RetainedVersions, message: Any) -> bool:
        is_newer = accepts(self, message)
        self._tombstones.clear()
        return is_newer

    return planted


def takes_everything(accept: Callable[..., int]) -> Callable[..., int]:
    def planted(self: Inbox, sender: str, entry: Any, own_name: str) -> int:
        self._cursors.pop(sender, None)
        self._origins.clear()
        return accept(self, sender, entry, own_name)

    return planted


PLANTS: dict[str, tuple[type, str, Callable[[Any], Any]]] = {
    "a moved session is forgotten at once": (Departures, "_end_if_drained", lambda _: ends_at_once),
    "a moved session stays for ever": (Departures, "_end_if_drained", lambda _: nothing),
    "the old broker passes nothing on": (Departures, "tick", lambda _: nothing),
    "pieces of a session bring no messages": (Arrivals, "_queue", lambda _: nothing),
    "brokers are not asked for markers": (Arrivals, "probe", lambda _: nothing),
    "a deletion is forgotten": (RetainedVersions, "accepts", remembers_no_deletion),
    "newcomers get what happens to be here": (RetainedVersions, "ask", lambda _: nothing),
    "repeats are not recognised": (Inbox, "accept", takes_everything),
    "the old connection is not told": (Roaming, "taken", lambda _: nothing),
    "nobody is told that a client has moved": (Directory, "moved", lambda _: lambda self, moved: []),
    "clocks are believed": (HybridClock, "heard", lambda _: nothing),
    "what was not acknowledged is not sent again": (Link, "lost", lambda _: nothing),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTS)
def test_planted_bugs_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, plant = PLANTS[name]
    monkeypatch.setattr(owner, attribute, plant(getattr(owner, attribute)))
    for seed in range(FIND_WITHIN):
        if breaches(seed):
            return
    pytest.fail(f"no storm of {FIND_WITHIN} found it")
