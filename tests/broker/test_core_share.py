"""The broker's turns on its core, by what Linux itself says of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from metromq.broker.core_share import TURN_NS, times_ousted, turn_ns

pytestmark = pytest.mark.skipif(turn_ns() == 0, reason="this system does not tell how long turns are")

# In a process of their own: nobody else's tests should run in short turns.
IN_TURNS = """
import subprocess, sys, threading
from metromq.broker.core_share import take_short_turns, turn_ns
assert take_short_turns()
print(turn_ns())
thread = threading.Thread(target=lambda: print(turn_ns()))
thread.start()
thread.join()
said = "from metromq.broker.core_share import turn_ns; print(turn_ns())"
subprocess.run([sys.executable, "-c", said], check=True)
"""


@pytest.fixture(scope="module")
def turns() -> tuple[int, int, int]:
    """Of the loop, of a thread and of a process that it starts."""
    done = subprocess.run([sys.executable, "-uc", IN_TURNS], capture_output=True, text=True, timeout=60, check=True)
    own, thread, child = [int(line) for line in done.stdout.split()]
    if own != TURN_NS:
        pytest.skip("Linux before 6.12 has turns of one length for everybody")
    return own, thread, child


def test_nobody_that_the_loop_starts_takes_short_turns(turns: tuple[int, int, int]) -> None:
    own, thread, child = turns
    assert thread == child == turn_ns() != own


def test_a_process_that_somebody_gave_a_class_of_its_own_keeps_it() -> None:
    said = """
import os
from metromq.broker.core_share import take_short_turns
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
print(take_short_turns(), os.sched_getscheduler(0) == os.SCHED_BATCH)
"""
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_broker_takes_short_turns(tmp_path: Path, turns: tuple[int, int, int]) -> None:
    command = [sys.executable, "-m", "metromq.cli.main", "serve", "--listen", "127.0.0.1:0", "--until-eof"]
    with subprocess.Popen(
        [*command, "--durability", "memory", "--data", str(tmp_path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stderr is not None
        while "ready" not in broker.stderr.readline():
            assert broker.poll() is None
        turn = turn_ns(broker.pid)
        assert broker.stdin is not None
        broker.stdin.close()
        broker.wait(20)
    assert turn == TURN_NS


def test_times_ousted_is_what_linux_counts_of_this_thread() -> None:
    before = times_ousted()
    status = Path("/proc/thread-self/status").read_text()
    counted = re.search(r"nonvoluntary_ctxt_switches:\s+(\d+)", status)
    assert counted is not None
    assert before <= int(counted[1]) <= times_ousted()
