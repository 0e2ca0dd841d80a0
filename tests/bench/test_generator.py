"""The generator's own absence is nobody's latency; a pause between it and the receiver is."""

import itertools
import socket
from collections.abc import Iterator

import pytest
from bench import generator

SIZE = 10


def moments(jump_at: int, jump_ns: int) -> Iterator[int]:
    """Ten microseconds pass from look to look, and once more."""
    for look in itertools.count():
        yield 10_000 * look + (jump_ns if look >= jump_at else 0)


def latencies(monkeypatch: pytest.MonkeyPatch, jump_ns: int) -> tuple[list[int], int]:
    clock = moments(500, jump_ns)
    monkeypatch.setattr("time.monotonic_ns", lambda: next(clock))
    near, far = socket.socketpair()
    with near, far:
        return generator.latencies([(near, far, bytes(SIZE))], SIZE, 1000, 0.02)


def test_what_came_while_the_generator_was_away_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, lost = latencies(monkeypatch, 0)
    assert (len(whole), lost) == (20, 0)
    with_gap, lost = latencies(monkeypatch, 5_000_000)
    assert lost == 0
    assert 13 <= len(with_gap) <= 16  # five were due meanwhile
    assert max(with_gap) < 2 * max(whole)


def test_it_is_counted_if_the_generator_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "STOPPED_NS", 10**9)
    with_gap, lost = latencies(monkeypatch, 5_000_000)
    assert (len(with_gap), lost) == (20, 0)
    assert max(with_gap) > 4_000_000
