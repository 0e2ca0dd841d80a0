"""Live brokers that die, and live brokers that are only late: how soon one is missed, and how often areas move.

What a broker knows is asked of it; how long that takes is counted in greetings, which are far apart here, so that a
slow machine makes no difference.
"""

import threading
import time
from pathlib import Path

from metromq.federation.city import grid_city
from tests.scenarios.city import LiveCity, live_city

SELDOM_MS = 2_000
OFTEN_MS = 200
PULSES = 25


def owners_of(live: LiveCity, at: str, areas: list[str]) -> set[str]:
    known = live.ask(at).owners
    return {known.get(area, "") for area in areas}


def test_a_dead_broker_is_missed_by_everybody_also_outside_its_cluster(tmp_path: Path) -> None:
    """Within three greetings, and one to pass it on. Others were greeted four times as seldom once, and took that long:
    twelve greetings, and more. The limit lies between."""
    city = grid_city("geographic", l_b=2, l_c=1, count=8, hello_interval_ms=SELDOM_MS)
    with live_city(city, tmp_path) as live:
        lost, *others = city.names
        areas = city.by_name[lost].area.split()
        outside = [name for name in others if city.cluster_of(name) != city.cluster_of(lost)]
        assert outside
        live.settle()
        live.kill(lost)
        killed = time.monotonic()
        missed: dict[str, float] = {}
        while len(missed) < len(others):
            passed_s = time.monotonic() - killed
            assert passed_s < 8 * SELDOM_MS / 1000, f"missed by {sorted(missed)} only"
            for name in others:
                if name not in missed and lost not in owners_of(live, name, areas):
                    missed[name] = passed_s
            threading.Event().wait(0.1)


def test_a_broker_that_is_late_again_and_again_keeps_its_areas_in_the_end(tmp_path: Path) -> None:
    """It stands still for longer than three greetings, runs, and so on. Each takeover made work that made others late:
    areas changed hands 77 times in an hour of heavy load."""
    city = grid_city("geographic", l_b=1, l_c=0, count=4, hello_interval_ms=OFTEN_MS)
    with live_city(city, tmp_path) as live:
        late, watcher, *_ = city.names
        areas = city.by_name[late].area.split()
        live.settle()
        seen = [owners_of(live, watcher, areas)]
        for _ in range(PULSES):
            live.pause(late)
            _look(live, watcher, areas, seen, 1.1)
            live.resume(late)
            _look(live, watcher, areas, seen, 1.0)
        assert len(seen) - 1 <= PULSES // 2, f"areas changed hands {len(seen) - 1} times in {PULSES} pauses"
        live.wait_until(lambda: owners_of(live, watcher, areas) == {late})


def _look(live: LiveCity, watcher: str, areas: list[str], seen: list[set[str]], seconds: float) -> None:
    """Notes each change of the areas' owners."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = owners_of(live, watcher, areas)
        if now != seen[-1]:
            seen.append(now)
        threading.Event().wait(0.05)
